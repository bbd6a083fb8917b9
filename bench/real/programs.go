package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// humanEval is how many problems the data set has.
const humanEval = 164

// problem is one line of the data set.
type problem struct {
	TaskID     string `json:"task_id"`
	Prompt     string `json:"prompt"`
	Solution   string `json:"canonical_solution"`
	Test       string `json:"test"`
	EntryPoint string `json:"entry_point"`
}

// source is the program: the solution, the problem's tests, and their call.
func (p problem) source() string {
	return p.Prompt + p.Solution + "\n" + p.Test + "\ncheck(" + p.EntryPoint + ")\n"
}

func load(o options) ([]problem, error) {
	path := o.data
	if path == "" {
		path = filepath.Join("..", "shared", "data", "HumanEval.jsonl.gz")
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w\nset RUNG_HUMANEVAL to HumanEval.jsonl.gz of github.com/openai/human-eval", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []problem
	for dec := json.NewDecoder(z); ; {
		var p problem
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, p)
	}
	if o.limit > 0 {
		all = all[:min(o.limit, len(all))]
	}
	return all, nil
}

func unpack(dir string, problems []problem) error {
	at := filepath.Join(dir, "programs")
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	for _, p := range problems {
		name := strings.ReplaceAll(p.TaskID, "/", "-") + ".py"
		if err := os.WriteFile(filepath.Join(at, name), []byte(p.source()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// runAll runs every program once, o.jobs at a time, and times the whole.
func runAll(o options, dir string, c contender) (result, error) {
	files, err := filepath.Glob(filepath.Join(dir, "programs", "*.py"))
	if err != nil {
		return result{}, err
	}
	slices.Sort(files)
	if why := runOne(o, c, files[0], "warm"); why != "" && len(files) > 1 {
		return result{}, fmt.Errorf("does not run here: %s", why)
	}
	r := result{Total: len(files)}
	var (
		wait sync.WaitGroup
		mu   sync.Mutex // guards r
	)
	work := make(chan int)
	start := time.Now()
	for range o.jobs {
		wait.Go(func() {
			for i := range work {
				why := runOne(o, c, files[i], fmt.Sprint(i))
				mu.Lock()
				if why == "" {
					r.Passed++
				} else {
					r.Failures = append(r.Failures, filepath.Base(files[i])+": "+why)
				}
				mu.Unlock()
			}
		})
	}
	for i := range files {
		work <- i
	}
	close(work)
	wait.Wait()
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// runOne returns "" for a pass, else what went wrong.
func runOne(o options, c contender, file, id string) string {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	args := c.command(file, fmt.Sprintf("real-%d-%s", os.Getpid(), id))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if c.stdin {
		f, err := os.Open(file)
		if err != nil {
			return err.Error()
		}
		defer f.Close()
		cmd.Stdin = f
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	if len(out) > 2000 {
		out = out[len(out)-2000:]
	}
	return fmt.Sprintf("%v: %s", err, bytes.TrimSpace(out))
}
