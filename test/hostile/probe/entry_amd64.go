//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// entryAttacks enter the kernel by other doors than the one the filter was written for.
func entryAttacks() []attack {
	return []attack{
		{"i386-program", func(t target) result { return runCode(t, elf32(exit42)) }},
		{"i386-call", func(t target) result { return runCode(t, elf64(exit42)) }},
		{"x32-call", func(target) result {
			_, _, e := unix.Syscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
			if e != 0 {
				return judge(e)
			}
			return judge(nil)
		}},
		{"iopl", func(target) result {
			_, _, e := unix.Syscall(unix.SYS_IOPL, 3, 0, 0) // this process's own
			if e != 0 {
				return judge(e)
			}
			return judge(nil)
		}},
	}
}

// exit42 is `mov eax, 1; mov ebx, 42; int 0x80`: exit(42) by the 32-bit door, in either mode.
var exit42 = []byte{0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80, 0xf4}

// runCode runs a program that says by its exit code that it got through.
func runCode(t target, elf []byte) result {
	path := filepath.Join(t.Scratch[0], ".rung-entry-"+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(path, elf, 0o700); err != nil {
		return failed(err)
	}
	defer os.Remove(path)
	err := exec.Command(path).Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if errors.Is(err, syscall.ENOEXEC) {
			return result{Outcome: absent, Errno: "ENOEXEC"}
		}
		return judge(err)
	}
	if exit.ExitCode() == 42 {
		return result{Outcome: crossed}
	}
	return result{Outcome: held, Detail: exit.String()}
}

const loadAt = 0x08048000

// elf32 is the smallest i386 program: a header, one segment, the code.
func elf32(code []byte) []byte {
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x01\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, 2) // executable
	b = le.AppendUint16(b, 3) // i386
	for _, v := range []uint32{1, loadAt + 84, 52, 0, 0} {
		b = le.AppendUint32(b, v)
	}
	for _, v := range []uint16{52, 32, 1, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	size := uint32(84 + len(code))
	for _, v := range []uint32{1, 0, loadAt, loadAt, size, size, 5, 0x1000} {
		b = le.AppendUint32(b, v)
	}
	return append(b, code...)
}

// elf64 is the same for x86-64.
func elf64(code []byte) []byte {
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, 2)  // executable
	b = le.AppendUint16(b, 62) // x86-64
	b = le.AppendUint32(b, 1)
	for _, v := range []uint64{loadAt + 120, 64, 0} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{64, 56, 1, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	size := uint64(120 + len(code))
	b = le.AppendUint32(b, 1)
	b = le.AppendUint32(b, 5)
	for _, v := range []uint64{0, loadAt, loadAt, size, size, 0x1000} {
		b = le.AppendUint64(b, v)
	}
	return append(b, code...)
}
