//go:build linux

package main

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// reply writes an answer; it ends when the client has had enough.
type reply func(w io.Writer)

// answer reads one request and answers it: by the act when it is about this request, else as a guest would.
func answer(conn net.Conn, c *channel, how string) {
	defer conn.Close()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	path := req.URL.Path
	if act := frameActs()[how]; act != nil && path == "/rung/v1/measure" {
		act(c)
		return
	}
	if how == "list-recurses" && path == "/filesystem.Filesystem/ListDir" {
		recursion(conn, req.Body)
		return
	}
	if act, ok := acts()[how]; ok && strings.HasPrefix(path, act.on) {
		act.do(conn)
		return
	}
	go func() { _, _ = io.Copy(io.Discard, req.Body) }() // an upload is taken
	usual(path)(conn)
}

// usual is what a guest would say to the request, of a command that ends at once.
func usual(path string) reply {
	switch path {
	case "/health":
		return say("HTTP/1.1 204 No Content\r\n\r\n")
	case "/rung/v1/measure":
		return body("{}")
	case "/process.Process/Start":
		return stream(start, data("hello\n"), end(0), done)
	case "/filesystem.Filesystem/Stat":
		return body(`{"entry":` + entry("/work/out", "DIRECTORY") + `}`)
	case "/filesystem.Filesystem/ListDir":
		return body(`{"entries":[` + entry("/work/out/a", "FILE") + `]}`)
	case "/files":
		return body("content")
	}
	return body("{}")
}

func say(text string) reply { return func(w io.Writer) { _, _ = io.WriteString(w, text) } }

func body(text string) reply {
	return say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
}

const chunked = "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n"

// endless says head and then text for ever.
func endless(head, text string) reply {
	return func(w io.Writer) {
		block := strings.Repeat(text, 1+(32<<10)/len(text))
		if _, err := io.WriteString(w, head); err != nil {
			return
		}
		for {
			if _, err := io.WriteString(w, block); err != nil {
				return
			}
		}
	}
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func envelope(flags byte, msg string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(msg)))) + msg
}

func stream(messages ...string) reply {
	return say(chunked + chunk(strings.Join(messages, "")) + "0\r\n\r\n")
}

var (
	start = envelope(0, `{"event":{"start":{"pid":7}}}`)
	done  = envelope(2, `{}`)
)

func data(text string) string {
	return envelope(0, `{"event":{"data":{"stdout":"`+base64.StdEncoding.EncodeToString([]byte(text))+`"}}}`)
}

func end(code int) string {
	return envelope(0, fmt.Sprintf(`{"event":{"end":{"exitCode":%d,"exited":true,"status":"exit status %d"}}}`, code, code))
}

func entry(path, kind string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return fmt.Sprintf(`{"name":%q,"path":%q,"type":"FILE_TYPE_%s","size":"7","mode":493,"permissions":"-rwxr-xr-x","modifiedTime":"2026-01-01T00:00:00Z"}`, name, path, kind)
}

// act is an answer to requests whose path begins with on.
type act struct {
	on string
	do reply
}

