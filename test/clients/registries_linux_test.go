package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/control"
)

// registry is one that this host's client is configured with.
type registry struct {
	rule rung.EgressRule
	env  map[string]string
	url  string
}

// discover asks rung's own program, as rung does, and the registry whether it can be reached.
func (p *place) discover(t *testing.T, kind, page string) registry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "rung-gate"), "registries", kind)
	cmd.Env = p.env
	out, err := cmd.Output()
	var found control.Registries
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil || found.Failed != nil || len(found.Rules) == 0 {
		t.Skipf("%s: no client on this host is configured with a registry: %v %s", kind, err, out)
	}
	r := registry{rule: found.Rules[0], env: found.Env}
	scheme := "http"
	if r.rule.RequireTLS {
		scheme = "https"
	}
	r.url = fmt.Sprintf("%s://%s%s", scheme, r.rule.Host, r.rule.Registry.Prefix)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Skipf("%s: the registry cannot be reached: %v", kind, err)
	}
	resp.Body.Close()
	return r
}

// TestRegistries is the table: each client works with its flag and is refused without.
func TestRegistries(t *testing.T) {
	p := newPlace(t)
	t.Run("pypi", func(t *testing.T) { p.table(t, pypi(p.discover(t, "pypi", "/six/"))) })
	t.Run("npm", func(t *testing.T) { p.table(t, npm(p.discover(t, "npm", "/is-number"))) })
	t.Run("go", func(t *testing.T) { p.table(t, golang(p.discover(t, "go", "/rsc.io/quote/@v/list"))) })
	t.Run("debian", func(t *testing.T) { p.table(t, debian(p.discover(t, "debian", "/"))) })
	t.Run("user", func(t *testing.T) {
		p := p.asUser(t)
		r := p.discover(t, "pypi", "/six/")
		rows := pypi(r)
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == "pip download" })
		t.Run("process", func(t *testing.T) { p.check(t, "process", rows[i]) })
		t.Run("refused", func(t *testing.T) {
			p.check(t, "process", row{script: "curl -sS " + r.url + "/six/", code: -1, refused: []string{r.rule.Host}, hint: "--allow " + r.rule.Host})
		})
	})
}

func (p *place) table(t *testing.T, rows []row) {
	for _, on := range rungs() {
		t.Run(on, func(t *testing.T) {
			for _, r := range rows {
				t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) { p.check(t, on, r) })
			}
		})
	}
}

// vendored is pip's own copy of requests, which needs no installation.
const vendored = "pip._vendor.requests"

func pypi(r registry) []row {
	host, page := r.rule.Host, r.url+"/six/"
	allow := []string{"--allow", host}
	urllib := fmt.Sprintf(`python3 -c 'import urllib.request as u; print("status", u.urlopen(%q).status)'`, page)
	requests := func(module string) string {
		return fmt.Sprintf(`python3 -c 'import %s as r; print("status", r.get(%q).status_code)'`, module, page)
	}
	fetch := fmt.Sprintf(`node -e 'fetch(%q).then(r => console.log("status", r.status), e => { console.error(e.cause ?? e); process.exit(1) })'`, page)
	download := "pip download -q --no-deps -d /tmp "
	refused := []string{host}
	return []row{
		{name: "curl", flags: allow, script: `curl -sS -o /dev/null -w 'status %{http_code}\n' ` + page, out: `status 200`},
		{name: "curl refused", script: "curl -sS " + page, code: -1, refused: refused, hint: "--allow " + host},
		{name: "urllib", flags: allow, script: urllib, out: "status 200"},
		{name: "urllib refused", script: urllib, code: 1, refused: refused, hint: "--allow " + host},
		{name: "requests", flags: allow, script: requests(vendored), out: "status 200"},
		{
			name: "requests installed", flags: []string{"--registry", "pypi"}, only: []string{"hardened"},
			script: "pip install -q requests==2.32.3 && " + requests("requests"), out: "status 200", packages: []string{"requests@2.32.3"},
		},
		{name: "requests refused", script: requests(vendored), code: 1, refused: refused, hint: "--allow " + host},
		// Node 20's fetch knows no proxy, and rung process offers nothing else.
		{name: "node fetch", flags: allow, script: fetch, out: "status 200", only: []string{"container", "hardened", "gvisor"}},
		{name: "node fetch refused", script: fetch, code: 1, refused: refused, hint: "--allow " + host, only: []string{"container", "hardened", "gvisor"}},
		{name: "pip download", flags: []string{"--registry", "pypi"}, script: download + "six==1.16.0", packages: []string{"six@1.16.0"}},
		{
			name: "pip install", flags: []string{"--registry", "pypi:colorama"}, packages: []string{"colorama@0.4.6"},
			script: "pip install -q --ignore-installed colorama==0.4.6 && python3 -c 'import colorama; print(colorama.__version__)'", out: `0\.4\.6`,
		},
		{name: "pip refused", script: "pip download --retries 0 -d /tmp six==1.16.0", code: 1, refused: refused, hint: "--allow " + host},
		{
			name: "pip of another package", flags: []string{"--registry", "pypi:colorama"}, script: download + "six==1.16.0", code: 1,
			refused: refused, hint: "--registry pypi:six", out: "403|No matching distribution", only: []string{"hardened", "process"},
		},
		// pip asks for what its variable for the age lets through (a pip that knows none is refused at the file).
		{
			name: "pip min age", flags: []string{"--registry", "pypi", "--min-age", "30000d"}, script: download + "six==1.16.0", code: -1, refused: []string{"*"},
			only: []string{"hardened"},
		},
		{
			name: "pip of age", flags: []string{"--registry", "pypi", "--min-age", "7d"}, script: download + "six==1.16.0", packages: []string{"six@1.16.0"},
			only: []string{"hardened"},
		},
		{
			name: "two lists", flags: []string{"--registry", "pypi:colorama", "--registry", "pypi:six"}, script: download + "six==1.16.0 colorama==0.4.6",
			packages: []string{"six@1.16.0", "colorama@0.4.6"}, only: []string{"hardened"},
		},
		{
			name: "upload", flags: []string{"--registry", "pypi"}, refused: refused, only: []string{"hardened", "gvisor"},
			script: "curl -sS -X POST -F ':action=file_upload' -F content=x " + r.url + "/", out: "rung refused: POST",
		},
	}
}

