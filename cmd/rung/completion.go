package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/rung-dev/rung"
)

// completionCmd is `rung completion`.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Examples implements exampler.
func (*completionCmd) Examples() string {
	return `  source <(rung completion bash)
  rung completion fish > ~/.config/fish/completions/rung.fish
`
}

// Run implements runner. The scripts are made from the same grammars that parse, so they cannot fall behind.
func (c *completionCmd) Run(_ context.Context, a *app) (int, error) {
	verbs, err := words()
	if err != nil {
		return 0, err
	}
	switch c.Shell {
	case "fish":
		for _, v := range verbs {
			fmt.Fprintf(a.out, "complete -c rung -n __fish_use_subcommand -a %s -d '%s'\n", v.name, v.help)
			for _, w := range v.words {
				fmt.Fprintf(a.out, "complete -c rung -n '__fish_seen_subcommand_from %s' %s\n", v.name, fishWord(w))
			}
		}
	case "zsh":
		fmt.Fprint(a.out, "autoload -U +X bashcompinit && bashcompinit\n")
		fallthrough
	default:
		bash(a, verbs)
	}
	return 0, nil
}

type verb struct {
	name, help string
	words      []string // flags and subcommands
}

func words() (list []verb, err error) {
	for _, c := range commands() {
		p, err := kong.New(c.grammar(), kong.Name(c.name))
		if err != nil {
			return nil, rung.Errorf(rung.KindInternal, "command line of %s: %w", c.name, err)
		}
		v := verb{name: c.name, help: strings.ReplaceAll(c.help, "'", "")}
		for _, n := range p.Model.Children {
			v.words = append(v.words, n.Name)
		}
		for _, group := range p.Model.AllFlags(true) {
			for _, f := range group {
				v.words = append(v.words, "--"+f.Name)
			}
		}
		list = append(list, v)
	}
	return list, nil
}

func fishWord(w string) string {
	if flag, ok := strings.CutPrefix(w, "--"); ok {
		return "-l " + flag
	}
	return "-a " + w
}

func bash(a *app, verbs []verb) {
	fmt.Fprint(a.out, "_rung() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words\n  if [ \"$COMP_CWORD\" = 1 ]; then words=\"")
	for _, v := range verbs {
		fmt.Fprint(a.out, v.name, " ")
	}
	fmt.Fprint(a.out, "help\"\n  else case ${COMP_WORDS[1]} in\n")
	for _, v := range verbs {
		fmt.Fprintf(a.out, "    %s) words=\"%s\" ;;\n", v.name, strings.Join(v.words, " "))
	}
	fmt.Fprint(a.out, "    esac\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\ncomplete -o filenames -F _rung rung\n")
}
