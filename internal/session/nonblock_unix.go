//go:build unix

package session

import "syscall"

// nonblock keeps an open of a fifo from waiting for its other end.
const nonblock = syscall.O_NONBLOCK
