//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// used says how far an attack on a resource came and what stopped it.
type used struct {
	What  string `json:"what"`
	Count int64  `json:"count"` // bytes, files, processes, calls
	Errno string `json:"errno"`
	MS    int64  `json:"ms"`
}

// exhaust uses up something, at most n of it. what is disk:DIR, inodes:DIR, memory, pids, forkbomb or denied.
func exhaust(what, n string) error {
	most, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		return err
	}
	kind, dir := what, ""
	for i := range what {
		if what[i] == ':' {
			kind, dir = what[:i], what[i+1:]
			break
		}
	}
	begin := time.Now()
	u := used{What: what}
	switch kind {
	case "disk":
		u.Count, err = fillDisk(dir, most)
	case "inodes":
		u.Count, err = fillInodes(dir, most)
	case "memory":
		u.Count = fillMemory(most)
	case "pids":
		u.Count, err = fillPIDs(most)
	case "forkbomb":
		forkBomb(most)
	case "denied":
		u.Count, err = flood(most)
	default:
		return errors.New("no such resource: " + kind)
	}
	if number, ok := errors.AsType[unix.Errno](err); ok {
		u.Errno = unix.ErrnoName(number)
	} else if err != nil {
		u.Errno = err.Error()
	}
	u.MS = time.Since(begin).Milliseconds()
	return json.NewEncoder(os.Stdout).Encode(u)
}

// fillDisk leaves the file: the disk stays full.
func fillDisk(dir string, most int64) (total int64, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "fill"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	block := make([]byte, 256<<10)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for total < most {
		n, err := f.Write(block)
		if total += int64(n); err != nil {
			return total, err
		}
	}
	return total, nil
}

func fillInodes(dir string, most int64) (int64, error) {
	for i := range most {
		n, err := unix.Open(filepath.Join(dir, "inode"+strconv.FormatInt(i, 10)), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		if err != nil {
			return i, err
		}
		unix.Close(n)
	}
	return most, nil
}

// fillMemory touches every page; it tells on standard error how far it came, as it may not live to say more.
func fillMemory(most int64) int64 {
	const step = 4 << 20
	var kept [][]byte
	for total := int64(0); total < most; total += step {
		b := make([]byte, step)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
		fmt.Fprintln(os.Stderr, total+step)
	}
	return int64(len(kept)) * step
}

// fillPIDs starts sleeping processes until it may not, and ends them.
func fillPIDs(most int64) (n int64, err error) {
	var started []*exec.Cmd
	defer func() {
		for _, c := range started {
			_ = c.Process.Kill() // ours, not collected yet
			_ = c.Wait()         // it was killed: that is no news
		}
	}()
	for n = range most {
		c := exec.Command("/bin/sleep", "60")
		if err := c.Start(); err != nil {
			return n, err
		}
		started = append(started, c)
	}
	return most, nil
}

// forkBomb doubles as long as it may: every process starts two more, for the given number of seconds.
func forkBomb(seconds int64) {
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	left := strconv.FormatInt(seconds, 10)
	for time.Now().Before(end) {
		for range 2 {
			_ = exec.Command(self(), "exhaust", "forkbomb", left).Start() // refusals are the point
		}
	}
}

// flood makes calls that are refused.
func flood(most int64) (int64, error) {
	var last error
	for range most {
		last = unix.Unshare(unix.CLONE_NEWNS)
		if last == nil {
			return 0, errors.New("not refused")
		}
	}
	return most, last
}
