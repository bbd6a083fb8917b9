//go:build linux

package main

import "github.com/rung-dev/rung/internal/sys/measure"

// self is what this process can and cannot do.
func self() any { return measure.Self() }
