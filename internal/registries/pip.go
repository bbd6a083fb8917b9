package registries

import (
	"context"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rung-dev/rung"
)

// maxFileHosts is how many hosts of files one index may name.
const maxFileHosts = 4

// pip reads pip's settings in its own order (pip.pypa.io/en/stable/topics/configuration): global, user, site, PIP_CONFIG_FILE,
// environment; the later one wins.
//
// An index links to its files, and the links may lead to another host. They are read here, on the host, from the index that
// its user's pip installs from anyway, before the sandbox exists: a rule that grew while untrusted code runs would be a hole.
func (b *builder) pip(ctx context.Context) error {
	settings, err := b.pipSettings()
	if err != nil {
		return err
	}
	if on := settings["no-index"]; on != "" && !slices.Contains([]string{"0", "false", "no", "off"}, strings.ToLower(on)) {
		return rung.Errorf(rung.KindUnavailable, "pip on this host is configured to use no index").WithHint("unset no-index (PIP_NO_INDEX)")
	}
	if settings["find-links"] != "" {
		b.note("pip on this host also looks for packages in find-links, which the sandbox does not see")
	}
	index := settings["index-url"]
	if index == "" {
		if index, err = b.pipDefault(ctx); err != nil {
			return err
		}
	}
	main, err := b.pipIndex(ctx, index)
	if err != nil {
		return err
	}
	var extra []string
	for text := range strings.FieldsSeq(settings["extra-index-url"]) {
		e, err := b.pipIndex(ctx, text)
		if err != nil {
			return err
		}
		extra = append(extra, e.url())
	}
	b.found.Env["PIP_INDEX_URL"] = main.url()
	if len(extra) > 0 {
		b.found.Env["PIP_EXTRA_INDEX_URL"] = strings.Join(extra, " ")
	}
	b.found.Env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
	b.found.Env["PIP_NO_INPUT"] = "1"
	// The system's packages are read-only inside, so that pip installs for the user; there is nothing to break (PEP 668).
	b.found.Env["PIP_BREAK_SYSTEM_PACKAGES"] = "1"
	return nil
}

var pipHelp = regexp.MustCompile(`--index-url\b[^()]*\(default\s+(https?://[^\s()]+)\)`)

// pipDefault asks pip, whose help names its default; there is no setting to read it from.
func (b *builder) pipDefault(ctx context.Context) (string, error) {
	for _, name := range []string{"pip", "pip3"} {
		pip := b.host.program(name)
		if pip == "" {
			continue
		}
		out, err := b.host.run(ctx, pip, "download", "--help")
		if match := pipHelp.FindSubmatch(out); err == nil && match != nil {
			return string(match[1]), nil
		}
	}
	return "", noClient(pypiKind, "pip", "PIP_INDEX_URL")
}

// pipIndex makes the rules of one index and of where its files are.
func (b *builder) pipIndex(ctx context.Context, text string) (endpoint, error) {
	e, err := b.endpoint(pypiKind, text)
	if err != nil {
		return e, err
	}
	b.add(pypiKind, e)
	b.pipFiles(ctx, e)
	return e, nil
}

var fileLink = regexp.MustCompile(`(?:href\s*=\s*["']?|"url"\s*:\s*")([^"'\s>#?]+\.(?:whl|tar\.gz|zip))`)

