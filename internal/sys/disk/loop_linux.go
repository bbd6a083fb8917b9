package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// prefix marks loop devices as ours.
const prefix = "rung:"

// attach binds image to a free loop device that lets go of it with its last user. Between asking for a free device and
// taking it somebody else may have taken it; then the next one is asked for.
func attach(image *os.File, id string) (*os.File, error) {
	ctl, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "no loop devices: open /dev/loop-control: %w", err).WithHint("modprobe loop")
	}
	defer func() { _ = unix.Close(ctl) }()
	config := unix.LoopConfig{Fd: uint32(image.Fd()), Size: blockSize}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	copy(config.Info.File_name[:len(config.Info.File_name)-1], prefix+id)
	for range attachTries {
		n, err := unix.IoctlRetInt(ctl, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, rung.Errorf(rung.KindUnavailable, "find a free loop device: %w", err)
		}
		loop, err := bind("/dev/loop"+strconv.Itoa(n), &config)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENXIO) {
			continue
		}
		return loop, err
	}
	return nil, rung.Errorf(rung.KindExhausted, "no loop device stayed free for %d tries", attachTries)
}

func bind(name string, config *unix.LoopConfig) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if err := unix.IoctlLoopConfigure(fd, config); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "configure", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// List finds the loop devices that carry disks of ours, for the reaper: after a holder is gone there should be none of
// its sandbox.
func List() ([]Attached, error) {
	bound, err := filepath.Glob("/sys/block/loop*/loop/autoclear") // present while a device is in use
	if err != nil {
		return nil, wrap(err, "list loop devices")
	}
	var list []Attached
	for _, p := range bound {
		name := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(p)))
		id, err := owner(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
			continue // let go meanwhile
		}
		if err != nil {
			return list, wrap(err, "list loop devices")
		}
		if id != "" {
			list = append(list, Attached{Device: name, ID: id})
		}
	}
	return list, nil
}

// owner is the sandbox whose disk the device carries, "" for one that is not ours.
func owner(name string) (string, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	info, err := unix.IoctlLoopGetStatus64(fd)
	if err != nil {
		return "", &os.PathError{Op: "status of", Path: name, Err: err}
	}
	text, _, _ := strings.Cut(string(info.File_name[:]), "\x00")
	id, _ := strings.CutPrefix(text, prefix)
	if id == text {
		return "", nil
	}
	return id, nil
}
