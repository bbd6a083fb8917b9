package web

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkInspected is requests through an opened TLS connection to an HTTPS origin, all on this machine; direct is the
// same client and origin without a gate between them. One operation is one request.
func BenchmarkInspected(b *testing.B) {
	for _, h2 := range []bool{false, true} {
		addr, roots := origin(b, true, h2, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"ok":true}`)
		})
		g := newGate(b, addr, options{tls: true, roots: roots})
		direct := &gate{session: g.session, ca: g.ca, addr: addr}
		for _, conns := range []int{1, 100} {
			for _, way := range []string{"direct", "gate"} {
				b.Run(fmt.Sprintf("h2=%v/connections=%d/%s", h2, conns, way), func(b *testing.B) {
					clients := make([]*http.Client, conns)
					for i := range clients {
						if way == "gate" {
							clients[i] = g.client(b, h2)
							continue
						}
						clients[i] = direct.client(b, h2)
						clients[i].Transport.(*http.Transport).TLSClientConfig.RootCAs = roots
					}
					load(b, clients, g.url("/"))
				})
			}
		}
	}
}

// load spreads b.N requests over the clients and reports the latencies.
func load(b *testing.B, clients []*http.Client, url string) {
	var left atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	run := func(c *http.Client) {
		var mine []time.Duration
		for left.Add(-1) >= 0 {
			begun := time.Now()
			res, err := c.Get(url)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			mine = append(mine, time.Since(begun))
		}
		mu.Lock()
		took = append(took, mine...)
		mu.Unlock()
	}
	round := func(n int) {
		left.Store(int64(n))
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() { run(c) })
		}
		wg.Wait()
	}
	for _, c := range clients { // the handshakes are not measured
		left.Store(1)
		run(c)
	}
	took = nil
	b.ReportAllocs()
	b.ResetTimer()
	round(b.N)
	b.StopTimer()
	slices.Sort(took)
	if len(took) > 0 {
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	}
}

// BenchmarkNewConnection is a client's whole connection: handshake here, one request, upstream connection reused.
func BenchmarkNewConnection(b *testing.B) {
	addr, roots := origin(b, true, true, func(http.ResponseWriter, *http.Request) {})
	g := newGate(b, addr, options{tls: true, roots: roots})
	for b.Loop() {
		c := g.client(b, false)
		res, err := c.Get(g.url("/"))
		if err != nil {
			b.Fatal(err)
		}
		_ = res.Body.Close()
		c.CloseIdleConnections()
	}
}

// BenchmarkDownload is bytes of one long answer.
func BenchmarkDownload(b *testing.B) {
	piece := make([]byte, 1<<20)
	for _, h2 := range []bool{false, true} {
		addr, roots := origin(b, true, h2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(64*len(piece)))
			for range 64 {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		})
		for _, masked := range []bool{false, true} {
			o := options{tls: true, roots: roots}
			if masked {
				o.secrets, _ = secrets(b, name, nil)
			}
			g := newGate(b, addr, o)
			c := g.client(b, h2)
			b.Run(fmt.Sprintf("h2=%v/masked=%v", h2, masked), func(b *testing.B) {
				b.SetBytes(int64(64 * len(piece)))
				for b.Loop() {
					res, err := c.Get(g.url("/"))
					if err != nil {
						b.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, res.Body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