// pipFiles asks an index for one page that every one has and adds the hosts that its links lead to, where they are
// not beside the index.
func (b *builder) pipFiles(ctx context.Context, index endpoint) {
	if b.host.page == nil {
		return
	}
	page := index.url() + "/pip/"
	text, err := b.host.page(ctx, page)
	if err != nil {
		b.note("the index at " + index.host + " did not say where its files are; they are expected beside it")
		return
	}
	base, err := url.Parse(page)
	if err != nil {
		return // it was made of a URL that was read
	}
	added := map[string]bool{}
	for _, match := range fileLink.FindAllStringSubmatch(string(text), -1) {
		link, err := base.Parse(match[1])
		if err != nil || link.User != nil {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(link.EscapedPath(), "/"), "/")
		files := url.URL{Scheme: link.Scheme, Host: link.Host, Path: "/" + first}
		if !strings.Contains(strings.TrimPrefix(link.EscapedPath(), "/"), "/") {
			files.Path = "" // a file at the root
		}
		if added[files.String()] || index.beside(link) {
			continue
		}
		e, err := b.endpoint(pypiKind, files.String())
		if err != nil || index.tls && !e.tls {
			continue // a page must not lead from TLS to plain text
		}
		if len(added) >= maxFileHosts {
			b.note("the index at " + index.host + " links to more than a few hosts; the rest is left out")
			return
		}
		added[files.String()] = true
		b.add(pypiKind, e)
	}
}

// beside holds for links that the index's own rule covers.
func (e endpoint) beside(link *url.URL) bool {
	root := e.path
	if last := path.Base(root); last == "simple" || last == "+simple" {
		root = strings.TrimSuffix(path.Dir(root), "/")
	}
	own, err := url.Parse(e.url())
	return err == nil && own.Scheme == link.Scheme && strings.EqualFold(own.Host, link.Host) && strings.HasPrefix(link.EscapedPath(), root+"/")
}

// pipSettings merges pip's files, weakest first, and the environment.
func (b *builder) pipSettings() (map[string]string, error) {
	settings := map[string]string{}
	for _, file := range b.pipFilesOrder() {
		text, err := b.host.read(file)
		if err != nil {
			return nil, rung.Errorf(rung.KindUnavailable, "pip's configuration: %w", err)
		}
		sections := parseINI(text)
		for _, section := range []string{"global", "download", "install"} { // a command's own section is the stronger
			maps.Copy(settings, sections[section])
		}
	}
	for _, key := range []string{"index-url", "extra-index-url", "no-index", "find-links"} {
		if v := b.host.env("PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))); v != "" {
			settings[key] = v
		}
	}
	return settings, nil
}

func (b *builder) pipFilesOrder() []string {
	own := b.host.env("PIP_CONFIG_FILE")
	if own == "/dev/null" {
		return nil
	}
	dirs := b.host.env("XDG_CONFIG_DIRS")
	if dirs == "" {
		dirs = "/etc/xdg"
	}
	var files []string
	for dir := range strings.SplitSeq(dirs, ":") {
		files = append(files, path.Join("/", dir, "pip/pip.conf"))
	}
	files = append(files, "/etc/pip.conf")
	if home := b.host.env("HOME"); home != "" {
		files = append(files, path.Join(home, ".pip/pip.conf"))
	}
	if config := b.configHome(); config != "" {
		files = append(files, path.Join(config, "pip/pip.conf"))
	}
	if env := b.host.env("VIRTUAL_ENV"); env != "" {
		files = append(files, path.Join(env, "pip.conf"))
	}
	if own != "" {
		files = append(files, own)
	}
	return files
}

// parseINI reads sections of keys as Python's configparser does for pip: "=" or ":" divides, an indented line continues a
// value, # and ; begin a comment line. Keys are spelled with dashes.
func parseINI(text string) map[string]map[string]string {
	sections := map[string]map[string]string{}
	section, key := "", ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';':
		case key != "" && (line[0] == ' ' || line[0] == '\t'):
			sections[section][key] += "\n" + trimmed
		case trimmed[0] == '[' && strings.HasSuffix(trimmed, "]"):
			section, key = trimmed[1:len(trimmed)-1], ""
			if sections[section] == nil {
				sections[section] = map[string]string{}
			}
		case sections[section] != nil:
			at := strings.IndexAny(trimmed, "=:")
			if at < 0 {
				at = len(trimmed)
			}
			key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(trimmed[:at])), "_", "-")
			sections[section][key] = strings.TrimSpace(strings.TrimLeft(trimmed[at:], "=:"))
		}
	}
	return sections
}
