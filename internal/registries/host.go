package registries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	maxConfig = 1 << 20          // bytes of one configuration file
	maxFiles  = 256              // files of one directory
	maxPage   = 8 << 20          // bytes of an index page
	patience  = 20 * time.Second // for one program or one page: Python and Node start slowly on a busy machine
)

// host is what discovery sees of this machine; tests put another one in its place.
type host struct {
	env  func(string) string
	root string // before every absolute path
	run  func(ctx context.Context, name string, args ...string) ([]byte, error)
	page func(ctx context.Context, url string) ([]byte, error)
}

func newHost(getenv func(string) string) host {
	return host{env: getenv, run: runProgram(getenv), page: getPage}
}

// read returns a file's text, "" when there is none. A file that is there and cannot be read is an error: guessing defaults
// would name other hosts than the user's client does.
func (h host) read(path string) (string, error) {
	f, err := os.Open(filepath.Join(h.root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxConfig)
	}
	return string(text), err
}

// list returns the names in a directory, sorted, none when there is no directory.
func (h host) list(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(h.root, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("%s has more than %d files", dir, maxFiles)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// program returns where a program really is, "" when it is nowhere in PATH.
func (h host) program(name string) string {
	for _, dir := range filepath.SplitList(h.env("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path, err := filepath.EvalSymlinks(filepath.Join(h.root, dir, name))
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return strings.TrimPrefix(path, h.root)
		}
	}
	return ""
}

func runProgram(getenv func(string) string) func(context.Context, string, ...string) ([]byte, error) {
	return func(ctx context.Context, name string, args ...string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = "/" // a project's directory could choose another program, or other settings
		cmd.Env = slices.Concat(os.Environ(), []string{"GOTOOLCHAIN=local", "COLUMNS=200", "PATH=" + getenv("PATH")})
		cmd.WaitDelay = time.Second
		return cmd.Output()
	}
}

// getPage asks an index for a page, as the client would: through the host's proxy, with the host's trust.
func getPage(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.pypi.simple.v1+json, text/html;q=0.1")
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is one
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPage)) // a cut page still tells where its first files are
}
