//go:build linux

package guest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/rung-dev/rung/api/gen/filesystem"
	"github.com/rung-dev/rung/api/gen/filesystem/filesystemconnect"
	"github.com/rung-dev/rung/api/gen/process"
	"github.com/rung-dev/rung/api/gen/process/processconnect"
	"github.com/rung-dev/rung/internal/guest"
)

// Real Connect clients, made of the generated code and net/http, against the hand-written guest.

func (r *running) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) }}}
}

func (r *running) connect() *connect.Client {
	return connect.NewClient(connecthttp.NewTransport(r.http(), "http://guest", connecthttp.WithProtoJSON()))
}

func TestConnectProcess(t *testing.T) {
	g := start(t, nil)
	c := processconnect.NewProcessClient(g.connect())
	stdin := true
	stream, err := c.Start(ctx(t), &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", `echo $GREETING; cat; echo bad >&2; exit 4`}, Envs: map[string]string{"GREETING": "héllo"}},
		Stdin:   &stdin, Tag: new("mine"),
	})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Receive()
	if err != nil || first.GetEvent().GetStart().GetPid() == 0 {
		t.Fatalf("%v %v", first, err)
	}
	pid := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: first.GetEvent().GetStart().GetPid()}}
	tag := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: "mine"}}

	list, err := c.List(ctx(t), &process.ListRequest{})
	if err != nil || len(list.GetProcesses()) != 1 || list.GetProcesses()[0].GetTag() != "mine" || list.GetProcesses()[0].GetConfig().GetCmd() != "/bin/bash" {
		t.Errorf("list: %v %v", list, err)
	}
	if _, err := c.SendInput(ctx(t), &process.SendInputRequest{Process: tag, Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("one\n")}}}); err != nil {
		t.Error(err)
	}
	feed, err := c.StreamInput(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*process.StreamInputRequest{
		{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: pid}}},
		{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("two\x00\n")}}}}},
	} {
		if err := feed.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := feed.CloseAndReceive(); err != nil {
		t.Errorf("stream input: %v", err)
	}
	if _, err := c.CloseStdin(ctx(t), &process.CloseStdinRequest{Process: pid}); err != nil {
		t.Error(err)
	}
	out, errs, end := collect(t, stream)
	if out != "héllo\none\ntwo\x00\n" || errs != "bad\n" || end.GetExitCode() != 4 || !end.GetExited() || end.GetStatus() != "exit status 4" || end.GetError() != "exit status 4" {
		t.Errorf("%q %q %v", out, errs, end)
	}
}

type events interface {
	Receive() (*process.StartResponse, error)
}

func collect(t *testing.T, stream events) (stdout, stderr string, end *process.ProcessEvent_EndEvent) {
	t.Helper()
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return stdout, stderr, end
		}
		if err != nil {
			t.Fatal(err)
		}
		stdout += string(m.GetEvent().GetData().GetStdout()) + string(m.GetEvent().GetData().GetPty())
		stderr += string(m.GetEvent().GetData().GetStderr())
		if e := m.GetEvent().GetEnd(); e != nil {
			end = e
		}
	}
}

func TestConnectErrors(t *testing.T) {
	g := start(t, nil)
	c := processconnect.NewProcessClient(g.connect())
	f := filesystemconnect.NewFilesystemClient(g.connect())
	nobody := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: 999999}}
	missing := "/no/such/dir"
	first := func(stream events, err error) error {
		if err == nil {
			_, err = stream.Receive()
		}
		return err
	}
	check := func(name string, err error, want connect.Code) {
		t.Helper()
		if err == nil && want == 0 {
			return
		}
		if connect.CodeOf(err) != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	_, err := c.SendSignal(ctx(t), &process.SendSignalRequest{Process: nobody, Signal: process.Signal_SIGNAL_SIGKILL})
	check("signal", err, connect.CodeNotFound)
	_, err = c.SendInput(ctx(t), &process.SendInputRequest{Process: nobody})
	check("input", err, connect.CodeNotFound)
	_, err = c.Update(ctx(t), &process.UpdateRequest{})
	check("no selector", err, connect.CodeInvalidArgument)
	stream, err := c.Start(ctx(t), &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &missing}})
	check("cwd", first(stream, err), connect.CodeInvalidArgument)
	_, err = f.Stat(ctx(t), &filesystem.StatRequest{Path: missing})
	check("stat", err, connect.CodeNotFound)
	_, err = f.MakeDir(ctx(t), &filesystem.MakeDirRequest{Path: "/tmp"})
	check("mkdir of a directory", err, connect.CodeAlreadyExists)
	_, err = f.MakeDir(ctx(t), &filesystem.MakeDirRequest{Path: "/etc/passwd"})
	check("mkdir of a file", err, connect.CodeInvalidArgument)
	_, err = f.ListDir(ctx(t), &filesystem.ListDirRequest{Path: "/etc/passwd"})
	check("list a file", err, connect.CodeInvalidArgument)
	_, err = f.ListDir(ctx(t), &filesystem.ListDirRequest{Path: missing})
	check("list nothing", err, connect.CodeNotFound)
	_, err = f.Remove(ctx(t), &filesystem.RemoveRequest{Path: missing})
	check("remove nothing", err, 0)
	_, err = f.CreateWatcher(ctx(t), &filesystem.CreateWatcherRequest{Path: "/tmp"})
	check("watcher", err, connect.CodeUnimplemented)
}

