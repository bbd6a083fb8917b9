//go:build !linux

package measure

import (
	"os"

	"github.com/rung-dev/rung"
)

func self() Measurement {
	m := Measurement{UID: os.Getuid(), GID: os.Getgid(), SeccompFilters: -1}
	m.fail("kernel", "only Linux can be measured")
	return m
}

func hostOnce() HostFacts { return HostFacts{} }

func mounts() ([]Mount, error) {
	return nil, rung.Errorf(rung.KindUnsupported, "only Linux can be measured")
}
