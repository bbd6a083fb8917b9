// Package secrets tries the whole way of a secret: stored by `rung secret add`, lent by the broker, used by the gate for a
// sandbox that has a placeholder, and then searched for wherever the sandbox, and the host, could find it. The servers are
// stand-ins on documentation addresses of a network namespace that the tests make for themselves.
package secrets