func TestConnectDeadline(t *testing.T) {
	g := start(t, nil)
	c := processconnect.NewProcessClient(g.connect())
	// A client whose own deadline is later than what it asked of the guest: the header is set by hand.
	callCtx, info := connect.NewClientContext(ctx(t))
	_ = info
	short, cancel := context.WithTimeout(callCtx, 500*time.Millisecond)
	defer cancel()
	stream, err := c.Start(short, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Receive()
	if err != nil {
		t.Fatal(err)
	}
	pid := int(m.GetEvent().GetStart().GetPid())
	if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("got %v", err)
	}
	waitFor(t, "the process's end at its deadline", func() bool { return gone(pid) })
}

func TestConnectTerminal(t *testing.T) {
	g := start(t, nil)
	c := processconnect.NewProcessClient(g.connect())
	stream, err := c.Start(ctx(t), &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "sh", Args: []string{"-c", `stty size; tty; read x; echo "got $x"; stty size; exit 5`}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: 100, Rows: 30}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Receive()
	if err != nil {
		t.Fatal(err)
	}
	pid := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: m.GetEvent().GetStart().GetPid()}}
	if _, err := c.Update(ctx(t), &process.UpdateRequest{Process: pid, Pty: &process.PTY{Size: &process.PTY_Size{Cols: 90, Rows: 20}}}); err != nil {
		t.Error(err)
	}
	if _, err := c.CloseStdin(ctx(t), &process.CloseStdinRequest{Process: pid}); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("close of a terminal: %v", err)
	}
	if _, err := c.SendInput(ctx(t), &process.SendInputRequest{Process: pid, Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("yes\r")}}}); err != nil {
		t.Error(err)
	}
	out, _, end := collect(t, stream)
	if !strings.Contains(out, "/dev/pts/") || !strings.Contains(out, "got yes\r\n20 90\r\n") || end.GetExitCode() != 5 {
		t.Errorf("%q %v", out, end)
	}
}

func TestConnectFiles(t *testing.T) {
	g := start(t, nil)
	f := filesystemconnect.NewFilesystemClient(g.connect())
	dir, err := f.MakeDir(ctx(t), &filesystem.MakeDirRequest{Path: "a/b"})
	if err != nil || dir.GetEntry().GetPath() != g.user.Home+"/a/b" || dir.GetEntry().GetPermissions() != "drwxr-xr-x" || dir.GetEntry().GetType() != filesystem.FileType_FILE_TYPE_DIRECTORY {
		t.Fatalf("%v %v", dir, err)
	}
	g.run(t, `printf hello > a/b/file; ln -s b/file a/link; ln -s nowhere a/broken; ln -s b a/dirlink; mkfifo a/fifo`)
	list, err := f.ListDir(ctx(t), &filesystem.ListDirRequest{Path: "~/a", Depth: 3})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.GetEntries() {
		got = append(got, strings.TrimPrefix(e.GetPath(), g.user.Home+"/a/")+":"+strings.TrimPrefix(e.GetType().String(), "FILE_TYPE_")+":"+strings.TrimPrefix(e.GetSymlinkTarget(), g.user.Home))
	}
	want := "b:DIRECTORY: b/file:FILE: broken:UNSPECIFIED:/a/nowhere dirlink:DIRECTORY:/a/b fifo:UNSPECIFIED: link:FILE:/a/b/file"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("list:\n%s\nwant\n%s", s, want)
	}
	moved, err := f.Move(ctx(t), &filesystem.MoveRequest{Source: "a/b/file", Destination: "new/dir/file2"})
	if e := moved.GetEntry(); err != nil || e.GetName() != "file2" || e.GetSize() != 5 || e.GetMode() != 0o644 || time.Since(e.GetModifiedTime().AsTime()) > time.Minute {
		t.Errorf("%v %v", moved, err)
	}
	if _, err := f.Remove(ctx(t), &filesystem.RemoveRequest{Path: "a"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(g.user.Home + "/a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after remove: %v", err)
	}
}

