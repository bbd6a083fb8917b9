package held

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// FindProgram looks for a program beside this one first, then in PATH, then in the sbin directories that an ordinary user's
// PATH lacks. It returns an absolute path, or "".
func FindProgram(name string) string {
	if self, err := os.Executable(); err == nil {
		if p := filepath.Join(filepath.Dir(self), name); runnable(p) {
			return p
		}
	}
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr/local/sbin", "/usr/sbin", "/sbin")
	for _, dir := range dirs {
		// An empty or relative entry would run whatever lies in the current directory.
		if p := filepath.Join(dir, name); filepath.IsAbs(p) && runnable(p) {
			return p
		}
	}
	return ""
}

func runnable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil
}

// Version returns what `program --version` prints, asked once per program file (path, size and time) and then remembered in
// the state directory.
func (h Host) Version(ctx context.Context, program string) (string, error) {
	st, err := os.Stat(program)
	if err != nil {
		return "", rung.Errorf(rung.KindUnavailable, "%w", err)
	}
	key := fmt.Sprintf("%s %d %d", program, st.Size(), st.ModTime().UnixNano())
	cache := filepath.Join(h.StateDir, "versions.json")
	known := map[string]string{}
	if raw, err := os.ReadFile(cache); err == nil && json.Unmarshal(raw, &known) == nil && known[key] != "" {
		return known[key], nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", rung.Errorf(rung.KindUnavailable, "%s --version: %w", program, err)
	}
	out = bytes.ToValidUTF8(out[:min(len(out), 4096)], nil)
	for k := range known {
		if strings.HasPrefix(k, program+" ") {
			delete(known, k)
		}
	}
	known[key] = strings.TrimSpace(string(out))
	if err := writeAtomic(cache, known); err != nil && !errors.Is(err, fs.ErrPermission) {
		return "", err
	}
	return known[key], nil
}

func writeAtomic(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
