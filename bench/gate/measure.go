package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// place is where a client can be.
type place struct {
	name string
	run  func(args ...string) (map[string]float64, error)
}

func (w *world) places() []place {
	return []place{
		{"direct", w.direct},
		{"slirp4netns", func(args ...string) (map[string]float64, error) { return w.within(w.slirp, args...) }},
		{"pasta", func(args ...string) (map[string]float64, error) { return w.within(w.pasta, args...) }},
		{"rung hardened", func(args ...string) (map[string]float64, error) { return w.sandbox("hardened", "few", args...) }},
		{"rung gvisor", func(args ...string) (map[string]float64, error) { return w.sandbox("gvisor", "few", args...) }},
	}
}

func bytesRuns(w *world) (list []measurement) {
	seconds := strconv.FormatFloat(w.d.Seconds(), 'f', -1, 64)
	for _, p := range w.places() {
		for _, direction := range []string{"up", "down"} {
			list = append(list, measurement{p.name + " " + direction, func() (map[string]float64, error) {
				return p.run("bulk", direction, bulkRaw, seconds)
			}})
			if p.name == "rung gvisor" {
				continue
			}
			to := bulkHello
			if strings.HasPrefix(p.name, "rung") {
				to = "bulk.example:443"
			}
			list = append(list, measurement{p.name + " hello " + direction, func() (map[string]float64, error) {
				return p.run("bulk", direction, to, seconds, "bulk.example")
			}})
		}
	}
	return list
}

func connectionRuns(w *world) (list []measurement) {
	for _, p := range w.places() {
		list = append(list, measurement{p.name, func() (map[string]float64, error) {
			return p.run("connect", echoAddr, strconv.Itoa(w.conns))
		}})
	}
	return list
}

// pacedRate is the load at which latency is compared: at full load each latency is only what the throughput leaves.
const pacedRate = 1000

func webRuns(w *world) (list []measurement) {
	pasta := func(args ...string) (map[string]float64, error) { return w.within(w.pasta, args...) }
	hardened := func(args ...string) (map[string]float64, error) { return w.sandbox("hardened", "few", args...) }
	for _, c := range []struct {
		name string
		to   []string
		run  func(args ...string) (map[string]float64, error)
	}{
		{"direct", []string{"-addr", webAddr}, w.direct},
		{"pasta", []string{"-addr", webAddr}, pasta},
		{"goproxy", []string{"-proxy", mitmAddr}, w.direct},
		{"goproxy pasta", []string{"-proxy", mitmAddr}, pasta},
		{"rung hardened", []string{"-addr", "web.example:443"}, hardened},
	} {
		for _, load := range []struct{ name, conns, rate string }{{"1", "1", "0"}, {"100", "100", "0"}, {"paced", "100", strconv.Itoa(pacedRate)}} {
			list = append(list, measurement{c.name + " " + load.name, func() (map[string]float64, error) {
				args := append([]string{"web", "-name", "web.example", "-conns", load.conns, "-rate", load.rate, "-for", w.d.String()}, c.to...)
				return c.run(args...)
			}})
		}
	}
	return list
}

// flood starts a sandbox that asks for what nobody allowed; the returned function ends it and gives the rates.
func (w *world) flood(server string, rate int) (end func() (map[string]float64, error), err error) {
	args := w.rungArgs("hardened", "none", append(w.copied(), "--timeout", "60s"), []string{"/work/inside", "flood", server, strconv.Itoa(rate), "60"})
	b, err := w.start("up", args[0], args[1:]...)
	if err != nil {
		return nil, err
	}
	return func() (map[string]float64, error) {
		b.stdin.Close()
		n := map[string]float64{}
		err := json.NewDecoder(b.out).Decode(&n)
		if e := b.cmd.Wait(); err == nil {
			err = e
		}
		w.running = w.running[:len(w.running)-1]
		return n, err
	}, nil
}

// gateDNS is where every sandbox finds the gate's name server.
const gateDNS = "192.0.0.1:53"

const floodRate = 10_000

func loadRuns(w *world) (list []measurement) {
	for _, c := range []struct{ name, policy, flood string }{
		{"quiet", "few", ""},
		{"rules", "many", ""},
		{"lookups", "few", gateDNS},
		{"both", "many", gateDNS},
		{"control", "few", "self"},
	} {
		list = append(list, measurement{c.name, func() (map[string]float64, error) { return w.beside(c.policy, c.flood) }})
	}
	return list
}

// beside measures the allowed flow with a policy, with a flood or without.
func (w *world) beside(policy, server string) (map[string]float64, error) {
	all := map[string]float64{}
	end := func() (map[string]float64, error) { return nil, nil }
	if server != "" {
		var err error
		if end, err = w.flood(server, floodRate); err != nil {
			return nil, fmt.Errorf("flood: %w", err)
		}
	}
	seconds := strconv.FormatFloat(w.d.Seconds(), 'f', -1, 64)
	n, err := w.sandbox("hardened", policy, "bulk", "down", bulkRaw, seconds)
	if err == nil {
		all["gbit"] = n["gbit"]
		n, err = w.sandbox("hardened", policy, "web", "-name", "web.example", "-addr", "web.example:443", "-rate", "500", "-for", w.d.String())
	}
	flooded, e := end()
	if err != nil {
		return nil, err
	}
	if e != nil {
		return nil, fmt.Errorf("flood: %w", e)
	}
	all["p50"], all["p99"] = n["p50"], n["p99"]
	maps.Copy(all, flooded)
	return all, nil
}

func startRuns(w *world) (list []measurement) {
	for _, rung := range []string{"process", "container", "hardened", "gvisor"} {
		for _, egress := range []string{"none", "deny"} {
			list = append(list, measurement{rung + " " + egress, func() (map[string]float64, error) {
				args := w.rungArgs(rung, "", []string{"--egress", egress}, []string{"/bin/true"})
				if egress == "deny" { // what a run gets that does not say
					args = w.rungArgs(rung, "", nil, []string{"/bin/true"})
				}
				times := &samples{of: map[string][]float64{}}
				for range w.starts {
					start := time.Now()
					if _, err := w.numbers(args...); err != nil {
						return nil, err
					}
					times.add("", map[string]float64{"ms": float64(time.Since(start).Microseconds()) / 1000})
				}
				return map[string]float64{"ms": times.median(" ms")}, nil
			}})
		}
	}
	return list
}
