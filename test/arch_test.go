// Package test holds what is checked across the whole repository: here the rules of DESIGN and CONTRIBUTING that a
// compiler does not keep. A rule without a test is a wish; an exception is a line in arch_exceptions_test.go.
package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/rung-dev/rung"

// layers is "imports point one way": a folder (and all below it, unless they have a line of their own) may import only the
// listed folders of this module, each with all below it. "." is the root package alone, "*" everything.
//
// What follows from it: drivers import neither each other nor anything of internal/ but sys and image; gate, broker, audit,
// image and store import neither each other nor anything above; policy and the root package decide without I/O.
var layers = map[string][]string{
	".":                    {},
	"api":                  {"api"},
	"client":               {".", "api", "internal/sys/mux", "internal/wire"},
	"driver":               {"."},
	"driver/drivertest":    {".", "driver", "api"},
	"driver/fake":          {".", "driver"},
	"driver/held":          {".", "driver", "internal/sys", "internal/image"}, // what drivers with a holder share; no driver itself
	"driver/process":       {".", "driver", "driver/held", "internal/sys", "internal/image"},
	"driver/oci":           {".", "driver", "driver/held", "internal/sys", "internal/image"},
	"driver/wasm":          {".", "driver", "internal/sys", "internal/image"},
	"driver/microvm":       {".", "driver", "internal/sys", "internal/image"},
	"driver/remote":        {".", "driver", "internal/sys", "internal/image"},
	"driver/kube":          {".", "driver", "internal/sys", "internal/image"},
	"internal/sys":         {".", "internal/sys"},
	"internal/wire":        {".", "api"},
	"internal/policy":      {"."},
	"internal/guest":       {".", "api", "internal/guest", "internal/sys", "internal/wire"},
	"internal/gate":        {".", "internal/gate", "internal/sys"},
	"internal/broker":      {".", "internal/broker", "internal/sys"},
	"internal/audit":       {".", "internal/audit", "internal/sys"},
	"internal/image":       {".", "internal/image", "internal/sys"},
	"internal/store":       {".", "internal/store", "internal/sys"},
	"internal/posture":     {".", "driver", "internal/posture", "internal/policy", "internal/sys"},
	"internal/session":     {".", "driver", "client", "internal/session", "internal/policy", "internal/sys"},
	"internal/server":      {".", "api", "client", "internal/server", "internal/session", "internal/policy"},
	"cmd/rung":             {"*"},
	"cmd/rung-guest":       {".", "api", "internal/guest", "internal/sys", "internal/wire", "internal/posture"},
	"internal/lang":        {"."},
	"cmd/rung-strip":       {},
	"cmd/rung-image":       {".", "internal/image", "internal/sys"},
	"cmd/rung-gate":        {".", "internal/gate", "internal/registries", "internal/sys"},
	"cmd/rung-broker":      {".", "internal/broker", "internal/sys"},
	"internal/registries":  {"."}, // what this host's package clients are configured to ask
	"bench":                {".", "client", "bench"},
	"bench/gate":           {".", "bench", "internal/gate/control", "internal/sys"}, // opens idle sessions as rung does
	"test":                 {"*"},
	"test/report":          {},
	"internal/server/mcp":  {".", "api", "client", "internal/server", "internal/session", "internal/policy"},
	"internal/sys/measure": {".", "internal/sys"},
}

// heavy must not be linked into what a run starts: each costs milliseconds of package initialisation or megabytes of
// resident memory, and none is needed to build a wall.
var heavy = []string{
	"google.golang.org/protobuf",
	"google.golang.org/grpc",
	"connectrpc.com",
	"github.com/google/go-containerregistry",
	"modernc.org",
	"gvisor.dev",
	"filippo.io/age",
	"github.com/go-jose",
	"github.com/goccy/go-yaml",
	"github.com/miekg/dns",
	"github.com/prometheus",
	"go.opentelemetry.io",
}

// guestModules are the only third-party modules in the agent inside every sandbox.
var guestModules = []string{
	"golang.org/x/sys",
	"golang.org/x/net",
	"github.com/landlock-lsm/go-landlock",
	"kernel.org/pub/linux/libs/security/libcap/psx",
	"github.com/elastic/go-seccomp-bpf",
	"github.com/hashicorp/yamux",
}

// bannedFolders are bags: a package is named for what it is about, not for who might want it.
var bannedFolders = []string{"pkg", "util", "utils", "common", "helper", "helpers", "shared", "misc", "lib"}

// maxDirectModules is the house's 24, and filippo.io/edwards25519, whose absence would cost every run two milliseconds.
const maxDirectModules = 25

// goPackage is what `go list -json` says.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
	Standard   bool
	Module     *struct{ Path string }
}

func (p goPackage) folder() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func root() string { return ".." }

// run returns the output of a go or git command in the repository's root.
func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

// graph is every package of the module and what they need, listed once for all tests.
var graph = sync.OnceValues(func() (map[string]goPackage, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,Deps,Standard,Module", "./...")
	cmd.Dir = root()
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	all := map[string]goPackage{}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
})

