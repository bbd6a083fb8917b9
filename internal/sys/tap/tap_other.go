//go:build !linux

package tap

import (
	"os"

	"github.com/rung-dev/rung"
)

// Open is only possible on Linux.
func Open(string) (*os.File, error) { return nil, unsupported() }

// Usable says that there is no such device here.
func Usable() error { return unsupported() }

// Configure is only possible on Linux.
func Configure(string) (bool, error) { return false, unsupported() }

func unsupported() error {
	return rung.Errorf(rung.KindUnsupported, "a sandbox's network link needs Linux")
}
