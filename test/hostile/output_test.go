//go:build linux

package hostile

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/rung-dev/rung"
)

// swapping leaves a daemon behind that keeps turning a directory into a link to /etc and back while outputs are copied.
const swapping = `mkdir -p out/keep; echo kept >out/keep/f
(while :; do mkdir out/d; echo x >out/d/f; mv out/d out/e; ln -s /etc out/d; rm -rf out/d out/e; done) >/dev/null 2>&1 &
sleep 0.1`

// TestOutputsSwapped: a link that comes and goes under the copier is never followed, and no link comes out. A copy that met
// one may be refused.
func TestOutputsSwapped(t *testing.T) {
	for _, r := range []rung.Rung{rung.Process, rung.Hardened} {
		t.Run(string(r), func(t *testing.T) {
			whole := 0
			for range 8 {
				out := filepath.Join(t.TempDir(), "out")
				rec := recorded(t, r, "--out", "out:"+out, "--", "/bin/sh", "-c", swapping)
				if rec.ExitReason == rung.Exited && rec.Error == "" {
					whole++
				}
				err := filepath.WalkDir(out, func(p string, d fs.DirEntry, err error) error {
					if err != nil {
						return nil //nolint:nilerr // a refused output is not there
					}
					if !d.IsDir() && (!d.Type().IsRegular() || d.Name() != "f") {
						t.Errorf("came out through a link: %s (%s)", p, d.Type())
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
			t.Logf("%d of 8 copies were whole", whole)
		})
	}
}
