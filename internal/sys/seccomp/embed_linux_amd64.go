package seccomp

import _ "embed" // the filters, as strings: they cost nothing when a program starts

var (
	//go:embed data/amd64/container.bpf
	containerFilter string
	//go:embed data/amd64/hardened.bpf
	hardenedFilter string
	//go:embed data/amd64/hardened-notify.bpf
	hardenedNotifyFilter string
	//go:embed data/amd64/process.bpf
	processFilter string
	//go:embed data/amd64/process-notify.bpf
	processNotifyFilter string
	//go:embed data/amd64/gate.bpf
	gateFilter string

	//go:embed data/amd64/container.json
	containerOCI string
	//go:embed data/amd64/hardened.json
	hardenedOCI string
	//go:embed data/amd64/hardened-notify.json
	hardenedNotifyOCI string
	//go:embed data/amd64/process.json
	processOCI string
	//go:embed data/amd64/process-notify.json
	processNotifyOCI string
)
