package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker/source"
)

// longestLine is what a terminal takes in one line; the rest it drops without a word (termios(3), canonical mode).
const longestLine = 4095

// ask reads a value twice from a terminal that does not show it.
func (a *app) ask(f *os.File, name string) (rung.SecretValue, error) {
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "the terminal: %w", err)
	}
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer func() { signal.Stop(signals); close(done) }()
	go func() {
		select {
		case <-signals:
			_ = term.Restore(fd, before) // a terminal that stays mute would be worse than any exit code
			fmt.Fprintln(a.err)
			os.Exit(130)
		case <-done:
		}
	}()
	first, err := a.line(fd, "value of "+name+" (not shown): ")
	if err != nil {
		return nil, err
	}
	again, err := a.line(fd, "once more: ")
	defer clear(again)
	if err == nil && !bytes.Equal(first, again) {
		err = rung.Errorf(rung.KindInvalid, "the two are not the same")
	}
	if err == nil && len(first) >= longestLine {
		err = rung.Errorf(rung.KindInvalid, "a terminal takes at most %d bytes", longestLine-1).WithHint("give the value on standard input or by --from-file")
	}
	if err != nil {
		clear(first)
		return nil, err
	}
	defer clear(first)
	return source.Read(bytes.NewReader(first))
}

func (a *app) line(fd int, prompt string) ([]byte, error) {
	fmt.Fprint(a.err, prompt)
	text, err := term.ReadPassword(fd)
	fmt.Fprintln(a.err)
	if err != nil {
		clear(text)
		return nil, rung.Errorf(rung.KindInvalid, "read the value: %w", err)
	}
	return text, nil
}
