//go:build linux

// Command probe tries to get out of the sandbox it runs in, as the test beside it orders, and says what came of it. All it
// reaches are stand-ins in a network namespace of the test's own; it has no way to, and no address of, anything else.
//
//	probe FILE    tries the cases of an order; one result in JSON per line
//	probe late    dials its second argument until it is killed
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rung-dev/rung/test/egress/order"
)

// probe is one run.
type probe struct {
	order order.Order
	proxy string // ADDR:PORT of the sandbox's proxy, "" where there is an interface
	out   *json.Encoder
	mu    sync.Mutex
}

// patience is how long one case may take, atOnce how many are tried at the same time.
const (
	patience = 10 * time.Second
	atOnce   = 12
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 3 && args[0] == "late" {
		return late(args[1], args[2])
	}
	if len(args) != 1 {
		return errors.New("usage: probe FILE")
	}
	raw, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	p := &probe{out: json.NewEncoder(os.Stdout), proxy: proxyAddr()}
	if err := json.Unmarshal(raw, &p.order); err != nil {
		return err
	}
	slots := make(chan struct{}, atOnce)
	if p.order.Serial {
		slots = make(chan struct{}, 1)
	}
	var wg sync.WaitGroup
	for _, c := range p.order.Cases {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			p.tell(p.try(c))
		})
	}
	wg.Wait()
	return nil
}

func (p *probe) tell(r order.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(r) // whoever does not read it misses the case
}

// operations by name.
func (p *probe) operations() map[string]func(order.Case) (string, error) {
	return map[string]func(order.Case) (string, error){
		"dial": p.dial, "stream": p.stream, "follow": p.follow, "relay": p.relay, "repeat": p.repeat, "half": p.half,
		"proxy": p.raw, "dns": p.dns, "names": p.names, "udp": p.udp, "bound": p.bound,
		"icmp": p.icmp, "ip": p.ip, "frame": p.frame,
		"scan": p.scan, "unix": p.unix, "unixgram": p.unixgram, "net": p.net, "env": p.env, "late": p.late,
		"many": p.many, "bytes": p.bytes, "header": p.header, "slow": p.slow, "syns": p.syns,
		"serve": p.serve, "until": p.until, "once": p.once, "again": p.again,
	}
}

func (p *probe) try(c order.Case) order.Result {
	r := order.Result{Name: c.Name}
	do := p.operations()[c.Op]
	if do == nil {
		r.Err = "no such operation: " + c.Op
		return r
	}
	got, err := do(c)
	r.Got = got[:min(len(got), 600)]
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

// wait is a case's own time for an answer, or the operation's.
func wait(c order.Case, usual time.Duration) time.Duration {
	if c.Wait > 0 {
		return time.Duration(c.Wait) * time.Millisecond
	}
	return usual
}

func proxyAddr() string {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
		if v := os.Getenv(name); v != "" {
			_, at, _ := cutScheme(v)
			return at
		}
	}
	return ""
}

func cutScheme(u string) (scheme, at string, ok bool) {
	for i := range len(u) - 2 {
		if u[i:i+3] == "://" {
			at = u[i+3:]
			for j := range len(at) {
				if at[j] == '/' {
					at = at[:j]
					break
				}
			}
			return u[:i], at, true
		}
	}
	return "", u, false
}

// late dials an address again and again: it has outlived the run that started it, if it can.
func late(address, token string) error {
	for range 400 {
		c, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err == nil {
			_, _ = c.Write([]byte(token))
			c.Close()
		}
		time.Sleep(25 * time.Millisecond) // a pace, nobody waits for it
	}
	return nil
}
