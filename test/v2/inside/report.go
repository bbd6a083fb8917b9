//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// report writes one line of the protocol, in one write so that nothing comes between.
func report(word, name, text string) {
	line := strings.Join(strings.Fields(fmt.Sprintf("v2: %s %s %s", word, name, text)), " ")
	if len(line) > 8<<10 {
		line = line[:8<<10] + "…"
	}
	_, _ = os.Stdout.WriteString("\n" + line + "\n") // nobody to tell
}

// check collects what is wrong in one case.
type check struct{ wrong []string }

func (c *check) errorf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// that notes what is wrong unless ok.
func (c *check) that(ok bool, format string, args ...any) {
	if !ok {
		c.errorf(format, args...)
	}
}

// try runs one case and reports it.
func try(name string, f func(*check)) {
	c := &check{}
	begin := time.Now()
	f(c)
	took := time.Since(begin).Round(time.Millisecond).String()
	if len(c.wrong) == 0 {
		report("pass", name, took)
		return
	}
	report("fail", name, took+": "+strings.Join(c.wrong, " | "))
}

// eventually polls for what nobody announces.
func eventually(limit time.Duration, ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); time.Now().Before(end); <-tick.C {
		if ok() {
			return true
		}
	}
	return ok()
}