func acts() map[string]act {
	const measure, begin, stat, list, files = "/rung/v1/measure", "/process.Process/Start", "/filesystem.Filesystem/Stat", "/filesystem.Filesystem/ListDir", "/files"
	drip := func(w io.Writer) {
		for {
			if _, err := io.WriteString(w, "H"); err != nil {
				return
			}
			<-time.After(time.Second)
		}
	}
	listing := func(paths ...string) act {
		var all []string
		for _, p := range paths {
			all = append(all, entry(p, "FILE"))
		}
		return act{list, body(`{"entries":[` + strings.Join(all, ",") + `]}`)}
	}
	return map[string]act{
		"status-is-an-error":    {measure, say("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")},
		"status-never-ends":     {measure, endless("HTTP/1.1 2", "0")},
		"headers-never-end":     {measure, endless("HTTP/1.1 200 OK\r\n", "X-Evil: yes\r\n")},
		"header-never-ends":     {measure, endless("HTTP/1.1 200 OK\r\nX-Evil: ", "yes")},
		"continue-for-ever":     {measure, endless("", "HTTP/1.1 100 Continue\r\n\r\n")},
		"body-never-ends":       {measure, endless(chunked, chunk(strings.Repeat(" ", 4096)))},
		"chunk-of-all-there-is": {measure, endless(chunked+"7fffffffffffffff\r\n", "[")},
		"chunk-size-overflows":  {measure, say(chunked + "fffffffffffffffff\r\nx")},
		"length-lies":           {measure, say("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n{")},
		"length-negative":       {measure, say("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}")},
		"length-twice":          {begin, say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ")},
		"json-is-deep":          {measure, func(w io.Writer) { body(strings.Repeat("[", 1<<20))(w) }},
		"measure-is-a-string":   {measure, body(`"none of your business"`)},
		"measure-drips":         {measure, drip},
		"envelope-of-4-GiB":     {begin, say(chunked + chunk("\x00\xff\xff\xff\xff{"))},
		"envelope-flags":        {begin, stream("\xff\x00\x00\x00\x02{}")},
		"end-before-start":      {begin, stream(end(0), start, done)},
		"start-twice":           {begin, stream(start, start, data("x"), end(0), done)},
		"end-twice":             {begin, stream(start, end(1), end(0), done)},
		"data-after-end":        {begin, stream(start, end(3), data("late"), done)},
		"no-end":                {begin, stream(start, data("x"), done)},
		"cut":                   {begin, say(chunked + chunk(start+data("x")))},
		"output-never-ends":     {begin, endless(chunked+chunk(start), chunk(data(strings.Repeat("y", 4096))))},
		"nothing-never-ends":    {begin, endless(chunked+chunk(start), chunk(envelope(0, `{"event":{"keepalive":{}}}`)))},
		"never-says-more":       {begin, func(w io.Writer) { _, _ = io.WriteString(w, chunked+chunk(start)); <-time.After(forever) }},
		"never-says-started":    {begin, func(w io.Writer) { _, _ = io.WriteString(w, chunked); <-time.After(forever) }},
		"start-drips":           {begin, drip},
		"exit-code-is-huge":     {begin, stream(start, envelope(0, `{"event":{"end":{"exitCode":99999999999,"exited":true,"status":"exit status 0"}}}`), done)},
		"exit-code-negative":    {begin, stream(start, envelope(0, `{"event":{"end":{"exitCode":-5,"exited":true}}}`), done)},
		"status-escapes":        {begin, stream(start, envelope(0, `{"event":{"end":{"status":"signal: \u001b]0;owned\u0007"}}}`), done)},
		"error-escapes":         {begin, stream(envelope(2, `{"error":{"code":"internal","message":"\u001b]0;owned\u0007\n`+strings.Repeat("A", 100_000)+`"}}`))},
		"names-climb":           listing("/work/out/../../../../etc/cron.d/evil"),
		"names-are-elsewhere":   listing("/etc/cron.d/evil"),
		"names-hold-nul":        listing("/work/out/a\x00b"),
		"names-are-empty":       listing("/work/out/"),
		"names-are-dots":        listing("/work/out/.."),
		"names-repeat":          listing("/work/out/a", "/work/out/a"),
		"names-are-long":        listing("/work/out/" + strings.Repeat("n", 5000)),
		"list-never-ends":       {list, endless(chunked, chunk(`{"entries":[`+entry("/work/out/a", "FILE")+`,`))},
		"list-is-long": {list, func(w io.Writer) {
			body(`{"entries":[` + strings.TrimSuffix(strings.Repeat(entry("/work/out/a", "FILE")+",", 110_000), ",") + `]}`)(w)
		}},
		"file-never-ends":   {files, endless(chunked, chunk(strings.Repeat("z", 8192)))},
		"file-is-cut":       {files, say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")},
		"stat-has-no-entry": {stat, body(`{}`)},
	}
}

// recursion is a directory in every directory, without end.
func recursion(w io.Writer, r io.Reader) {
	var asked struct{ Path string }
	if json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&asked) != nil {
		return
	}
	body(`{"entries":[` + entry(asked.Path+"/d", "DIRECTORY") + `]}`)(w)
}
