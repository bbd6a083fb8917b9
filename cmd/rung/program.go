package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/lang"
	"github.com/rung-dev/rung/internal/session"
)

// program is what a run starts, and what must be copied in for it.
type program struct {
	command []string
	env     []string
	inputs  []session.Input
	stdin   io.Reader
}

// maxProgram bounds a program's source.
const maxProgram = 16 << 20

// program finds out what to run: a command after --, a program file, --code, or source on standard input.
func (c *runCmd) program(a *app) (program, error) {
	p := program{stdin: stdinOf(a.in)}
	if c.Code == nil && c.Lang == "" && (a.dashed(c.Args) || !c.isFile()) {
		p.command = trimDashes(c.Args)
		if len(p.command) == 0 {
			return p, errNoProgram
		}
		return p, nil
	}
	args := trimDashes(c.Args)
	l, name, source, err := c.source(a, &args, &p)
	if err != nil {
		return p, err
	}
	if l.Strip {
		if source, err = strip(source, name); err != nil {
			return p, err
		}
	}
	inside := path.Join("/work", l.FileName(name))
	if c.Rung == string(rung.None) {
		inside = l.FileName(name) // without a wall, /work is the host's
	}
	p.inputs = []session.Input{{Inside: inside, Data: source, Mode: 0o644}}
	p.command = append(append(append([]string{}, l.Interpreter...), inside), args...)
	return p, nil
}

// isFile reports whether the first argument is a program file by its name.
func (c *runCmd) isFile() bool {
	if len(c.Args) == 0 {
		return false
	}
	_, ok := lang.OfFile(c.Args[0])
	return ok
}

// source returns the program's language, host name and text, and takes FILE off the arguments.
func (c *runCmd) source(a *app, args *[]string, p *program) (l lang.Language, name string, source []byte, err error) {
	if c.Lang != "" {
		if l, err = lang.Named(c.Lang); err != nil {
			return l, "", nil, err
		}
	}
	if c.Code != nil {
		if len(*args) > 0 && !a.dashed(c.Args) {
			return l, "", nil, rung.Errorf(rung.KindInvalid, "both --code and FILE (%s) are given", oneLine((*args)[0])).
				WithHint("give one; arguments for --code go after --")
		}
		if c.Lang == "" {
			return l, "", nil, rung.Errorf(rung.KindInvalid, "--code needs --lang")
		}
		return l, "", []byte(*c.Code), nil
	}
	if len(*args) == 0 || (*args)[0] == "-" {
		if *args, err = sourceArgs(*args); err != nil {
			return l, "", nil, err
		}
		source, err = readStdin(a)
		p.stdin = nil
		return l, "", source, err
	}
	name, *args = (*args)[0], (*args)[1:]
	if c.Lang == "" {
		l, _ = lang.OfFile(name)
	}
	source, err = readProgram(name)
	return l, name, source, err
}

// sourceArgs returns the arguments of a program that comes on standard input. A file name beside - is a slip more often
// than an argument, so arguments go after --.
func sourceArgs(args []string) ([]string, error) {
	if len(args) < 2 {
		return nil, nil
	}
	if args[1] == "--" {
		return args[2:], nil
	}
	if _, err := os.Stat(args[1]); err == nil {
		return nil, rung.Errorf(rung.KindInvalid, "both standard input (-) and FILE (%s) are given", oneLine(args[1])).
			WithHint("give one; arguments for a program on standard input go after --")
	}
	return args[1:], nil
}

func readStdin(a *app) ([]byte, error) {
	if f, ok := a.in.(*os.File); ok && isTerminal(f) {
		return nil, errNoProgram
	}
	return readBounded(a.in, "standard input")
}

func readProgram(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "program: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.IsDir() {
		return nil, rung.Errorf(rung.KindInvalid, "program %s: not a file", oneLine(name))
	}
	return readBounded(f, name)
}

func readBounded(r io.Reader, name string) ([]byte, error) {
	source, err := io.ReadAll(io.LimitReader(r, maxProgram+1))
	if err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "read the program from %s: %w", oneLine(name), err)
	}
	if len(source) > maxProgram {
		return nil, rung.Errorf(rung.KindInvalid, "the program from %s is longer than %s", oneLine(name), rung.FormatBytes(maxProgram))
	}
	return source, nil
}

// strip turns TypeScript into JavaScript with the helper program.
func strip(source []byte, name string) ([]byte, error) {
	helper := findProgram("rung-strip")
	if helper == "" {
		return nil, rung.Errorf(rung.KindUnavailable, "rung-strip, which strips TypeScript's types, is not found").
			WithHint("put it beside rung or in PATH; `make` builds it into bin/")
	}
	if name == "" {
		name = "main.ts"
	}
	ctx, cancel := context.WithTimeout(context.Background(), stripTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, helper, name)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(source), &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "typescript: %s", strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// trimDashes drops the -- that separates a command.
func trimDashes(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}
