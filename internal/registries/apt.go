package registries

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rung-dev/rung"
)

// Where apt's files are in a sandbox: all in one place of the work directory, which has the disk for package lists. apt makes
// the directory of its state itself when its name is apt (apt-pkg, CreateAPTDirectoryIfNeeded) and the one above it exists.
const (
	aptInside    = "/work/.rung"
	maxKeyring   = 1 << 20
	maxAptParsed = 256 // archives
)

// aptConf lets apt-get work as an ordinary user: own state and caches, no other user to fall back to, no settings of the
// template that name other places, and no lock in dpkg's directory, which is read-only (so that install --download-only works).
// Pdiffs and translations only add requests.
const aptConf = `// written by rung: apt as an ordinary user, with the archives of the host
Dir::State "` + aptInside + `/apt/";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "` + aptInside + `/apt/";
Dir::Log "` + aptInside + `/apt/log";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "` + aptInside + `/sources.list.d";
APT::Sandbox::User "";
Debug::NoLocking "true";
Acquire::https::CaInfo "/etc/ssl/certs/ca-certificates.crt";
Acquire::Languages "none";
Acquire::PDiffs "false";
`

// archive is one stanza of a deb822 source (sources.list(5)); one-line entries are read into the same form.
type archive map[string]string

// apt reads the archives that apt on this host is configured with and writes those on the network for the sandbox's apt.
func (b *builder) apt() error {
	archives, err := b.aptArchives()
	if err != nil {
		return err
	}
	var sources strings.Builder
	for _, a := range archives {
		text, err := b.aptArchive(a)
		if err != nil {
			return err
		}
		sources.WriteString(text)
	}
	if sources.Len() == 0 {
		return rung.Errorf(rung.KindUnavailable, "apt on this host has no archive on the network").
			WithHint("there must be one in /etc/apt/sources.list or /etc/apt/sources.list.d")
	}
	conf := aptConf
	if trusted, err := b.aptTrusted(); err != nil {
		return err
	} else if trusted {
		conf += "Dir::Etc::trustedparts \"" + aptInside + "/trusted.gpg.d\";\n"
	}
	b.aptProxy()
	b.found.Files[aptInside+"/apt.conf"] = []byte(conf)
	b.found.Files[aptInside+"/sources.list.d/host.sources"] = []byte(sources.String())
	b.found.Env["APT_CONFIG"] = aptInside + "/apt.conf"
	b.found.Env["DEBIAN_FRONTEND"] = "noninteractive"
	return nil
}

// aptArchive makes the rules of one archive and spells it for the sandbox, "" when nothing of it is on the network.
func (b *builder) aptArchive(a archive) (string, error) {
	if slices.Contains([]string{"no", "false", "0", "off", "disable"}, strings.ToLower(a["enabled"])) {
		return "", nil
	}
	var uris []string
	for text := range strings.FieldsSeq(a["uris"]) {
		if !strings.HasPrefix(text, "http://") && !strings.HasPrefix(text, "https://") {
			scheme, _, _ := strings.Cut(text, ":")
			b.note("apt's source of the kind " + scheme + " is left out: only http and https are registries")
			continue
		}
		e, err := b.endpoint(debianKind, text)
		if err != nil {
			return "", err
		}
		b.add(debianKind, e)
		uris = append(uris, e.url()+"/")
	}
	if len(uris) == 0 {
		return "", nil
	}
	a["uris"] = strings.Join(uris, " ")
	if err := b.aptKey(a); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, field := range []string{"Types", "URIs", "Suites", "Components", "Architectures", "Signed-By", "Trusted", "By-Hash", "Check-Valid-Until"} {
		if value := a[strings.ToLower(field)]; value != "" {
			out.WriteString(field + ": " + value + "\n")
		}
	}
	return out.String() + "\n", nil
}

// aptKey takes the keyring with it that an archive is signed by. A key within the stanza, or a fingerprint, goes as it is.
func (b *builder) aptKey(a archive) error {
	fields := strings.Fields(a["signed-by"])
	if strings.Contains(a["signed-by"], "-----BEGIN") {
		return nil
	}
	for i, file := range fields {
		file = strings.TrimSuffix(file, ",")
		if !path.IsAbs(file) {
			continue
		}
		inside, err := b.aptFile(file, "keyrings")
		if err != nil {
			return err
		}
		fields[i] = inside
	}
	a["signed-by"] = strings.Join(fields, " ")
	return nil
}

