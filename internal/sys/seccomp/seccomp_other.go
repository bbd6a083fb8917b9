//go:build !linux

package seccomp

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/rung-dev/rung"
)

func errOther() error {
	return rung.Errorf(rung.KindUnavailable, "system call filters are Linux's: %w", errors.ErrUnsupported)
}

// Supervise needs Linux.
func Supervise(context.Context, *os.File, func(rung.Denied)) error { return errOther() }

// ReceiveListener needs Linux.
func ReceiveListener(*net.UnixConn) (*os.File, []byte, error) { return nil, nil, errOther() }

// Install needs Linux.
func Install([]byte, bool) (*os.File, error) { return nil, errOther() }
