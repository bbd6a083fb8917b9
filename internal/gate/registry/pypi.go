package registry

import "strings"

const notPyPI = "that is no read of a Python package index: project pages, package files and their metadata are"

// parsePyPI knows the simple API (packaging.python.org/specifications/simple-repository-api), the project's JSON document
// and package files, which lie wherever the index links to. The rule's prefix is the path of the index as pip has it, such as
// /simple; files are looked for beside it too. Without a prefix the index is / or /simple/.
func (j *Judge) parsePyPI(segments []string, slash bool) (read, string) {
	rest, ok := under(j.filesRoot(), segments)
	if !ok || !noSlash(segments) {
		return read{}, notPyPI
	}
	r := read{path: join(segments, slash), metadata: true}
	for _, index := range j.indexes() {
		page, ok := under(index, segments)
		switch {
		case !ok || len(page) > 1:
		case len(page) == 0:
			return r, "" // the list of all projects
		default:
			if r.name, ok = pypiName(page[0]); ok && (slash || !pypiFileLike(page[0])) {
				return r, ""
			}
		}
	}
	if n := len(rest); (n == 3 || n == 4) && rest[0] == "pypi" && rest[n-1] == "json" {
		if r.name, ok = pypiName(rest[1]); ok {
			return r, ""
		}
	}
	if slash || len(rest) == 0 {
		return read{}, notPyPI
	}
	file, isMetadata := strings.CutSuffix(rest[len(rest)-1], ".metadata") // PEP 658
	if r.name, r.version, ok = pypiFile(file); !ok {
		return read{}, notPyPI
	}
	r.file, r.metadata = !isMetadata, isMetadata
	return r, ""
}

// indexes are where project pages may be, likeliest first.
func (j *Judge) indexes() [][]string {
	if len(j.prefix) == 0 {
		return [][]string{{"simple"}, {}}
	}
	return [][]string{j.prefix}
}

// filesRoot is the path below which files may be: mirrors keep them beside their index.
func (j *Judge) filesRoot() []string {
	if n := len(j.prefix); n > 0 && (j.prefix[n-1] == "simple" || j.prefix[n-1] == "+simple") {
		return j.prefix[:n-1]
	}
	return j.prefix
}

func pypiEndings() []string {
	return []string{".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz", ".egg"}
}

func pypiFileLike(s string) bool {
	_, _, ok := pypiFile(strings.TrimSuffix(s, ".metadata"))
	return ok
}

// pypiFile reads a distribution's name and version from its file name: NAME-VERSION-TAGS.whl (PEP 427, where both have no
// dash), NAME-VERSION.tar.gz (PEP 625). In older source archives the name may have dashes, the version not: the last one
// divides, and an archive of the rare other kind counts as one of a longer name, which no list has.
func pypiFile(file string) (name, version string, ok bool) {
	for _, ending := range pypiEndings() {
		stem, found := strings.CutSuffix(file, ending)
		if !found {
			continue
		}
		cut := strings.LastIndexByte(stem, '-')
		if ending == ".whl" || ending == ".egg" {
			dashes := strings.Count(stem, "-")
			if ending == ".whl" && dashes != 4 && dashes != 5 || ending == ".egg" && dashes < 2 {
				return "", "", false
			}
			cut = strings.IndexByte(stem, '-')
		}
		if cut < 1 {
			return "", "", false
		}
		name, ok = pypiName(stem[:cut])
		version, _, _ = strings.Cut(stem[cut+1:], "-")
		return name, version, ok && version != "" && len(version) <= 128 && only(version, "._+!")
	}
	return "", "", false
}
