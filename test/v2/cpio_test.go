//go:build linux

package v2

import (
	"fmt"
	"io"
	"os"
)

// cpio writes an initial ram disk: the "newc" format (initramfs buffer format, Documentation/driver-api/early-userspace).
type cpio struct {
	w   io.Writer
	ino int
	err error
}

const (
	modeDir  = 0o040755
	modeFile = 0o100755
	modeChar = 0o020600
)

// add writes one entry; major and minor are for devices.
func (c *cpio) add(name string, mode uint32, data []byte, major, minor int) {
	c.ino++
	c.printf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.ino, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0, name)
	c.pad(110 + len(name) + 1)
	c.write(data)
	c.pad(len(data))
}

func (c *cpio) file(name, from string) {
	data, err := os.ReadFile(from)
	if c.err == nil {
		c.err = err
	}
	c.add(name, modeFile, data, 0, 0)
}

func (c *cpio) end() error {
	c.add("TRAILER!!!", 0, nil, 0, 0)
	return c.err
}

// pad fills up to a multiple of four.
func (c *cpio) pad(n int) { c.write(make([]byte, -n&3)) }

func (c *cpio) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
	}
}

func (c *cpio) printf(format string, args ...any) { c.write(fmt.Appendf(nil, format, args...)) }
