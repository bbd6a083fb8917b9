package registry

import "strings"

const notNPM = "that is no read of an npm package: packages, versions, dist-tags and tarballs are"

// parseNPM knows the paths of the npm registry's API (github.com/npm/registry, docs/REGISTRY-API.md) that install a package:
// the package document, one version of it, its tarballs and its dist-tags, the signing keys and attestations.
func (j *Judge) parseNPM(segments []string) (read, string) {
	rest, ok := under(j.prefix, segments)
	if !ok || len(rest) == 0 {
		return read{}, notNPM
	}
	if rest[0] == "-" {
		return j.parseNPMService(rest[1:])
	}
	name, rest, ok := npmLead(rest)
	if !ok {
		return read{}, notNPM
	}
	r := read{name: name, metadata: true}
	switch {
	case len(rest) == 0:
		r.path = join(append(j.start(), name), false) // a scoped name in one segment, as npm spells it
	case len(rest) == 1 && rest[0] != "-" && npmVersion(rest[0]):
		r.version = rest[0]
		r.path = join(append(j.start(), name, rest[0]), false)
	default:
		return j.parseTarball(name, rest)
	}
	return r, ""
}

func (j *Judge) start() []string { return append([]string(nil), j.prefix...) }

// npmLead takes a package's name off the front: name, @scope/name, or the two in one segment.
func npmLead(segments []string) (name string, rest []string, ok bool) {
	if len(segments) == 0 {
		return "", nil, false
	}
	name, rest = segments[0], segments[1:]
	if strings.HasPrefix(name, "@") && !strings.Contains(name, "/") {
		if len(rest) == 0 {
			return "", nil, false
		}
		name, rest = name+"/"+rest[0], rest[1:]
	}
	return name, rest, npmName(name) && noSlash(rest)
}

func npmVersion(s string) bool {
	return s != "" && len(s) <= 128 && s[0] != '-' && only(s, "._+~-")
}

// parseTarball knows NAME/-/BASE-VERSION.tgz, and the @scope/ that one common mirror puts before BASE.
func (j *Judge) parseTarball(name string, rest []string) (read, string) {
	parts := append(strings.Split(name, "/"), rest...)
	scope, base, scoped := strings.Cut(name, "/")
	if !scoped {
		scope, base = "", name
	}
	if len(rest) == 3 && scoped && rest[1] == scope {
		rest = []string{rest[0], rest[2]}
	}
	if len(rest) != 2 || rest[0] != "-" {
		return read{}, notNPM
	}
	version, ok := strings.CutPrefix(rest[1], base+"-")
	if !ok {
		return read{}, "the file is not one of npm package " + name
	}
	if version, ok = strings.CutSuffix(version, ".tgz"); !ok || !npmVersion(version) {
		return read{}, notNPM
	}
	return read{path: join(append(j.start(), parts...), false), name: name, version: version, file: true}, ""
}

// parseNPMService knows what is below /-/.
func (j *Judge) parseNPMService(rest []string) (read, string) {
	full := append(append(j.start(), "-"), rest...)
	switch {
	case len(rest) == 1 && rest[0] == "ping", noSlash(rest) && strings.Join(rest, "/") == "npm/v1/keys":
		return read{path: join(full, false)}, ""
	case len(rest) >= 3 && rest[0] == "package":
		name, tail, ok := npmLead(rest[1:])
		if ok && len(tail) == 1 && tail[0] == "dist-tags" {
			return read{path: join(append(j.start(), "-", "package", name, "dist-tags"), false), name: name, metadata: true}, ""
		}
	case len(rest) >= 4 && strings.Join(rest[:3], "/") == "npm/v1/attestations":
		spec := strings.Join(rest[3:], "/")
		at := strings.LastIndexByte(spec, '@')
		if at > 0 && npmName(spec[:at]) && npmVersion(spec[at+1:]) {
			return read{path: join(append(j.start(), "-", "npm", "v1", "attestations", spec), false), name: spec[:at], metadata: true}, ""
		}
	case len(rest) > 0 && (rest[0] == "user" || rest[0] == "v1" && len(rest) > 1):
		return read{}, "npm's search, logins, tokens and accounts are no read of a package"
	}
	return read{}, notNPM
}