func npm(r registry) []row {
	host := r.rule.Host
	flags, refused := []string{"--registry", "npm"}, []string{r.rule.Host}
	const install = "npm install --no-audit --no-fund --loglevel=error "
	return []row{
		{name: "npm install", flags: flags, script: install + "is-number@7.0.0 && node -p 'require(\"is-number\")(5)'", out: "true", packages: []string{"is-number@7.0.0"}},
		{
			name: "npm install of many", flags: flags, script: install + "express@4.21.2 && ls node_modules | wc -l", out: `(?m)^[5-9]\d$`,
			packages: []string{"express@4.21.2"}, only: []string{"hardened", "gvisor", "process"},
		},
		{name: "npm install refused", script: install + "is-number@7.0.0", code: -1, refused: refused, hint: "--allow " + host},
		{
			name: "npm of another package", flags: []string{"--registry", "npm:is-odd"}, script: install + "is-number@7.0.0", code: -1,
			refused: refused, hint: "--registry npm:is-number", only: []string{"hardened"},
		},
		// npm is told the age too, and says itself that no version is old enough.
		{name: "npm min age", flags: append(flags, "--min-age", "30000d"), script: install + "is-number@7.0.0", code: -1, out: "before", only: []string{"hardened"}},
		{
			name: "npm min age unset", flags: append(flags, "--min-age", "30000d"), script: "unset NPM_CONFIG_BEFORE; " + install + "is-number@7.0.0", code: -1,
			refused: refused, only: []string{"hardened"},
		},
		{name: "npm of age", flags: append(flags, "--min-age", "7d"), script: install + "is-number@7.0.0", packages: []string{"is-number@7.0.0"}, only: []string{"hardened"}},
		{
			name: "npm publish", flags: flags, code: -1, refused: refused, only: []string{"hardened", "process"}, out: "403|only reads",
			script: `echo '{"name":"rung-never","version":"1.0.0"}' > package.json; echo "//` + host + `/:_authToken=x" > .npmrc; npm publish --loglevel=error`,
		},
	}
}

func golang(r registry) []row {
	const download = "go mod init x.test/x 2>/dev/null; go mod download rsc.io/quote@v1.5.2"
	refused := []string{r.rule.Host}
	return []row{
		{name: "go mod download", flags: []string{"--registry", "go"}, script: download, packages: []string{"rsc.io/quote@v1.5.2"}},
		{
			name: "go build", flags: []string{"--registry", "go"}, only: []string{"hardened"}, packages: []string{"rsc.io/quote@v1.5.2"},
			script: download + " && go get rsc.io/quote@v1.5.2 && go list -m all", out: `rsc.io/sampler`,
		},
		{name: "go refused", script: "export GOPROXY=" + r.url + "; " + download, code: 1, refused: refused, hint: "--allow " + r.rule.Host},
		{
			name: "go of another module", flags: []string{"--registry", "go:golang.org/x/text"}, script: download, code: 1, refused: refused,
			hint: "--registry go:rsc.io/quote", only: []string{"hardened"},
		},
	}
}

func debian(r registry) []row {
	return []row{
		{name: "apt-get update", flags: []string{"--registry", "debian"}, script: "apt-get update && ls /work/.rung/apt/lists | grep -c Packages", out: `Reading package lists`},
		// apt-get says nothing of a refused archive by its exit code (only apt-get update -eany does).
		{
			name: "apt-get update refused", code: -2, out: "Could not resolve|403", refused: []string{r.rule.Host}, hint: "--allow " + r.rule.Host,
			script: `mkdir -p s/lists/partial; echo "deb [trusted=yes] ` + r.url + ` stable main" > l; apt-get -o Acquire::Retries=0 -o Dir::State=/work/s -o Dir::Cache=/work/s -o Dir::Etc::sourcelist=/work/l -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User= update`,
		},
	}
}
