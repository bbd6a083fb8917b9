package held

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

// place is where the i-th file of a sandbox's Spec.Files lies in its runtime directory.
func place(dir string, i int) string { return filepath.Join(dir, "files", strconv.Itoa(i)) }

// writeFiles puts the sandbox's own files where its holder binds them from; they go with the sandbox's directory.
func writeFiles(dir string, files []driver.File) error {
	if len(files) == 0 {
		return nil
	}
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o700); err != nil {
		return rung.Errorf(rung.KindInternal, "sandbox files: %w", err)
	}
	for i, f := range files {
		// Readable by whoever they are shown to; writable by nobody inside, since they are bound read-only.
		if err := os.WriteFile(place(dir, i), f.Data, 0o644); err != nil {
			return rung.Errorf(rung.KindInternal, "sandbox file %s: %w", f.Path, err)
		}
		if err := os.Chmod(place(dir, i), 0o644); err != nil { // whatever the caller's umask says
			return rung.Errorf(rung.KindInternal, "sandbox file %s: %w", f.Path, err)
		}
	}
	return nil
}

// Paths are where files are shown, for Tree.Files.
func Paths(files []driver.File) (list []string) {
	for _, f := range files {
		list = append(list, f.Path)
	}
	return list
}
