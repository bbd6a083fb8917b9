// Package source gets secret values from where they are: standard input, a terminal, a variable, a file, or the output of a
// program such as a password manager's. A value is never an argument of a command, since every user of a host can read
// those (proc(5), cmdline).
package source

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/rung-dev/rung"
)

// Read reads a value to its end and drops one newline there, which echo and editors add.
func Read(r io.Reader) (rung.SecretValue, error) {
	data := make([]byte, rung.MaxSecretValue+3) // one allocation: growing would leave copies behind
	n, err := io.ReadFull(r, data)
	if err == nil {
		clear(data)
		return nil, errTooLong
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		clear(data)
		return nil, rung.Errorf(rung.KindInvalid, "read the value: %w", err)
	}
	return checked(data[:n])
}

var errTooLong = rung.Errorf(rung.KindInvalid, "the value is longer than %s", rung.FormatBytes(rung.MaxSecretValue))

// checked trims a value and refuses one that cannot be a secret.
func checked(data []byte) (rung.SecretValue, error) {
	v := bytes.TrimSuffix(data, []byte("\n"))
	if len(v) < len(data) {
		v = bytes.TrimSuffix(v, []byte("\r"))
	}
	var err error
	switch {
	case len(v) == 0:
		err = rung.Errorf(rung.KindInvalid, "the value is empty")
	case len(v) > rung.MaxSecretValue:
		err = errTooLong
	case bytes.IndexByte(v, 0) >= 0:
		err = rung.Errorf(rung.KindInvalid, "the value has a NUL byte, which no header, URL or variable can carry")
	}
	if err != nil {
		clear(data)
		return nil, err
	}
	return v, nil
}

// Env takes the value of a variable.
func Env(name string) (rung.SecretValue, error) {
	text, ok := os.LookupEnv(name)
	if !ok {
		return nil, rung.Errorf(rung.KindInvalid, "the variable given with --from-env is not set")
	}
	if len(text) > rung.MaxSecretValue+2 {
		return nil, errTooLong
	}
	return checked([]byte(text))
}

// File takes the content of a file. The caller named it, so a link is followed; a pipe's writer must close it.
func File(path string) (rung.SecretValue, error) {
	// Non-blocking, since opening a pipe without a writer would hang.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "--from-file: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, rung.Errorf(rung.KindInvalid, "--from-file: not a file")
	}
	return Read(f)
}
