package registries

import (
	"context"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rung-dev/rung"
)

// npmrcInside is the user's configuration of npm in the sandbox, where scopes have registries of their own.
const npmrcInside = "/home/user/.rung/npmrc"

// npm reads npm's settings in its own order (docs.npmjs.com/cli/configuring-npm/npmrc): environment, the user's file, the
// global file, npm's own; without the project's.
func (b *builder) npm(ctx context.Context) error {
	settings, err := b.npmSettings()
	if err != nil {
		return err
	}
	registry := settings["registry"]
	if registry == "" {
		if registry, err = b.npmDefault(ctx); err != nil {
			return err
		}
	}
	e, err := b.endpoint(npmKind, registry)
	if err != nil {
		return err
	}
	b.add(npmKind, e)
	// The audit would send the list of what is installed, which the rule refuses; the others only add requests.
	b.found.Env = map[string]string{
		"NPM_CONFIG_REGISTRY":        e.url() + "/",
		"NPM_CONFIG_AUDIT":           "false",
		"NPM_CONFIG_FUND":            "false",
		"NPM_CONFIG_UPDATE_NOTIFIER": "false",
	}
	var scopes []string
	for key := range settings {
		if scope, ok := strings.CutSuffix(key, ":registry"); ok && strings.HasPrefix(scope, "@") {
			scopes = append(scopes, key)
		}
	}
	slices.Sort(scopes)
	var file strings.Builder
	for _, key := range scopes {
		e, err := b.endpoint(npmKind, settings[key])
		if err != nil {
			return err
		}
		b.add(npmKind, e)
		file.WriteString(key + "=" + e.url() + "/\n")
	}
	if file.Len() > 0 {
		b.found.Files[npmrcInside] = []byte(file.String())
		b.found.Env["NPM_CONFIG_USERCONFIG"] = npmrcInside
	}
	return nil
}

// npmDefault asks npm, which knows its own default.
func (b *builder) npmDefault(ctx context.Context) (string, error) {
	if npm := b.host.program("npm"); npm != "" {
		if out, err := b.host.run(ctx, npm, "config", "get", "registry"); err == nil {
			return strings.TrimSpace(string(out)), nil
		}
	}
	return "", noClient(npmKind, "npm", "NPM_CONFIG_REGISTRY")
}

// npmSettings merges the files, weakest first, and the environment.
func (b *builder) npmSettings() (map[string]string, error) {
	settings := map[string]string{}
	user := b.npmEnv("userconfig")
	if user == "" && b.host.env("HOME") != "" {
		user = path.Join(b.host.env("HOME"), ".npmrc")
	}
	own := map[string]string{}
	if err := b.npmrc(user, own); err != nil {
		return nil, err
	}
	for _, file := range []string{b.npmBuiltin(), b.npmGlobal(own["prefix"])} {
		if err := b.npmrc(file, settings); err != nil {
			return nil, err
		}
	}
	maps.Copy(settings, own)
	if registry := b.npmEnv("registry"); registry != "" {
		settings["registry"] = registry
	}
	return settings, nil
}

func (b *builder) npmEnv(name string) string {
	if v := b.host.env("NPM_CONFIG_" + strings.ToUpper(name)); v != "" {
		return v
	}
	return b.host.env("npm_config_" + name)
}

// npmGlobal is PREFIX/etc/npmrc; the prefix is by default where node is.
func (b *builder) npmGlobal(prefix string) string {
	if file := b.npmEnv("globalconfig"); file != "" {
		return file
	}
	if p := b.npmEnv("prefix"); p != "" {
		prefix = p
	}
	if prefix == "" {
		prefix = b.host.env("PREFIX")
	}
	if node := b.host.program("node"); prefix == "" && node != "" {
		prefix = path.Dir(path.Dir(node))
	}
	if prefix == "" {
		return ""
	}
	return path.Join(prefix, "etc/npmrc")
}

// npmBuiltin is the file beside npm's own programs, which distributions use.
func (b *builder) npmBuiltin() string {
	npm := b.host.program("npm") // …/npm/bin/npm-cli.js
	if npm == "" || path.Base(path.Dir(npm)) != "bin" {
		return ""
	}
	return path.Join(path.Dir(path.Dir(npm)), "npmrc")
}

// npmrc reads one file into settings: an INI file without sections whose values may name environment variables.
func (b *builder) npmrc(file string, settings map[string]string) error {
	if file == "" {
		return nil
	}
	text, err := b.host.read(file)
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "npm's configuration: %w", err)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' || line[0] == '#' || line[0] == '[' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"'`)
		if name := key[strings.LastIndexByte(key, ':')+1:]; strings.HasPrefix(name, "_") {
			b.note("npm has a token or password in " + file + ": it stays outside; give it with --secret NAME@HOST")
			continue
		}
		if key == "registry" || key == "prefix" || strings.HasSuffix(key, ":registry") {
			settings[key] = b.expand(value)
		}
	}
	return nil
}

var npmVariable = regexp.MustCompile(`\$\{[^}]*\}`)

// expand replaces ${NAME}, as npm does; a name without a value stays as it is, and the URL is then refused.
func (b *builder) expand(value string) string {
	return npmVariable.ReplaceAllStringFunc(value, func(name string) string {
		if v := b.host.env(strings.TrimSuffix(name[2:len(name)-1], "?")); v != "" {
			return v
		}
		return name
	})
}
