//go:build !linux

package main

import "github.com/rung-dev/rung"

func harden() error {
	return rung.Errorf(rung.KindUnavailable, "rung-broker protects its memory by Linux's means, and this is not Linux")
}
