package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"time"

	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/registries"
)

// discoverTimeout bounds asking the clients of all kinds.
const discoverTimeout = 25 * time.Second

// printRegistries tells rung what the registries of this host's clients come to. It runs as the caller.
func printRegistries(list []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), discoverTimeout)
	defer cancel()
	all := control.Registries{Env: map[string]string{}, Files: map[string][]byte{}}
	for _, text := range list {
		if err := discover(ctx, text, &all); err != nil {
			all = control.Registries{Failed: control.Fail(err)}
			break
		}
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func discover(ctx context.Context, text string, all *control.Registries) error {
	kind, packages, err := registries.Parse(text)
	if err != nil {
		return err
	}
	found, err := registries.Discover(ctx, kind, os.Getenv)
	if err != nil {
		return err
	}
	for _, r := range found.Rules {
		r.Registry.Packages = packages
		all.Rules = append(all.Rules, r)
	}
	maps.Copy(all.Env, found.Env)
	maps.Copy(all.Files, found.Files)
	all.Notes = append(all.Notes, found.Notes...)
	return nil
}
