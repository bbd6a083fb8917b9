// Command ask is a client that the tests run inside a sandbox: what curl cannot show of a connection.
//
//	ask alive URL N     N requests; prints how many connections the server saw
//	ask many URL N      N requests at once; prints how many had status 200
//	ask sse URL         reads one event, says so at URL/ack, and reads the second, which waits for that
//	ask ws URL          sends text over a WebSocket and prints what comes back
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/websocket"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("what, and where?")
	}
	n := 1
	if len(args) > 2 {
		var err error
		if n, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
	}
	switch args[0] {
	case "alive":
		return alive(args[1], n)
	case "many":
		return many(args[1], n)
	case "sse":
		return sse(args[1])
	case "ws":
		return ws(args[1])
	}
	return errors.New("unknown: " + args[0])
}

func get(url string) (string, error) {
	resp, err := http.Get(url) //nolint:gosec,noctx // a test says which
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

func alive(url string, n int) error {
	seen := map[string]bool{}
	for range n {
		conn, err := get(url)
		if err != nil {
			return err
		}
		seen[conn] = true
	}
	fmt.Println(len(seen), "connections")
	return nil
}

func many(url string, n int) error {
	var wg sync.WaitGroup
	var good atomic.Int64
	for i := range n {
		wg.Go(func() {
			if _, err := get(url + strconv.Itoa(i)); err == nil {
				good.Add(1)
			} else {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	wg.Wait()
	fmt.Println(good.Load(), "good")
	return nil
}

func sse(url string) error {
	resp, err := http.Get(url) //nolint:gosec,noctx // a test says which
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s := bufio.NewScanner(resp.Body)
	for s.Scan() {
		switch s.Text() {
		case "data: one":
			if _, err := get(url + "/ack"); err != nil {
				return err
			}
		case "data: two":
			fmt.Println("streamed")
			return nil
		case "data: late":
			return errors.New("the first event came only with the end")
		}
	}
	return errors.Join(s.Err(), errors.New("no second event"))
}

func ws(url string) error {
	conn, err := websocket.Dial("ws"+strings.TrimPrefix(url, "http"), "", url)
	if err != nil {
		return err
	}
	defer conn.Close()
	var got string
	if err = websocket.Message.Send(conn, strings.Repeat("ping", 50_000)); err == nil {
		err = websocket.Message.Receive(conn, &got)
	}
	if err != nil {
		return err
	}
	fmt.Println("echo of", len(got))
	return nil
}
