//go:build !amd64 && !arm64

package seccomp

const nameText = ""

var nameAt = [...]uint16{0}
