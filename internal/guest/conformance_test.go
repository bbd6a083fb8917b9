//go:build linux

package guest_test

import (
	"bytes"
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
	if _, err := os.Lstat(g.user.Home + "/a"); !os.IsNotExist(err) {
		t.Errorf("after remove: %v", err)
	}
}

// What curl and browsers send: plain HTTP/1.1, keep-alive, Expect, forms, ranges.
func TestPlainHTTP(t *testing.T) {
	g := start(t, func(c *guest.Config) { c.MaxUpload = 1 << 20 })
	c := g.http()
	do := func(method, path, kind string, body io.Reader, header ...string) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx(t), method, "http://guest"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		if kind != "" {
			req.Header.Set("Content-Type", kind)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b), resp.Header
	}
	check := func(name string, status int, body string, wantStatus int, wantBody string) {
		t.Helper()
		if status != wantStatus || wantStatus < 300 && body != wantBody {
			t.Errorf("%s: %d %q, want %d %q", name, status, body, wantStatus, wantBody)
		}
	}
	const raw = "application/octet-stream"
	s, b, _ := do("GET", "/health", "", nil)
	check("health", s, b, 204, "")
	s, b, _ = do("POST", "/files?path=x/y.txt", raw, strings.NewReader("0123456789"))
	check("upload", s, b, 200, `[{"name":"y.txt","path":"`+g.user.Home+`/x/y.txt","type":"file"}]`)
	s, b, _ = do("GET", "/files?path=x/y.txt", "", nil)
	check("download", s, b, 200, "0123456789")
	s, b, h := do("GET", "/files?path=x/y.txt", "", nil, "Range", "bytes=2-4")
	check("range", s, b, 206, "234")
	if h.Get("Content-Range") != "bytes 2-4/10" {
		t.Errorf("range: %v", h)
	}
	s, b, _ = do("GET", "/files?path=x/y.txt", "", nil, "Range", "bytes=-3")
	check("suffix range", s, b, 206, "789")
	s, _, _ = do("GET", "/files?path=x/y.txt", "", nil, "Range", "bytes=10-")
	check("no range", s, "", 416, "")
	s, _, _ = do("GET", "/files?path=x", "", nil)
	check("directory", s, "", 400, "")
	s, _, _ = do("GET", "/files?path=nope", "", nil)
	check("missing", s, "", 404, "")
	s, _, _ = do("GET", "/files?path=x&username=nobody-such", "", nil)
	check("user", s, "", 401, "")
	s, _, _ = do("GET", "/nope", "", nil)
	check("route", s, "", 404, "")
	s, b, _ = do("POST", "/files?path=empty", raw, nil)
	check("empty upload", s, b, 200, `[{"name":"empty","path":"`+g.user.Home+`/empty","type":"file"}]`)
	s, b, h = do("GET", "/files?path=empty", "", nil)
	check("empty", s, b, 200, "")
	if h.Get("Content-Length") != "0" {
		t.Errorf("empty: %v", h)
	}
	form := "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/deep/../" + strings.TrimPrefix(g.user.Home, "/") + "/f/one\"\r\n\r\nONE\r\n" +
		"--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f/two words\"\r\nContent-Type: text/plain\r\n\r\nTWO\r\n--B--\r\n"
	s, b, _ = do("POST", "/files", "multipart/form-data; boundary=B", strings.NewReader(form))
	check("form", s, b, 200, `[{"name":"one","path":"`+g.user.Home+`/f/one","type":"file"},{"name":"two words","path":"`+g.user.Home+`/f/two words","type":"file"}]`)
	s, b, _ = do("GET", "/files?path=f/two+words", "", nil)
	check("form file", s, b, 200, "TWO")
	s, _, _ = do("POST", "/files?path=f/same", "multipart/form-data; boundary=B", strings.NewReader(form))
	check("twice", s, "", 400, "")
	s, _, _ = do("POST", "/files?path=big", raw, bytes.NewReader(make([]byte, 1<<20+1)))
	check("too large", s, "", 413, "")
	s, b, _ = do("POST", "/process.Process/List", "application/json", strings.NewReader(`{"unknown":[1]}`))
	check("list", s, b, 200, `{"processes":[]}`)
	s, _, _ = do("POST", "/process.Process/Nope", "application/json", strings.NewReader(`{}`))
	check("no method", s, "", 501, "")
	s, _, _ = do("POST", "/process.Process/List", "application/proto", nil)
	check("proto", s, "", 415, "")
	s, b, _ = do("GET", "/envs", "", nil)
	check("envs", s, b, 200, `{"RUNG_TEST":"1"}`)
}
