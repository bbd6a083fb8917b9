//go:build linux

// Command inside is what the tests run in a sandbox: it does the steps of a script, one JSON object per line on standard
// input or in the file named, and prints one JSON object for each. $NAME in a step is the variable's value.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// step is one thing to do.
type step struct {
	Do     string            `json:"do"` // http, socket, sni, lookup, tcp, search, wait
	URL    string            `json:"url,omitempty"`
	Method string            `json:"method,omitempty"`
	Two    bool              `json:"two,omitempty"` // HTTP/2
	Header map[string]string `json:"header,omitempty"`
	Body   string            `json:"body,omitempty"`
	User   string            `json:"user,omitempty"` // with Pass: basic authentication
	Pass   string            `json:"pass,omitempty"`
	Host   string            `json:"host,omitempty"`
	Port   int               `json:"port,omitempty"`
	Name   string            `json:"name,omitempty"` // SNI
	Needle []needle          `json:"needle,omitempty"`
	Root   string            `json:"root,omitempty"`  // of the files that are searched
	Since  int64             `json:"since,omitempty"` // Unix seconds: what is older cannot have the value
}

// result is what came of it.
type result struct {
	Do     string              `json:"do"`
	Err    string              `json:"err,omitempty"`
	Status int                 `json:"status,omitempty"`
	Proto  string              `json:"proto,omitempty"`
	Header map[string][]string `json:"header,omitempty"`
	Body   string              `json:"body,omitempty"`
	Found  []string            `json:"found,omitempty"`
	Looked map[string]int64    `json:"looked,omitempty"` // what was searched: files, bytes
}

func main() {
	in := io.Reader(os.Stdin)
	if len(os.Args) > 1 {
		f, err := os.Open(os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	var kept []result // what was answered stays in memory, where the search looks
	for lines.Scan() {
		var s step
		if err := json.Unmarshal([]byte(lines.Text()), &s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		r := s.do()
		r.Do = s.Do
		kept = append(kept, r)
		if err := out.Encode(r); err != nil {
			os.Exit(1)
		}
	}
	if len(kept) == 0 {
		os.Exit(1)
	}
}

func (s step) do() result {
	for _, text := range []*string{&s.URL, &s.Body, &s.User, &s.Pass, &s.Host, &s.Name} {
		*text = expand(*text)
	}
	switch s.Do {
	case "http":
		return s.http()
	case "socket":
		return s.socket()
	case "sni":
		return s.sni()
	case "lookup":
		return s.lookup()
	case "tcp":
		return s.tcp()
	case "search":
		return s.search()
	case "wait": // until the test says so
		b := make([]byte, 1)
		fmt.Println(`{"do":"waiting"}`)
		_, _ = os.Stdin.Read(b)
		return result{}
	}
	return result{Err: "unknown step"}
}

// expand puts variables in, as they are: a value may have a $.
func expand(text string) string {
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		text = strings.ReplaceAll(text, "${"+k+"}", v)
	}
	return text
}