// web is a plain HTTP client, such as curl.
type web struct {
	t *testing.T
	g *running
}

func (c web) do(method, path, kind, body string, header ...string) (int, string, http.Header) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx(c.t), method, "http://guest"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.g.http().Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// What curl and browsers send: plain HTTP/1.1, forms, ranges. The body is compared only where the call succeeds.
func TestPlainHTTP(t *testing.T) {
	g := start(t, func(c *guest.Config) { c.MaxUpload = 1 << 20 })
	c, home := web{t, g}, g.user.Home
	const raw, form, call = "application/octet-stream", "multipart/form-data; boundary=B", "application/json"
	part := func(name, text string) string {
		return "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\nContent-Type: text/plain\r\n\r\n" + text + "\r\n"
	}
	files := part("/deep/.."+home+"/f/one", "ONE") + part("f/two words", "TWO") + "--B--\r\n"
	entry := func(name, path string) string {
		return `{"name":"` + name + `","path":"` + home + "/" + path + `","type":"file"}`
	}
	for _, s := range []struct {
		method, path, kind, body string
		header                   []string
		status                   int
		want                     string
	}{
		{"GET", "/health", "", "", nil, 204, ""},
		{"POST", "/files?path=x/y.txt", raw, "0123456789", nil, 200, "[" + entry("y.txt", "x/y.txt") + "]"},
		{"POST", "/files?path=x/y.txt", raw, "0123456789", []string{"Expect", "100-continue"}, 200, "[" + entry("y.txt", "x/y.txt") + "]"},
		{"GET", "/files?path=x/y.txt", "", "", nil, 200, "0123456789"},
		{"GET", "/files?path=~/x/y.txt", "", "", []string{"Range", "bytes=2-4"}, 206, "234"},
		{"GET", "/files?path=x/y.txt", "", "", []string{"Range", "bytes=-3"}, 206, "789"},
		{"GET", "/files?path=x/y.txt", "", "", []string{"Range", "bytes=8-99"}, 206, "89"},
		{"GET", "/files?path=x/y.txt", "", "", []string{"Range", "bytes=10-"}, 416, ""},
		{"GET", "/files?path=x/y.txt", "", "", []string{"Range", "lines=1-2"}, 200, "0123456789"},
		{"GET", "/files?path=x/y.txt", "", "", []string{"Accept-Encoding", "gzip, identity;q=0"}, 406, ""},
		{"GET", "/files?path=x", "", "", nil, 400, ""},
		{"GET", "/files?path=nope", "", "", nil, 404, ""},
		{"GET", "/files", "", "", nil, 400, ""},
		{"GET", "/files?path=x&username=nobody-such", "", "", nil, 401, ""},
		{"GET", "/nope", "", "", nil, 404, ""},
		{"POST", "/files?path=empty", raw, "", nil, 200, "[" + entry("empty", "empty") + "]"},
		{"GET", "/files?path=empty", "", "", nil, 200, ""},
		{"POST", "/files", form, files, nil, 200, "[" + entry("one", "f/one") + "," + entry("two words", "f/two words") + "]"},
		{"GET", "/files?path=f/two+words", "", "", nil, 200, "TWO"},
		{"POST", "/files?path=f/same", form, files, nil, 400, ""},
		{"POST", "/files", "multipart/form-data", files, nil, 400, ""},
		{"POST", "/files?path=m", raw, "x", []string{"X-Metadata-A", "b"}, 501, ""},
		{"POST", "/files?path=big", raw, strings.Repeat("x", 1<<20+1), nil, 413, ""},
		{"POST", "/files/compose", call, "{}", nil, 501, ""},
		{"POST", "/process.Process/List", call, `{"unknown":[1]}`, nil, 200, `{"processes":[]}`},
		{"POST", "/process.Process/List", call, `{"unknown"`, nil, 400, ""},
		{"POST", "/process.Process/Nope", call, "{}", nil, 501, ""},
		{"POST", "/process.Process/List", "application/proto", "", nil, 415, ""},
		{"POST", "/process.Process/Start", call, "{}", nil, 415, ""},
		{"GET", "/envs", "", "", nil, 200, `{"RUNG_TEST":"1"}`},
	} {
		status, body, header := c.do(s.method, s.path, s.kind, s.body, s.header...)
		if status != s.status || s.status < 300 && body != s.want {
			t.Errorf("%s %s %v: %d %q, want %d %q", s.method, s.path, s.header, status, body, s.status, s.want)
		}
		if s.path == "/files?path=empty" && s.method == "GET" && header.Get("Content-Length") != "0" {
			t.Errorf("an empty file has no length: %v", header)
		}
	}
}
