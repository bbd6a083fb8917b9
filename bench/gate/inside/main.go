// Command inside is the client of bench/gate.sh: one static program that runs in a sandbox, or wherever else the same is
// measured, and prints one line of JSON with numbers.
//
//	inside bulk up|down ADDR SECONDS [NAME]   one TCP connection; NAME: a TLS ClientHello for it precedes the bytes
//	inside connect ADDR N                     N new connections, one after the other, one byte each way
//	inside web [flags]                        HTTPS requests on kept connections
//	inside flood RATE SECONDS                 lookups of names that no rule names; ends when standard input does
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// numbers are one measurement's.
type numbers map[string]float64

func main() {
	n, err := run(os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		os.Exit(1)
	}
}

func run(args []string) (numbers, error) {
	switch {
	case len(args) >= 4 && args[0] == "bulk":
		s, err := strconv.ParseFloat(args[3], 64)
		if err != nil {
			return nil, err
		}
		return bulk(args[1], args[2], time.Duration(s*float64(time.Second)), append(args, "")[4])
	case len(args) == 3 && args[0] == "connect":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return nil, err
		}
		return connect(args[1], n)
	case len(args) >= 1 && args[0] == "web":
		return web(args[1:])
	case len(args) == 4 && args[0] == "flood":
		rate, err := strconv.Atoi(args[2])
		if err != nil {
			return nil, err
		}
		s, err := strconv.Atoi(args[3])
		if err != nil {
			return nil, err
		}
		return flood(args[1], rate, time.Duration(s)*time.Second)
	}
	return nil, errors.New("usage: see the package's documentation")
}

// percentile of sorted values in microseconds.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(int(p*float64(len(sorted))), len(sorted)-1)].Nanoseconds()) / 1000
}

// latencies are the numbers of a list of times.
func latencies(list []time.Duration) numbers {
	slices.Sort(list)
	return numbers{"p50": percentile(list, 0.50), "p99": percentile(list, 0.99), "count": float64(len(list))}
}
