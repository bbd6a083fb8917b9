//go:build !linux

package image

func swap(from, to string) error { return swapInSteps(from, to) }
