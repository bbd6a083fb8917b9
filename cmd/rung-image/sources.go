//go:build linux

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// debianSources returns the host's apt sources for the distribution itself, as deb822 paragraphs: the same mirrors and keys
// that the host trusts. Sources of third parties are left out.
func debianSources(etc, codename string) ([]string, error) {
	files := []string{filepath.Join(etc, "sources.list")}
	for _, ext := range []string{"*.list", "*.sources"} {
		found, err := filepath.Glob(filepath.Join(etc, "sources.list.d", ext))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	var list []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(file, ".sources") {
			list = append(list, paragraphs(string(data), codename)...)
			continue
		}
		for line := range strings.Lines(string(data)) {
			if p, ok := oneLine(line, codename); ok {
				list = append(list, p)
			}
		}
	}
	return list, nil
}

// ours reports whether a suite and its components are the distribution's own.
func ours(suites, components []string, codename string) bool {
	own := []string{codename, codename + "-updates", codename + "-security", codename + "/updates"}
	for _, s := range suites {
		if !slices.Contains(own, s) {
			return false
		}
	}
	return len(suites) > 0 && slices.Contains(components, "main")
}

// paragraphs filters a file of deb822 paragraphs.
func paragraphs(text, codename string) []string {
	var list []string
	var lines []string
	fields := map[string]string{}
	key := ""
	end := func() {
		types, enabled := strings.Fields(fields["types"]), strings.ToLower(strings.TrimSpace(fields["enabled"]))
		if slices.Contains(types, "deb") && enabled != "no" && enabled != "false" &&
			ours(strings.Fields(fields["suites"]), strings.Fields(fields["components"]), codename) {
			list = append(list, strings.Join(lines, "\n")+"\n")
		}
		lines, fields, key = nil, map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case strings.TrimSpace(line) == "":
			end()
			continue
		case line[0] == ' ' || line[0] == '\t': // goes on
			fields[key] += "\n" + line
		default:
			name, value, _ := strings.Cut(line, ":")
			key = strings.ToLower(name)
			fields[key] = value
			if key == "types" { // source packages are not needed
				line = "Types: deb"
			}
		}
		lines = append(lines, line)
	}
	end()
	return list
}

// oneLine turns a line of the older format into a paragraph.
func oneLine(line, codename string) (string, bool) {
	line, _, _ = strings.Cut(line, "#")
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
	if !ok {
		return "", false
	}
	rest = strings.TrimSpace(rest)
	var options string
	if strings.HasPrefix(rest, "[") {
		if options, rest, ok = strings.Cut(rest[1:], "]"); !ok {
			return "", false
		}
	}
	fields := strings.Fields(rest)
	if len(fields) < 3 || !ours(fields[1:2], fields[2:], codename) {
		return "", false
	}
	var p strings.Builder
	p.WriteString("Types: deb\nURIs: " + fields[0] + "\nSuites: " + fields[1] + "\nComponents: " + strings.Join(fields[2:], " ") + "\n")
	for o := range strings.FieldsSeq(options) {
		name, value, _ := strings.Cut(o, "=")
		switch strings.ToLower(name) {
		case "signed-by":
			p.WriteString("Signed-By: " + strings.ReplaceAll(value, ",", " ") + "\n")
		case "arch":
			p.WriteString("Architectures: " + strings.ReplaceAll(value, ",", " ") + "\n")
		case "trusted":
			p.WriteString("Trusted: " + value + "\n")
		}
	}
	return p.String(), true
}

// aptOptions picks from the output of apt-config dump how this host reaches its mirrors: proxies and certificates.
func aptOptions(dump string) []string {
	var list []string
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(key, "Acquire::") || value == `"";` {
			continue
		}
		for _, word := range []string{"::Proxy", "::CaInfo", "::CaPath", "::ProxyAutoDetect", "::Proxy-Auto-Detect"} {
			if strings.Contains(key, word) {
				list = append(list, line)
				break
			}
		}
	}
	return list
}
