package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/gate/rule"
	"github.com/rung-dev/rung/internal/registries"
)

// discoverTimeout bounds asking the clients of all kinds.
const discoverTimeout = 25 * time.Second

// wanted is one kind of registry, with what all its mentions on the command line come to.
type wanted struct {
	kind     string
	packages []string // nil for all
	minAge   time.Duration
}

// printRegistries tells rung what the registries of this host's clients come to. It runs as the caller.
func printRegistries(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), discoverTimeout)
	defer cancel()
	all := control.Registries{Env: map[string]string{}, Files: map[string][]byte{}}
	list, err := want(args)
	for _, w := range list {
		if err == nil {
			err = discover(ctx, w, &all)
		}
	}
	if err != nil {
		all = control.Registries{Failed: rung.Fail(err)}
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

// want reads [--min-age AGE] KIND[:PACKAGE,…]…. A kind that is named twice is one registry with the packages of both.
func want(args []string) (list []wanted, err error) {
	var minAge time.Duration
	if len(args) > 1 && args[0] == "--min-age" {
		if minAge, err = rule.ParseAge(args[1]); err != nil {
			return nil, err
		}
		args = args[2:]
	}
	for _, text := range args {
		kind, packages, err := registries.Parse(text)
		if err != nil {
			return nil, err
		}
		if minAge > 0 && kind == "debian" {
			return nil, rung.Errorf(rung.KindInvalid, "a Debian archive does not tell when a version was published, so no minimum age holds there").
				WithHint("--min-age goes with npm, pypi and go")
		}
		i := slices.IndexFunc(list, func(w wanted) bool { return w.kind == kind })
		switch {
		case i < 0:
			list = append(list, wanted{kind: kind, packages: packages, minAge: minAge})
		case packages == nil || list[i].packages == nil:
			list[i].packages = nil
		default:
			list[i].packages = append(list[i].packages, packages...)
		}
	}
	return list, nil
}

func discover(ctx context.Context, w wanted, all *control.Registries) error {
	found, err := registries.Discover(ctx, w.kind, os.Getenv)
	if err != nil {
		return err
	}
	for _, r := range found.Rules {
		r.Registry.Packages, r.Registry.MinAge = w.packages, w.minAge
		all.Rules = append(all.Rules, r)
	}
	maps.Copy(all.Env, found.Env)
	maps.Copy(all.Env, registries.AgeEnv(w.kind, w.minAge, time.Now()))
	maps.Copy(all.Files, found.Files)
	all.Notes = append(all.Notes, found.Notes...)
	return nil
}
