// Package clients has real network clients speak through the gate, on every rung: curl, npm, pip, go, apt, Python, Node and git.
//
// TestRegistries asks the registries that this host's own clients are configured with, for few and small packages; no host is
// named here. When a registry cannot be reached at all, its rows are skipped with the reason. TestStandIn needs nothing
// outside: its servers stand on addresses for documentation in a network namespace of its own, and rung runs in there.
//
// Each row of both is one run of rung: a client, the flags it needs, and what it must print; without the flags it must be refused,
// with the flag that would help on standard error, and with an event in the log.
package clients
