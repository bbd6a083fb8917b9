//go:build linux

package secrets

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// searched is the step that looks everywhere inside. started is when the value was made: what is older cannot have it.
func searched(root string, started time.Time, named map[string]string) step {
	return step{"do": "search", "needle": needles(named), "root": root, "since": started.Unix() - 1}
}

// TestNowhere: a program that has used a secret in all ways, and kept all answers, finds it nowhere: not in its environment,
// its memory, that of others, /proc, nor any file. The same search finds what it was given to find.
func TestNowhere(t *testing.T) {
	on(t, func(t *testing.T, h *house, wall string) {
		started := time.Now()
		v, canary, keyLog := value(), value(), h.file("keylog")
		h.add("KEY", v)
		named := map[string]string{"canary": canary}
		for name, text := range spellings(v) {
			named["value "+name] = text
		}
		if err := os.WriteFile(h.file("canary"), []byte("in a file: "+canary), 0o644); err != nil {
			t.Fatal(err)
		}
		var steps []step
		for _, path := range []string{"/headers", "/body", "/chunks", "/trailer"} {
			steps = append(steps, step{"do": "http", "url": "https://api.example" + path + "?key=${KEY}", "two": true, "header": map[string]string{"Authorization": "Bearer ${KEY}"}},
				step{"do": "http", "url": "https://api.example" + path, "method": "POST", "body": "${KEY}"})
		}
		steps = append(steps, searched("/", started, named))
		world.take()
		results := h.inside(wall, steps, "--allow", "api.example", "--secret", "KEY@api.example:query,body", "--in", h.file("canary"),
			"--env", "CANARY="+canary, "--env", "SSLKEYLOGFILE="+keyLog)
		if got := world.take(); len(got) != len(steps)-1 || !has(got[0], v) {
			t.Fatalf("the secret was not used: %v", got)
		}
		r := results[len(results)-1]
		t.Logf("searched: %v", r.Looked)
		found := strings.Join(r.Found, "\n")
		for _, where := range r.Found {
			if strings.HasPrefix(where, "value") {
				t.Errorf("found the %s", where)
			}
		}
		for _, where := range []string{"canary in my environment", "/environ", "/canary", "/mem"} {
			if !strings.Contains(found, where) && !(where == "/mem" && r.Looked["memories"] == 0 && wall == "gvisor") {
				t.Errorf("the search does not find %s: it proves nothing (%s)", where, found)
			}
		}
		if _, err := os.Stat(keyLog); err == nil {
			t.Error("somebody wrote a TLS key log on the host")
		}
		h.nowhereOutside(v)
	})
}

// TestControl: on none the search finds a value that the program was given.
func TestControl(t *testing.T) {
	h, v := newHouse(t), value()
	look := searched(".", time.Now(), map[string]string{"value": v})
	look["method"] = "own" // not all of this host
	out := h.must(script([]step{look}), "run", "-q", "--rung", "none", "--i-know-this-is-not-a-sandbox",
		"--env", "KEY="+v, "--", program("inside"))
	found := strings.Join(h.results(strings.NewReader(out), 1)[0].Found, "\n")
	for _, where := range []string{"value in my environment", "/self/environ", "/self/mem"} {
		if !strings.Contains(found, where) {
			t.Errorf("%s is not found: %s", where, found)
		}
	}
}

// nowhereOutside looks for a value in all that rung keeps: logs, records, state.
func (h *house) nowhereOutside(v string) {
	h.Helper()
	files := 0
	err := filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files++
		if in := holds(text, v); len(in) > 0 {
			h.Errorf("%s has the value (%v)", path, in)
		}
		return err
	})
	if err != nil || files < 5 {
		h.Errorf("%d files: %v", files, err)
	}
}

// gate returns the process that serves this house.
func (h *house) gate() int {
	h.Helper()
	for pid, cmdline := range processes() {
		if !strings.Contains(cmdline, "rung-gate") {
			continue
		}
		env, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if bytes.Contains(env, []byte(h.file("resolv.conf"))) {
			return pid
		}
	}
	h.Fatal("no gate runs")
	return 0
}

// processes are all there are, with their arguments.
func processes() map[int]string {
	all := map[int]string{}
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range list {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if text, err := os.ReadFile(dir + "/cmdline"); err == nil {
			all[pid] = string(text)
		}
	}
	return all
}
