package log

import (
	"errors"
	"os"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/below"
)

// OpenFile opens a regular file below root, never by a link (package below). A file that is being replaced is an error.
func OpenFile(root *os.Root, name string, flags int) (*os.File, error) {
	f, _, err := below.Open(root, name, flags)
	if errors.Is(err, below.ErrIrregular) || errors.Is(err, below.ErrReplaced) {
		err = rung.Errorf(rung.KindUnavailable, "%s is not a regular file, or was replaced while it was opened", name).
			WithHint("only rung's own user can write there: find out who put it there, and remove it")
	}
	return f, err
}