// aptFile takes a file of public keys along.
func (b *builder) aptFile(file, dir string) (string, error) {
	text, err := b.host.read(file)
	if err != nil || text == "" {
		b.note("apt's keyring " + file + " cannot be read; the archive will count as unsigned inside")
		return file, nil //nolint:nilerr // apt inside then refuses the archive and says so
	}
	if len(text) > maxKeyring {
		return "", rung.Errorf(rung.KindInvalid, "apt's keyring %s is larger than %d bytes", file, maxKeyring)
	}
	inside := path.Join(aptInside, dir, path.Base(file))
	if have, taken := b.found.Files[inside]; taken && string(have) != text {
		inside = path.Join(aptInside, dir, strings.ReplaceAll(strings.Trim(file, "/"), "/", "-"))
	}
	b.found.Files[inside] = []byte(text)
	return inside, nil
}

// aptTrusted takes the keys along that apt trusts for archives that name none.
func (b *builder) aptTrusted() (bool, error) {
	const dir = "/etc/apt/trusted.gpg.d"
	names, err := b.host.list(dir)
	if err != nil {
		return false, rung.Errorf(rung.KindUnavailable, "apt's keys: %w", err)
	}
	some := false
	for _, name := range names {
		if strings.HasSuffix(name, ".gpg") || strings.HasSuffix(name, ".asc") {
			if _, err := b.aptFile(path.Join(dir, name), "trusted.gpg.d"); err != nil {
				return false, err
			}
			some = true
		}
	}
	return some, nil
}

// aptArchives reads all sources in apt's places.
func (b *builder) aptArchives() ([]archive, error) {
	const main, parts = "/etc/apt/sources.list", "/etc/apt/sources.list.d"
	names, err := b.host.list(parts)
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "apt's sources: %w", err)
	}
	files := []string{main}
	for _, name := range names {
		files = append(files, path.Join(parts, name))
	}
	var all []archive
	for _, file := range files {
		parse := parseOneLine
		switch path.Ext(file) {
		case ".list":
		case ".sources":
			parse = parseStanzas
		default:
			continue // apt ignores other names too
		}
		text, err := b.host.read(file)
		if err != nil {
			return nil, rung.Errorf(rung.KindUnavailable, "apt's sources: %w", err)
		}
		if all = append(all, parse(text)...); len(all) > maxAptParsed {
			return nil, rung.Errorf(rung.KindInvalid, "apt on this host has more than %d archives", maxAptParsed)
		}
	}
	return all, nil
}

var oneLine = regexp.MustCompile(`^(deb|deb-src)\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)((?:\s+\S+)*)$`)

// parseOneLine reads "deb [option=value …] URI SUITE COMPONENT…".
func parseOneLine(text string) []archive {
	names := map[string]string{"arch": "architectures"}
	var all []archive
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		m := oneLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		a := archive{"types": m[1], "uris": m[3], "suites": m[4], "components": strings.TrimSpace(m[5])}
		for option := range strings.FieldsSeq(m[2]) {
			key, value, _ := strings.Cut(option, "=")
			key = strings.ToLower(strings.TrimRight(key, "+-"))
			if long, ok := names[key]; ok {
				key = long
			}
			if _, basic := a[key]; !basic {
				a[key] = strings.ReplaceAll(value, ",", " ")
			}
		}
		all = append(all, a)
	}
	return all
}

// parseStanzas reads deb822: fields, continued by indented lines; stanzas divided by empty lines.
func parseStanzas(text string) []archive {
	var all []archive
	a, key := archive{}, ""
	flush := func() {
		if a["uris"] != "" {
			all = append(all, a)
		}
		a, key = archive{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case line == "":
			flush()
		case line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			if key != "" {
				a[key] += "\n " + strings.TrimSpace(line)
			}
		default:
			name, value, _ := strings.Cut(line, ":")
			key = strings.ToLower(strings.TrimSpace(name))
			a[key] = strings.TrimSpace(value)
		}
	}
	flush()
	return all
}

var aptProxySetting = regexp.MustCompile(`(?im)^\s*Acquire::https?::(?:Auto)?Proxy|^\s*Acquire::https?::Proxy-Auto-Detect`)

// aptProxy says that a proxy is apt's alone on this host.
func (b *builder) aptProxy() {
	const main, parts = "/etc/apt/apt.conf", "/etc/apt/apt.conf.d"
	names, err := b.host.list(parts)
	if err != nil {
		return // a note is all that is lost
	}
	files := []string{main}
	for _, name := range names {
		files = append(files, path.Join(parts, name))
	}
	for _, file := range files {
		if text, err := b.host.read(file); err == nil && aptProxySetting.MatchString(text) {
			b.note("apt on this host goes through a proxy (" + file + "); the gate uses HTTPS_PROXY and HTTP_PROXY of its own environment")
			return
		}
	}
}
