package seccomp

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/rights"
)

// Bounds of what a runtime may send. The state repeats the container's annotations, and the filter is one of them.
const (
	maxState    = 1 << 20
	maxFDs      = 16
	receiveTime = 10 * time.Second
)

// ReceiveListener takes the seccomp listener that crun or runc sends over a connection to listenerPath, and the container
// process state (JSON of the runtime specification) that comes with it. It waits ten seconds at most, and checks that what
// came is one seccomp listener and nothing else; on an error no descriptor stays open. The connection stays the caller's.
func ReceiveListener(conn *net.UnixConn) (*os.File, []byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(receiveTime)); err != nil {
		return nil, nil, rung.Errorf(rung.KindInternal, "receive the seccomp listener: %w", err)
	}
	var files []*os.File
	state, err := receive(conn, &files)
	switch {
	case err != nil:
	case len(files) != 1:
		err = rung.Errorf(rung.KindInternal, "the runtime sent %d descriptors in place of a seccomp listener", len(files))
	default:
		err = checkListener(files[0])
	}
	if err != nil {
		rights.Close(files)
		return nil, nil, err
	}
	return files[0], state, nil
}

// receive reads until the state is complete or the sender is done. Descriptors arrive with its first byte.
func receive(conn *net.UnixConn, files *[]*os.File) ([]byte, error) {
	var state []byte
	buf := make([]byte, 4<<10)
	for {
		more, n, err := rights.Receive(conn, buf, maxFDs)
		if errors.Is(err, rights.ErrTooMany) {
			return nil, rung.Errorf(rung.KindInternal, "the runtime sent more descriptors than a seccomp listener")
		}
		*files = append(*files, more...)
		state = append(state, buf[:n]...)
		switch {
		case len(state) > maxState:
			return nil, rung.Errorf(rung.KindInternal, "the runtime's container state is longer than %s", rung.FormatBytes(maxState))
		case json.Valid(state):
			return state, nil
		case err != nil && !errors.Is(err, io.EOF):
			return nil, rung.Errorf(rung.KindInternal, "receive the seccomp listener: %w", err)
		case n == 0:
			return nil, rung.Errorf(rung.KindInternal, "the runtime sent no seccomp listener")
		}
	}
}

// checkListener asks the kernel what the descriptor is.
func checkListener(f *os.File) error {
	target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return rung.Errorf(rung.KindInternal, "look at the seccomp listener: %w", err)
	}
	if target != "anon_inode:seccomp notify" {
		return rung.Errorf(rung.KindInternal, "the runtime sent %q in place of a seccomp listener", target)
	}
	return nil
}
