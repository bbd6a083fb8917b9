package clients

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// large is the size of the large download, upload that of the upload.
const (
	large  = 100 << 20
	upload = 20 << 20
)

func connections() func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, connNumber.Add(1))
	}
}

// opened is a policy under which TLS to web.test is opened: each request is judged.
const opened = `egress:
  rules:
    - {host: web.test, methods: [GET, HEAD, POST, PUT], paths: ["/**"], websocket: true}
    - {host: git.test, methods: [GET, HEAD, POST], paths: ["/git/**"]}
    - {host: six.test, methods: [GET], paths: ["/**"]}
    - {host: half.test, methods: [GET], paths: ["/**"]}
`

// TestStandIn is everything that needs a server of its own.
func TestStandIn(t *testing.T) {
	if os.Getenv(inWorld) == "" {
		newPlace(t) // its reasons to skip
		for _, program := range []string{"ip", "git", "curl"} {
			if _, err := exec.LookPath(program); err != nil {
				t.Skip(err)
			}
		}
		enter(t)
		return
	}
	p := newPlace(t)
	p.env = append(p.env, world(t, p.dir)...)
	repository(t, filepath.Join(p.dir, "git"))
	ask, err := builtAsk()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(ask)) })
	p.table(t, append(append(plain(ask), judged(ask)...), refusals()...))
}

// repository makes a bare one with a commit, into which may be pushed.
func repository(t *testing.T, dir string) {
	t.Helper()
	script := `mkdir -p "$0" && cd "$0" && git init -q -b main w && cd w && git config user.email t@example.com && git config user.name t &&
		seq 100000 > numbers && git add . && git commit -qm first && cd .. && git clone -q --bare w x.git && git -C x.git config http.receivepack true`
	cmd := exec.Command("sh", "-c", script, dir)
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

// transfers are rows that hold whether TLS is opened or not.
func transfers(ask string) []row {
	download := strings.Fields(sum(noise(large)))[0]
	sent := strings.Fields(sum(noise(upload)))[0]
	wait := func(row row) row { row.in = []string{ask}; return row }
	return []row{
		{name: "curl h2", script: "curl -sS https://web.test/hello", out: `hello by HTTP/2`},
		{name: "curl h1", script: "curl -sS --http1.1 https://web.test/hello", out: `hello by HTTP/[12]`},
		{name: "curl http", script: "curl -sS http://web.test/hello", out: `hello by HTTP/1.1`},
		{name: "python", script: `python3 -c 'import urllib.request as u; print(u.urlopen("https://web.test/hello").read())'`, out: "hello"},
		{name: "requests", script: `python3 -c 'import ` + vendored + ` as r; print(r.get("https://web.test/hello").text)'`, out: "hello"},
		{name: "node", script: `node -e 'fetch("https://web.test/hello").then(r => r.text()).then(console.log)'`, out: "hello", only: linked()},
		{name: "download", script: fmt.Sprintf("curl -sS 'https://web.test/big?n=%d' | sha256sum", large), out: download},
		{name: "upload", script: fmt.Sprintf("curl -sS 'https://web.test/big?n=%d' > f && curl -sS -T f https://web.test/upload", upload), out: sent},
		wait(row{name: "keep alive", script: "./ask alive https://web.test/conn 5", out: "1 connections"}),
		wait(row{name: "at once", script: "./ask many 'https://web.test/big?n=10000&i=' 60", out: "60 good"}),
		wait(row{name: "events", script: "./ask sse https://web.test/sse", out: "streamed"}),
		wait(row{name: "IPv6 only", script: "./ask many https://six.test/hello? 1", out: "1 good"}),
		// Whatever address the client takes, the gate's own try of the other one is what counts.
		{name: "IPv6 hole", script: "curl -sS -m 10 https://half.test/hello && curl -sS -m 10 -6 https://half.test/hello", out: `(?s)hello.*hello`, only: linked()},
		{name: "git clone", script: "git clone -q https://git.test/git/x.git && wc -l < x/numbers", out: "100000"},
		{name: "git push", script: `git clone -q https://git.test/git/x.git && cd x && git config user.email a@example.com && git config user.name a &&
			date +%s%N > new && git add new && git commit -qm more && git push -q origin HEAD:refs/heads/n$(cat new) && git ls-remote origin`, out: "refs/heads/n"},
	}
}

// linked are the rungs with an interface.
func linked() []string { return []string{"container", "hardened", "gvisor"} }

func plain(ask string) []row {
	rows := transfers(ask)
	for i := range rows {
		for _, host := range []string{"web.test", "git.test", "six.test", "half.test"} {
			rows[i].flags = append(rows[i].flags, "--allow", host)
		}
	}
	slow := []string{"--allow", "slow.test", "--allow", "chain.test", "--allow", "short.test"}
	return append(rows,
		row{name: "AAAA without answer", flags: slow, script: "curl -sS -m 2 https://slow.test/hello", out: "hello"},
		row{name: "CNAME", flags: slow, script: "curl -sS https://chain.test/hello", out: "hello"},
		row{name: "TTL", flags: slow, script: "for i in 1 2 3; do curl -sS https://short.test/hello || exit; sleep 1.2; done", out: `(?s)(hello.*){3}`},
		row{name: "suffix", flags: []string{"--allow", "*.web.test"}, script: "curl -sS https://web.test/hello", code: -1, refused: []string{"web.test"}, hint: "--allow web.test"},
	)
}

// judged are the same transfers, and some more, with TLS opened by the sandbox's own authority.
func judged(ask string) []row {
	rows := transfers(ask)
	for i := range rows {
		rows[i].policy = opened
		rows[i].name += " opened"
	}
	return append(rows,
		row{name: "websocket", policy: opened, in: []string{ask}, script: "./ask ws https://web.test/ws", out: "echo of 200000", only: linked()},
		row{name: "method", policy: opened, script: "curl -sS -X DELETE https://web.test/hello", out: "rung refused: DELETE", refused: []string{"web.test"}},
		row{name: "path", policy: opened, script: "curl -sS https://git.test/hello", out: "rung refused: GET /hello", refused: []string{"git.test"}},
		row{name: "host header", policy: opened, script: "curl -sS -H 'Host: other.test' https://web.test/hello", out: "rung refused|other.test", refused: []string{"web.test"}},
	)
}

func refusals() []row {
	return []row{
		{name: "git refused", script: "git clone -q https://git.test/git/x.git", code: -1, refused: []string{"git.test"}, hint: "--allow git.test"},
		{name: "redirect", flags: []string{"--allow", "web.test"}, script: "curl -sSL https://web.test/away", code: -1, refused: []string{"other.test"}, hint: "--allow other.test"},
		{name: "private", flags: []string{"--allow", "private.test"}, script: "curl -sS -m 20 https://private.test/", code: -1, refused: []string{"private.test"}},
		{name: "port", flags: []string{"--allow", "web.test"}, script: "curl -sS -m 20 https://web.test:8443/", code: -1, refused: []string{"web.test"}, hint: "--allow web.test:8443"},
	}
}
