package holder

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

func messages() []message {
	odd := "two\nlines, \"quoted\", \xff and \u2028 " + strings.Repeat("long", 3000)
	return []message{
		{Op: opDestroy},
		{Ready: &ready{}},
		{Ready: &ready{Millis: 12.375}},
		{Ended: &Ended{}},
		{Ended: &Ended{Reason: rung.OOM, OOM: true}},
		{Ended: &Ended{Reason: rung.Exited, Detail: odd}},
		{Ended: &Ended{Reason: "a reason with spaces", Detail: "x"}},
		{Failed: &rung.Failure{Kind: rung.KindUnavailable, Msg: "no", Hint: "two\nlines"}},
		{Denied: &rung.Denied{Syscall: "ptrace", Count: 3, PID: 7}},
		{Notice: "watch out"},
		{Notice: "both", Ended: &Ended{Reason: rung.Killed}},
	}
}

// What is sent arrives, all of it, one message at a time.
func TestMessages(t *testing.T) {
	var stream []byte
	for _, m := range messages() {
		var err error
		if stream, err = m.appendTo(stream); err != nil {
			t.Fatal(err)
		}
	}
	r := bufio.NewReaderSize(bytes.NewReader(stream), 16)
	for i, want := range messages() {
		got, err := receive(r)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("message %d (sent, received):\n%s", i, d)
		}
	}
	if _, err := receive(r); err == nil {
		t.Error("a message after the last")
	}
}

func TestMessageTooLong(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("j" + strings.Repeat("x", 2*maxLine) + "\n"))
	if _, err := receive(r); err == nil {
		t.Error("a line without end was taken")
	}
}

// FuzzMessage: what can be read can be sent, and is the same then.
func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		line, err := m.appendTo(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.TrimSuffix(line, []byte{'\n'}))
	}
	for _, s := range []string{"", "e", "e  ", "exited 2 \"\"", "r", "rNaN", "j", "j{}", "y"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseMessage(line)
		if err != nil || m.Ready != nil && m.Ready.Millis != m.Ready.Millis {
			return
		}
		again, err := m.appendTo(nil)
		if err != nil {
			return // a number that JSON does not know
		}
		if bytes.Count(again, []byte{'\n'}) != 1 {
			t.Fatalf("%q is not one line", again)
		}
		got, err := parseMessage(bytes.TrimSuffix(again, []byte{'\n'}))
		if err != nil {
			t.Fatal(err)
		}
		third, err := got.appendTo(nil)
		if err != nil || !bytes.Equal(again, third) {
			t.Errorf("%q, then %q (%v)", again, third, err)
		}
	})
}
