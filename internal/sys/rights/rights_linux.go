// Package rights passes open files between processes as rights of a message on a Unix stream socket (unix(7), SCM_RIGHTS).
package rights

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ErrTooMany says that a message brought more files than were expected. All of them are closed.
var ErrTooMany = errors.New("more descriptors than expected")

// Send writes text with the files as its rights; they stay the caller's. Text must not be empty: rights travel with a byte.
func Send(conn *net.UnixConn, text []byte, files ...*os.File) error {
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix(text, oob, nil)
	return err
}

// Receive reads up to len(text) bytes and at most that many files that came with them, closed on exec. n is how many bytes
// were read. The end of the stream is io.EOF. On an error no file stays open, whatever was read.
func Receive(conn *net.UnixConn, text []byte, most int) (files []*os.File, n int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*most))
	n, used, flags, _, err := conn.ReadMsgUnix(text, oob)
	// What came was given to this process even if the read failed later or brought too much.
	files, bad := parse(oob[:used])
	if err == nil {
		err = bad
	}
	if err == nil && (flags&unix.MSG_CTRUNC != 0 || len(files) > most) {
		err = ErrTooMany
	}
	if err != nil {
		Close(files)
		return nil, n, err
	}
	return files, n, nil
}

func parse(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, e := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, e)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, err
}

// Close closes files that were received; nothing was written to them.
func Close(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
