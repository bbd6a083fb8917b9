//go:build !unix

package image

import (
	"errors"
	"fmt"
	"os"
)

func flock(*os.File, bool) error { return fmt.Errorf("file locks: %w", errors.ErrUnsupported) }

func openPublic(path string, _ bool) (*os.File, error) { return os.Open(path) }

func sameDevice(os.FileInfo, os.FileInfo) bool { return true }
