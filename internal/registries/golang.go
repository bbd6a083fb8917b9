package registries

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	"github.com/rung-dev/rung"
)

func goNames() []string { return []string{"GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB"} }

// golang reads GOPROXY and GOSUMDB. Of the proxies only those on the network are passed on: "direct" means git and other
// tools against any host there is, which is no registry.
func (b *builder) golang(ctx context.Context) error {
	env, err := b.goEnv(ctx)
	if err != nil {
		return err
	}
	proxies, err := b.goProxies(env["GOPROXY"])
	if err != nil {
		return err
	}
	if err := b.goSum(env["GOSUMDB"]); err != nil {
		return err
	}
	b.found.Env["GOPROXY"] = proxies
	if env["GOSUMDB"] != "" {
		b.found.Env["GOSUMDB"] = env["GOSUMDB"]
	} else {
		b.note("which checksum database go uses is not known without a go command on this host; the proxy must offer it")
	}
	// A private module would be fetched directly; through the proxy it is at least answered.
	b.found.Env["GONOPROXY"] = "none"
	if private := env["GONOSUMDB"]; private != "" {
		b.found.Env["GONOSUMDB"] = private
	}
	if env["GOPRIVATE"] != "" || env["GONOPROXY"] != "" {
		b.note("go on this host fetches modules of its own (GOPRIVATE, GONOPROXY) directly; inside they come from the proxy or not at all")
	}
	return nil
}

// goEnv asks the go command, which knows its files; without one the environment and the user's file say it.
func (b *builder) goEnv(ctx context.Context) (map[string]string, error) {
	env := map[string]string{}
	if b.host.program("go") != "" && b.host.run != nil {
		out, err := b.host.run(ctx, b.host.program("go"), append([]string{"env", "-json"}, goNames()...)...)
		if err == nil && json.Unmarshal(out, &env) == nil {
			return env, nil
		}
		b.note("go env failed on this host; its environment and its user's file were read instead")
	}
	file := b.host.env("GOENV")
	if file == "" && b.configHome() != "" {
		file = path.Join(b.configHome(), "go/env")
	}
	if file != "" && file != "off" {
		text, err := b.host.read(file)
		if err != nil {
			return nil, rung.Errorf(rung.KindUnavailable, "go's configuration: %w", err)
		}
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
				env[key] = value
			}
		}
	}
	for _, name := range goNames() {
		if v := b.host.env(name); v != "" {
			env[name] = v
		}
	}
	if env["GOPROXY"] == "" {
		return nil, noClient(goKind, "go", "GOPROXY")
	}
	if env["GONOSUMDB"] == "" {
		env["GONOSUMDB"] = env["GOPRIVATE"]
	}
	return env, nil
}

func (b *builder) configHome() string {
	if dir := b.host.env("XDG_CONFIG_HOME"); dir != "" {
		return dir
	}
	if home := b.host.env("HOME"); home != "" {
		return path.Join(home, ".config")
	}
	return ""
}

// goProxies makes rules of the list and returns it without what is not passed on. A comma goes on after "not found", a bar
// after any error.
func (b *builder) goProxies(list string) (string, error) {
	var kept strings.Builder
	for list != "" {
		at := strings.IndexAny(list, ",|")
		entry, separator := list, ""
		if at >= 0 {
			entry, separator, list = list[:at], list[at:at+1], list[at+1:]
		} else {
			list = ""
		}
		switch entry = strings.TrimSpace(entry); {
		case entry == "", entry == "off":
			if entry == "off" {
				list = ""
			}
			continue
		case entry == "direct", strings.HasPrefix(entry, "file:"):
			b.note("GOPROXY names " + strings.TrimSuffix(entry[:min(len(entry), 6)], ":") + " on this host; inside, modules come from the named proxies only")
			continue
		}
		if !strings.Contains(entry, "://") {
			entry = "https://" + entry // as the go command does
		}
		e, err := b.endpoint(goKind, entry)
		if err != nil {
			return "", err
		}
		b.add(goKind, e)
		if kept.Len() > 0 && !strings.HasSuffix(kept.String(), ",") && !strings.HasSuffix(kept.String(), "|") {
			kept.WriteByte(',')
		}
		kept.WriteString(e.url() + separator)
	}
	text := strings.TrimRight(kept.String(), ",|")
	if text == "" {
		return "", rung.Errorf(rung.KindUnavailable, "go on this host uses no module proxy (GOPROXY is off, direct or local)").
			WithHint("set GOPROXY to a proxy for this run; fetching directly needs --allow for each host of source code")
	}
	return text, nil
}

// goSum makes a rule for the checksum database: off, NAME, NAME+KEY, each perhaps with a URL. The go command asks the proxy
// for it first and the database's own host only if the proxy has none.
func (b *builder) goSum(text string) error {
	fields := strings.Fields(text)
	if len(fields) == 0 || text == "off" {
		return nil
	}
	where, _, _ := strings.Cut(fields[0], "+")
	where = "https://" + where
	if len(fields) > 1 {
		where = fields[1]
	}
	e, err := b.endpoint(goKind, where)
	if err == nil {
		b.add(goKind, e)
	}
	return err
}
