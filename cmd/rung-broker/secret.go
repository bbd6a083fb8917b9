package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker"
	"github.com/rung-dev/rung/internal/broker/source"
)

// secretCmd is `rung secret`.
type secretCmd struct {
	Add   secretAddCmd   `cmd:"" help:"Store a value, read from standard input or as told."`
	List  secretListCmd  `cmd:"" help:"List secrets without their values."`
	Rm    secretRmCmd    `cmd:"" help:"Remove secrets."`
	Check secretCheckCmd `cmd:"" help:"Ask secrets as a run would, and forget the values."`
}

type secretAddCmd struct {
	Name     string   `arg:"" help:"What the secret is called, and the variable in the sandbox with its placeholder."`
	FromEnv  string   `help:"Take the value of this variable now." placeholder:"VAR" xor:"source"`
	FromFile string   `help:"Take the content of this file now." placeholder:"PATH" xor:"source"`
	Exec     string   `help:"Run this program at each lease and take what it prints; no shell, 30 seconds." placeholder:"'CMD ARG…'" xor:"source"`
	ExecEnv  []string `help:"Give the program this variable besides PATH and HOME." placeholder:"VAR" sep:"none"`
	Replace  bool     `help:"Replace a secret of that name."`
}

// misunderstood tells what is wrong with the arguments of secret add without repeating any: one may be a value.
func misunderstood(err error) error {
	if strings.HasPrefix(err.Error(), "unexpected argument") {
		return rung.Errorf(rung.KindInvalid, "a value is never given on a command line: every user of this host can read it there, and the shell keeps it in its history").
			WithHint("rung secret add NAME reads it from the terminal or from standard input; --from-env, --from-file and --exec get it from elsewhere. If it was a real value, renew it")
	}
	return rung.Errorf(rung.KindInvalid, "the arguments are not understood; they are not repeated, since one may be a value").
		WithHint("rung secret add --help")
}

// Run implements runner.
func (c *secretAddCmd) Run(ctx context.Context, a *app) error {
	if err := rung.ValidSecretName(c.Name); err != nil {
		return err
	}
	if len(c.ExecEnv) > 0 && c.Exec == "" {
		return rung.Errorf(rung.KindInvalid, "--exec-env needs --exec")
	}
	s, err := broker.Open(a.state)
	if err != nil {
		return err
	}
	defer s.Close()
	if c.Exec != "" {
		e, err := source.NewExec(c.Exec, c.ExecEnv)
		if err == nil {
			err = s.AddExec(ctx, c.Name, e, c.Replace)
		}
		return c.told(a, err)
	}
	kind, v, err := c.value(a)
	if err != nil {
		return err
	}
	if len(v) < rung.MinSecretSent || len(v) > rung.MaxSecretSent {
		fmt.Fprintf(a.err, "rung: no request can carry a value that is not of %d to %d bytes: it is of use with sigv4 only\n", rung.MinSecretSent, rung.MaxSecretSent)
	}
	return c.told(a, s.Add(ctx, c.Name, kind, v, c.Replace))
}

func (c *secretAddCmd) told(a *app, err error) error {
	if err == nil {
		action := "add"
		if c.Replace {
			action = "update"
		}
		a.tell("secret", action, c.Name, "", nil)
		fmt.Fprintln(a.out, "stored", c.Name)
	}
	return err
}

func (c *secretAddCmd) value(a *app) (kind string, v rung.SecretValue, err error) {
	switch {
	case c.FromEnv != "":
		v, err = source.Env(c.FromEnv)
		return broker.FromEnv, v, err
	case c.FromFile != "":
		v, err = source.File(c.FromFile)
		return broker.FromFile, v, err
	}
	if f, ok := a.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		v, err = a.ask(f, c.Name)
		return broker.FromTerminal, v, err
	}
	v, err = source.Read(a.in)
	return broker.FromStdin, v, err
}

type secretListCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Run implements runner.
func (c *secretListCmd) Run(_ context.Context, a *app) error {
	s, err := broker.Open(a.state)
	if err != nil {
		return err
	}
	defer s.Close()
	list, err := s.List()
	if err != nil {
		return err
	}
	if c.JSON {
		return a.json(list)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSOURCE\tCREATED")
	for _, e := range list {
		if e.From != "" {
			e.Kind += " " + fmt.Sprintf("%q", e.From)
		}
		created := "unknown"
		if !e.Created.IsZero() {
			created = e.Created.Format("2006-01-02 15:04")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Name, e.Kind, created)
	}
	return w.Flush()
}

type secretRmCmd struct {
	Names []string `arg:"" name:"NAME" help:"Secrets."`
}

// Run implements runner.
func (c *secretRmCmd) Run(ctx context.Context, a *app) error {
	s, err := broker.Open(a.state)
	if err != nil {
		return err
	}
	defer s.Close()
	var errs []error
	for _, name := range c.Names {
		if err := s.Remove(ctx, name); err != nil {
			errs = append(errs, err)
			continue
		}
		a.tell("secret", "remove", name, "", nil)
		fmt.Fprintln(a.out, "removed", name)
	}
	return errors.Join(errs...)
}

type secretCheckCmd struct {
	Names []string `arg:"" optional:"" name:"NAME" help:"Secrets; none means all."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// checked is what check tells about one secret.
type checked struct {
	Name  string `json:"name"`
	Kind  string `json:"source,omitempty"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// Run implements runner.
func (c *secretCheckCmd) Run(ctx context.Context, a *app) error {
	s, err := broker.Open(a.state)
	if err != nil {
		return err
	}
	defer s.Close()
	names := c.Names
	if len(names) == 0 {
		list, err := s.List()
		if err != nil {
			return err
		}
		for _, e := range list {
			names = append(names, e.Name)
		}
	}
	results, bad := []checked{}, error(nil)
	for _, name := range names {
		r := checked{Name: name}
		if rung.ValidSecretName(name) != nil {
			r.Name = "(no name)" // not repeated: it may be a value
		}
		e, err := s.Check(ctx, name)
		r.Kind, r.OK = e.Kind, err == nil
		if err != nil {
			r.Error, r.Hint, bad = err.Error(), rung.HintOf(err), errSilent
		}
		results = append(results, r)
	}
	if c.JSON {
		return errors.Join(a.json(results), bad)
	}
	c.print(a.out, results)
	return bad
}

func (*secretCheckCmd) print(w io.Writer, results []checked) {
	for _, r := range results {
		switch {
		case r.OK:
			fmt.Fprintf(w, "%s: ok (%s)\n", r.Name, r.Kind)
		case r.Hint != "":
			fmt.Fprintf(w, "%s: %s; try: %s\n", r.Name, r.Error, r.Hint)
		default:
			fmt.Fprintf(w, "%s: %s\n", r.Name, r.Error)
		}
	}
}