func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	all, err := graph()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// layerOf returns the rule of the nearest folder that has one.
func layerOf(folder string) ([]string, bool) {
	for f := folder; ; f = filepath.Dir(f) {
		if allowed, ok := layers[f]; ok && (f != "." || folder == ".") {
			return allowed, true
		}
		if f == "." {
			return nil, false
		}
	}
}

func within(folder string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return a == "*" || a == folder || a != "." && strings.HasPrefix(folder, a+"/")
	})
}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range packages(t) {
		if !ours(p.ImportPath) {
			continue
		}
		from := p.folder()
		allowed, ok := layerOf(from)
		if !ok {
			t.Errorf("%s has no line in layers: say what it may import", from)
			continue
		}
		// A driver's own subfolders are the driver.
		if parts := strings.Split(from, "/"); parts[0] == "driver" && len(parts) > 1 {
			allowed = append(slices.Clone(allowed), "driver/"+parts[1])
		}
		for _, imp := range p.Imports {
			if !ours(imp) {
				continue
			}
			to := goPackage{ImportPath: imp}.folder()
			// "driver" in a rule is the interface; the packages below it are implementations, wired in cmd only.
			implementation := strings.HasPrefix(to, "driver/") && !slices.Contains(allowed, "*") && !strings.HasPrefix(from, "driver/")
			sibling := strings.HasPrefix(to, "driver/") && strings.HasPrefix(from, "driver/") &&
				to != "driver/held" && strings.Split(to, "/")[1] != strings.Split(from, "/")[1]
			if !within(to, allowed) || implementation || sibling {
				if why, ok := importExceptions[from+" -> "+to]; ok && why != "" {
					continue
				}
				t.Errorf("%s imports %s, which its layer does not allow (allowed: %v)", from, to, allowed)
			}
		}
	}
}

func TestVocabularyAndPolicyArePure(t *testing.T) {
	all := packages(t)
	for _, p := range all {
		if p.folder() != "." && p.folder() != "driver" && p.folder() != "internal/policy" || !ours(p.ImportPath) {
			continue
		}
		for _, imp := range p.Imports {
			if !ours(imp) && !all[imp].Standard {
				t.Errorf("%s imports %s: it is standard library only", p.folder(), imp)
			}
			pure := p.folder() != "driver"
			if pure && slices.Contains([]string{"os", "os/exec", "net", "net/http", "io/fs", "syscall", "log", "log/slog", "path/filepath"}, imp) {
				t.Errorf("%s imports %s: it does no I/O", p.folder(), imp)
			}
		}
	}
}

func TestRunPathIsLean(t *testing.T) {
	all := packages(t)
	for _, program := range []string{"cmd/rung", "cmd/rung-guest"} {
		p, ok := all[module+"/"+program]
		if !ok {
			t.Errorf("there is no %s", program)
			continue
		}
		for _, dep := range p.Deps {
			for _, h := range heavy {
				if dep == h || strings.HasPrefix(dep, h+"/") {
					t.Errorf("%s links %s: too heavy for what a run starts", program, dep)
				}
			}
			if m := all[dep].Module; program == "cmd/rung-guest" && m != nil && m.Path != module && !slices.Contains(guestModules, m.Path) {
				t.Errorf("%s links %s of module %s, which is not on its list", program, dep, m.Path)
			}
		}
	}
}

func TestFolderNames(t *testing.T) {
	for _, p := range packages(t) {
		if !ours(p.ImportPath) {
			continue
		}
		for part := range strings.SplitSeq(p.folder(), "/") {
			if slices.Contains(bannedFolders, part) {
				t.Errorf("%s: %q is a bag, not a subject", p.folder(), part)
			}
		}
	}
}

func TestDirectModules(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(run(t, "go", "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) > maxDirectModules {
		t.Errorf("%d direct modules, at most %d: %s", len(direct), maxDirectModules, strings.Join(direct, " "))
	}
}

// TestNoMachinePaths: the repository names no machine it was written on and no package registry's host; both would be
// wrong or forbidden anywhere else.
func TestNoMachinePaths(t *testing.T) {
	// Joined here, so that this file passes its own test.
	banned := []string{
		"/work/" + "main", "/work/" + "shared", "/work/" + ".library", "/root/" + "go", "/root/" + ".pyenv",
		"proxy." + "golang.org", "sum." + "golang.org", "deb." + "debian.org", "security." + "debian.org", "registry." + "npmjs.org",
		"pypi." + "org", "files." + "pythonhosted.org", "crates." + "io", "repo.maven." + "apache.org", "repo1." + "maven.org",
	}
	files := run(t, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root(), name))
		if err != nil || bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
			continue // deleted but not yet committed, a link to a folder, or not text
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			for _, b := range banned {
				if strings.Contains(lines.Text(), b) {
					t.Errorf("%s:%d names %s", name, n, b)
				}
			}
		}
	}
}
