package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rung-dev/rung"
)

// newest returns the path of the newest segment.
func newest(t *testing.T, l *Log) string {
	t.Helper()
	list, err := l.segments()
	if err != nil || len(list) == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	return filepath.Join(l.root.Name(), segmentName(list[len(list)-1]))
}

func change(t *testing.T, name string, fn func([]byte) []byte) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, fn(raw), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func half(b []byte) []byte { return append(b, `{"seq":99,"time":"2026`...) }

var recoveries = []struct {
	name  string
	spoil func(t *testing.T, l *Log)
	cause string // of the torn line, "" for none
	whole bool   // verify is content before and after
}{
	{"nothing", func(*testing.T, *Log) {}, "", true},
	{"half a line at the end", func(t *testing.T, l *Log) { change(t, newest(t, l), half) }, CauseCut, true},
	{"a longer half", func(t *testing.T, l *Log) {
		change(t, newest(t, l), func(b []byte) []byte { return append(half(b), bytes.Repeat([]byte{0}, 3*MaxLine)...) })
	}, CauseCut, true},
	{"a line that the head does not know yet", func(t *testing.T, l *Log) {
		name := filepath.Join(l.root.Name(), headFile)
		old, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, l, 1)
		change(t, name, func([]byte) []byte { return old })
	}, "", true},
	{"no head", func(t *testing.T, l *Log) {
		if err := os.Remove(filepath.Join(l.root.Name(), headFile)); err != nil {
			t.Fatal(err)
		}
	}, "", true},
	{"a torn head", func(t *testing.T, l *Log) {
		change(t, filepath.Join(l.root.Name(), headFile), func(b []byte) []byte { return b[:100] })
	}, "", true},
	{"an empty new segment", func(t *testing.T, l *Log) {
		if err := os.WriteFile(filepath.Join(l.root.Name(), segmentName(7)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(l.root.Name(), headFile)); err != nil {
			t.Fatal(err)
		}
	}, "", true},
	{"half a line in a new segment", func(t *testing.T, l *Log) {
		if err := os.WriteFile(filepath.Join(l.root.Name(), segmentName(7)), half(nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(l.root.Name(), headFile)); err != nil {
			t.Fatal(err)
		}
	}, CauseCut, true},
	{"garbage at the end", func(t *testing.T, l *Log) {
		change(t, newest(t, l), func(b []byte) []byte { return append(b, "garbage\n"...) })
	}, CauseGarbage, false},
	{"the last line removed", func(t *testing.T, l *Log) {
		change(t, newest(t, l), func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] })
	}, CauseLost, false},
	{"the last line edited", func(t *testing.T, l *Log) {
		change(t, newest(t, l), func(b []byte) []byte { return bytes.Replace(b, []byte(`"n":4`), []byte(`"n":9`), 1) })
	}, CauseChanged, false},
	{"the last line edited and another appended", func(t *testing.T, l *Log) {
		change(t, newest(t, l), func(b []byte) []byte {
			b = bytes.Replace(b, []byte(`"n":4`), []byte(`"n":9`), 1)
			last := b[bytes.LastIndexByte(b[:len(b)-1], '\n')+1 : len(b)-1]
			e := Entry{Kind: "test"}
			return append(appendLine(b, 7, l.time(), &e, hashOf(last), false), '\n')
		})
	}, CauseChanged, false},
	{"all segments removed", func(t *testing.T, l *Log) {
		if err := os.Remove(newest(t, l)); err != nil {
			t.Fatal(err)
		}
	}, CauseLost, false},
}

