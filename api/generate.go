// Package api is the wire of rung: the Protocol Buffers of the guest's services, what is generated from them (gen, for
// clients and tests: rung-guest itself does not link it), and the hand-written messages and framing that rung-guest and the
// Go client use (wire).
package api

//go:generate go tool -modfile=tools.mod buf generate
