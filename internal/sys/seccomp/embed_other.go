//go:build !linux || !(amd64 || arm64)

package seccomp

func filterText(Profile) string { return "" }

func ociText(Profile) string { return "" }
