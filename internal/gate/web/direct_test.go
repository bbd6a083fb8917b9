package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripted is an upstream whose n-th connection answers its m-th request with script(n, m), and hangs up where that ends
// in "hang up" or is empty.
func scripted(t *testing.T, script func(conn, request int) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(patience))
				var got []byte
				buf := make([]byte, 4096)
				for m := 0; ; {
					k, err := c.Read(buf)
					got = append(got, buf[:k]...)
					if err != nil {
						return
					}
					if !headOnly(got) {
						continue
					}
					answer := script(n, m)
					if answer == "" {
						return
					}
					answer, last := strings.CutSuffix(answer, "hang up")
					_, _ = io.WriteString(c, answer)
					if last {
						return
					}
					got, m = nil, m+1
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// fetch is one GET's status and body, or its error.
func fetch(t *testing.T, g *gate, method string) string {
	t.Helper()
	r, _ := http.NewRequest(method, g.url("/"), nil)
	res, err := g.client(t, false).Do(r)
	if err != nil {
		return "error"
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "broken " + string(body)
	}
	return fmt.Sprint(res.StatusCode, " ", string(body))
}

const late = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

func TestIdleUpstreamThatClosed(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		script func(conn, request int) string
		want   []string
		dials  int
	}{
		"closes while idle": {"GET", func(_, m int) string {
			return map[int]string{0: okAnswer, 1: okAnswer}[m]
		}, []string{"200 ok", "200 ok", "200 ok", "200 ok"}, 2},
		"times out while idle": {"GET", func(_, m int) string {
			return map[int]string{0: okAnswer, 1: okAnswer, 2: late}[m]
		}, []string{"200 ok", "200 ok", "200 ok"}, 2},
		"answers 408 at once": {"GET", func(int, int) string { return late }, []string{"408 ", "408 "}, 2},
		"hangs up at once": {"GET", func(n, m int) string {
			return map[bool]string{true: okAnswer}[n == 0 && m < 2]
		}, []string{"200 ok", "200 ok", "502"}, 2},
		"breaks off in the head": {"GET", func(_, m int) string {
			return map[int]string{0: okAnswer, 1: okAnswer, 2: "HTTP/1.1 200 OK\r\nContent-Lehang up"}[m]
		}, []string{"200 ok", "200 ok", "502"}, 1},
		"says more than was asked": {"GET", func(int, int) string { return okAnswer + okAnswer }, []string{"200 ok", "200 ok", "200 ok"}, 3},
		"closes by header":         {"GET", func(int, int) string { return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok" }, nil, 0},
		"hints": {"GET", func(int, int) string {
			return "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + okAnswer
		}, []string{"200 ok", "200 ok", "200 ok"}, 1},
		"nothing but hints": {"GET", func(_, m int) string {
			return map[bool]string{true: okAnswer, false: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20)}[m == 0]
		}, []string{"200 ok", "502"}, 1},
		"switches protocols": {"GET", func(_, m int) string {
			return map[bool]string{true: okAnswer, false: "HTTP/1.1 101 Switching Protocols\r\n\r\n"}[m == 0]
		}, []string{"200 ok", "502"}, 1},
		"HEAD":       {"HEAD", func(int, int) string { return "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" }, []string{"200 ", "200 ", "200 "}, 1},
		"no content": {"OPTIONS", func(int, int) string { return "HTTP/1.1 204 No Content\r\n\r\n" }, []string{"204 ", "204 ", "204 "}, 1},
		"huge head": {"GET", func(_, m int) string {
			return map[bool]string{true: okAnswer, false: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxAnswerHead) + "\r\n\r\n"}[m == 0]
		}, []string{"200 ok", "502"}, 1},
		"two lengths": {"GET", func(_, m int) string {
			return map[bool]string{true: okAnswer, false: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok"}[m == 0]
		}, []string{"200 ok", "502"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, scripted(t, test.script), options{})
			for i, want := range test.want {
				if got := fetch(t, g, test.method); !strings.HasPrefix(got, want) {
					t.Errorf("answer %d: %q, want %q", i, got, want)
				}
			}
			if got := len(g.dialer.dials); test.dials > 0 && got != test.dials {
				t.Errorf("%d connections, want %d", got, test.dials)
			}
		})
	}
}

func TestDirectConnectionsAreBoundedAndEnd(t *testing.T) {
	d := &direct{dial: func(context.Context) (net.Conn, error) {
		a, b := net.Pipe()
		t.Cleanup(func() { _ = b.Close() })
		return a, nil
	}}
	var all []*upstream
	for range maxIdle + 10 {
		c, err := d.get(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		d.put(c)
	}
	if len(d.idle) != maxIdle {
		t.Errorf("%d idle connections", len(d.idle))
	}
	for _, c := range all[:10] {
		c.since = time.Now().Add(-2 * idleTimeout)
	}
	d.expire()
	if len(d.idle) != maxIdle-10 {
		t.Errorf("%d idle connections after some have expired", len(d.idle))
	}
	d.close(true)
	if _, err := d.get(context.Background()); err == nil || len(d.idle) != 0 {
		t.Error("it goes on after its end")
	}
	d.put(all[0])
	if len(d.idle) != 0 {
		t.Error("a connection came back after the end")
	}
}