// Whatever a crash or a hand left behind, the next append goes on with one chain and says what it met.
func TestRecovery(t *testing.T) {
	for _, c := range recoveries {
		t.Run(c.name, func(t *testing.T) {
			l := open(t)
			l.sync = unsynced
			fill(t, l, 5)
			c.spoil(t, l)
			if r := verified(t, l); r.OK != c.whole && c.name != "half a line in a new segment" {
				t.Errorf("before: %+v", r)
			}
			fill(t, l, 2)
			r := verified(t, l)
			if r.OK != c.whole {
				t.Errorf("after: %+v", r)
			}
			var torn []Line
			for _, line := range lines(t, l) {
				if line.Kind == KindTorn {
					torn = append(torn, line)
				}
			}
			switch {
			case c.cause == "" && len(torn) > 0, c.cause != "" && (len(torn) != 1 || torn[0].Fields["cause"] != c.cause):
				t.Errorf("torn: %+v", torn)
			case c.cause == CauseCut && len(r.Notes) != 1:
				t.Errorf("notes: %v", r.Notes)
			}
			fill(t, l, 1)
			if again := verified(t, l); again.OK != c.whole || again.Last != r.Last+1 {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// child runs a test of this binary in a process of its own, which a limit or a namespace is to hit.
func child(t *testing.T, attr *syscall.SysProcAttr, env ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), env...), attr
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// filled appends until it fails for want of room, again and again, and checks that the chain is whole each time.
func filled(t *testing.T, l *Log, more func(n int) error) {
	t.Helper()
	failures := 0
	for n := range 3 {
		for failures <= n {
			e := Entry{Kind: "test", Reason: strings.Repeat("y", 700)}
			err := l.Append(e, e, e)
			if err == nil {
				continue
			}
			if rung.KindOf(err) != rung.KindExhausted || rung.HintOf(err) == "" {
				t.Fatal(err)
			}
			failures++
		}
		if r := mustBeWhole(t, l); len(r.Notes) != 0 {
			t.Errorf("something half-written stayed: %v", r.Notes)
		}
		if err := more(n); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, l, 1)
	mustBeWhole(t, l)
}

// A limit on the size of files cuts writes in two, as a full disk does.
func TestCutWrites(t *testing.T) {
	if dir := os.Getenv("LOG_CUT"); dir != "" {
		l := openAt(t, dir)
		size := uint64(10_001)
		limit := func(int) error {
			size += 5_000
			return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: 1 << 30})
		}
		if err := limit(0); err != nil {
			t.Fatal(err)
		}
		filled(t, l, limit)
		return
	}
	child(t, nil, "LOG_CUT="+t.TempDir())
}

func TestFullDisk(t *testing.T) {
	if dir := os.Getenv("LOG_FULL"); dir != "" {
		if err := errors.Join(
			syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
			syscall.Mount("rung-test", dir, "tmpfs", 0, "size=64k")); err != nil {
			t.Fatal(err)
		}
		l := openAt(t, dir)
		filled(t, l, func(n int) error {
			return syscall.Mount("rung-test", dir, "tmpfs", syscall.MS_REMOUNT, []string{"size=96k", "size=128k", "size=1m"}[n])
		})
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root mounts a small file system")
	}
	child(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "LOG_FULL="+t.TempDir())
}

// What is put in the place of the log's files is not written through.
func TestLinksAreNotFollowed(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for _, name := range []string{lockFile, headFile, segmentName(1)} {
		for kind, put := range map[string]func(string) error{
			"link": func(p string) error { return os.Symlink(outside, p) },
			"FIFO": func(p string) error { return syscall.Mkfifo(p, 0o600) },
		} {
			l := open(t)
			if err := put(filepath.Join(l.root.Name(), name)); err != nil {
				t.Fatal(err)
			}
			if err := l.Append(Entry{Kind: "x"}); err == nil {
				t.Errorf("%s for %s: written", kind, name)
			}
		}
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a link was followed")
	}
}

// The torn line has a sample of what it replaced, made harmless.
func TestTornSample(t *testing.T) {
	l := open(t)
	fill(t, l, 1)
	change(t, newest(t, l), func(b []byte) []byte { return append(b, "{\"seq\":3,\x1b\x00\xff"...) })
	fill(t, l, 1)
	torn := lines(t, l)
	i := len(torn) - 2
	if f := torn[i].Fields; torn[i].Kind != KindTorn || f["bytes"] != json.Number("12") || f["sample"] != "{\"seq\":3,\x1b\x00\ufffd" {
		t.Errorf("%+v", torn[i])
	}
}

// Appenders that are killed at any moment leave a log that the next ones go on with, and nothing that looks like tampering.
func TestKilledAppenders(t *testing.T) {
	if dir := os.Getenv("LOG_KILLED"); dir != "" {
		l := openAt(t, dir)
		l.segment, l.sync = 64<<10, unsynced
		for { // until killed
			if err := l.Append(Entry{Kind: "test", Reason: strings.Repeat("z", 2000)}, Entry{Kind: "test"}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stdout.Write([]byte{'.'}); err != nil {
				t.Fatal(err)
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := open(t)
	for round := range 8 {
		var cmds []*exec.Cmd
		for n := range 3 {
			cmd := exec.Command(self, "-test.run=^TestKilledAppenders$")
			cmd.Env = append(os.Environ(), "LOG_KILLED="+l.root.Name())
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err == nil {
				_, err = io.ReadFull(out, make([]byte, 10+7*round+n)) // so many appends
			}
			if err != nil {
				t.Fatal(err)
			}
			cmds = append(cmds, cmd)
		}
		for _, cmd := range cmds {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		for _, cmd := range cmds {
			_ = cmd.Wait() // it was killed
		}
		mustBeWhole(t, l)
	}
	fill(t, l, 1)
	mustBeWhole(t, l)
}
