//go:build linux

package main

// entryAttacks: the 32-bit door of this architecture needs a processor that has it; the filter's test covers it.
func entryAttacks() []attack { return nil }
