package lock

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// AcquireSlot takes the lowest free slot for that sandbox and writes its id into it; the slot is free again when every
// copy of the file is closed. A free slot whose last user still has remains (busy says so; nil is never) is passed over:
// a process that survived its sandbox would share its ids with the next one. KindExhausted when all are taken.
func AcquireSlot(runtimeDir, id string, busy func(id string) bool) (int, *os.File, error) {
	if err := rung.ValidName(id); err != nil {
		return 0, nil, err
	}
	for n := range Slots {
		f, err := slot(runtimeDir, n, id, busy)
		if err != nil {
			return 0, nil, wrap(err, "slot %d", n)
		}
		if f != nil {
			return n, f, nil
		}
	}
	return 0, nil, rung.Errorf(rung.KindExhausted, "all %d id ranges are in use", Slots).WithHint("end sandboxes, or run: rung reap")
}

// slot takes slot n if it is free, else returns nil.
func slot(runtimeDir string, n int, id string, busy func(id string) bool) (*os.File, error) {
	name := runtimeDir + "/slots/" + strconv.Itoa(n)
	f, err := openLock(name, unix.O_CREAT)
	if errors.Is(err, fs.ErrNotExist) {
		if err = Prepare(runtimeDir); err == nil {
			f, err = openLock(name, unix.O_CREAT)
		}
	}
	if err != nil {
		return nil, err
	}
	ok, err := try(f, unix.LOCK_EX)
	if err == nil && ok {
		if last := user(f); busy != nil && last != "" && last != id && busy(last) {
			ok = false
		}
	}
	if err == nil && ok {
		err = sign(f, id)
	}
	if err != nil || !ok {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// user reads the id in a slot file: the first line, or nothing when that is no id.
func user(f *os.File) string {
	var b [80]byte
	n, err := unix.Pread(int(f.Fd()), b[:], 0)
	if err != nil || n <= 0 {
		return ""
	}
	id, _, _ := strings.Cut(string(b[:n]), "\n")
	if rung.ValidName(id) != nil {
		return ""
	}
	return id
}

// sign writes the id. The new line is written before the old rest is cut off, so that a crash leaves no empty file that
// would hide who used the slot last.
func sign(f *os.File, id string) error {
	line := id + "\n"
	if _, err := unix.Pwrite(int(f.Fd()), []byte(line), 0); err != nil {
		return &os.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	if err := unix.Ftruncate(int(f.Fd()), int64(len(line))); err != nil {
		return &os.PathError{Op: "truncate", Path: f.Name(), Err: err}
	}
	return nil
}
