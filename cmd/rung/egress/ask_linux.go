package egress

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rung-dev/rung/internal/gate/control"
)

// Asker asks a run's owner at the terminal about single requests. Where the command inside has the terminal as its input,
// the Asker stands between: while a question is open the next line is its answer, and no input of the command's.
type Asker struct {
	out io.Writer
	in  *os.File // the command's input; nil where that is no terminal

	one    sync.Mutex // one question at a time
	mu     sync.Mutex
	answer chan string // of the open question; guarded by mu
}

// NewAsker returns nil when nobody sits there: out, where it asks, is no terminal. A terminal in stdin is replaced.
func NewAsker(out io.Writer, stdin *io.Reader) *Asker {
	if f, ok := out.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	a := &Asker{out: out}
	if f, ok := (*stdin).(*os.File); ok && f != nil && term.IsTerminal(int(f.Fd())) {
		a.in, *stdin = f, a
	}
	return a
}

// Read implements io.Reader for the command.
func (a *Asker) Read(p []byte) (int, error) {
	for {
		n, err := a.in.Read(p)
		a.mu.Lock()
		open := a.answer
		a.answer = nil
		a.mu.Unlock()
		if open == nil {
			return n, err
		}
		open <- string(p[:n]) // there is room for one
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
}

// yes asks one question and waits for its answer as long as the gate does. No answer is no.
func (a *Asker) yes(q control.Approval) bool {
	a.one.Lock()
	defer a.one.Unlock()
	wait := time.NewTimer(control.ApprovalTimeout)
	defer wait.Stop()
	answer := make(chan string, 1)
	ended := a.listen(answer)
	defer ended()
	scheme := map[int]string{80: "http", 443: "https"}[q.Port]
	if scheme == "" {
		scheme = fmt.Sprintf("port %d", q.Port)
	}
	fmt.Fprintf(a.out, "\nrung: the sandbox asks to send to %s (%s, rule %s): %s\nrung: let this one pass? [y/N] ", quiet(q.Host), scheme, quiet(q.Rule), quiet(q.Request))
	select {
	case text := <-answer:
		text = strings.ToLower(strings.TrimSpace(text))
		return text == "y" || text == "yes"
	case <-wait.C:
		fmt.Fprintln(a.out, "\nrung: no answer: refused")
		return false
	}
}

// listen sends the terminal's next line to answer, until ended is called. What was typed before the question is dropped: it
// is no answer to it.
func (a *Asker) listen(answer chan string) (ended func()) {
	if a.in != nil {
		_ = unix.IoctlSetInt(int(a.in.Fd()), unix.TCFLSH, unix.TCIFLUSH) // a terminal that has gone says so by Read
		a.mu.Lock()
		a.answer = answer
		a.mu.Unlock()
		return func() {
			a.mu.Lock()
			a.answer = nil
			a.mu.Unlock()
		}
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		answer <- "" // nobody to ask after all
		return func() {}
	}
	go func() {
		defer tty.Close()
		_ = tty.SetReadDeadline(time.Now().Add(control.ApprovalTimeout)) // Close ends it too
		line := make([]byte, 256)
		n, _ := tty.Read(line) // nothing is no
		answer <- string(line[:n])
	}()
	return func() { tty.Close() }
}

// quiet makes what the sandbox chose fit to be shown in a question.
func quiet(s string) string {
	q := fmt.Sprintf("%.300q", s)
	return strings.TrimSuffix(strings.TrimPrefix(q, `"`), `"`)
}

// ask settles one request.
func (n *Network) ask(q control.Approval) {
	yes := n.asker != nil && n.asker.yes(q)
	_ = n.conn.Send(control.Request{Answer: &control.Answer{Number: q.Number, Yes: yes}}) // a gate that has gone needs none
}
