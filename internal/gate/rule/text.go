package rule

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// Text writes a rule in one line, as denials and events call a rule without a name: "allow index.test:443". A rule that --allow
// can express is written as --allow reads it, after the word allow; one of several ports has a comma in between.
func Text(r rung.EgressRule) string {
	var b strings.Builder
	b.WriteString("allow ")
	b.WriteString(r.Host)
	b.WriteString(r.CIDR)
	if ports := portsOf(r); !slices.Equal(ports, []int{80, 443}) {
		b.WriteByte(':')
		for i, port := range ports {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(itoa(port))
		}
	}
	if r.Protocol == "tcp" {
		b.WriteString("/tcp")
	}
	writeConditions(&b, r)
	return b.String()
}

func writeConditions(b *strings.Builder, r rung.EgressRule) {
	list := func(word string, values []string) {
		const most = 3
		b.WriteString(" " + word + " ")
		switch {
		case len(values) == 0:
			b.WriteString("none")
		case len(values) > most:
			b.WriteString(strings.Join(values[:most], ",") + ",…")
		default:
			b.WriteString(strings.Join(values, ","))
		}
	}
	if r.Methods != nil {
		list("methods", r.Methods)
	}
	if r.Paths != nil {
		list("paths", r.Paths)
	}
	if len(r.Secrets) > 0 {
		list("secrets", r.Secrets)
	}
	if r.Registry != nil {
		b.WriteString(" registry " + r.Registry.Kind)
	}
	for _, f := range []struct {
		set  bool
		word string
	}{
		{r.RequireTLS, "require_tls"},
		{r.WebSocket, "websocket"},
		{r.Approve, "approve"},
		{r.Identity != "", "identity " + r.Identity},
		{r.Limits != nil, "limits"},
	} {
		if f.set {
			b.WriteString(" " + f.word)
		}
	}
}

// tcpPorts are ports whose protocol is not HTTP, so that a hint proposes a tcp rule for them.
var tcpPorts = map[int]bool{
	21: true, 22: true, 23: true, 25: true, 110: true, 143: true, 389: true, 465: true, 587: true, 636: true, 873: true, 993: true,
	995: true, 1433: true, 1521: true, 1883: true, 2049: true, 3306: true, 3389: true, 4222: true, 5222: true, 5432: true,
	5671: true, 5672: true, 5900: true, 6379: true, 6667: true, 8883: true, 9042: true, 9092: true, 9418: true, 11211: true, 27017: true,
}

// allowHint is the flag that would name a host, and a port unless it is 0.
func allowHint(host string, port int) string {
	switch {
	case port == 0:
		return "--allow " + host
	case tcpPorts[port]:
		return "--allow " + host + ":" + itoa(port) + "/tcp"
	default:
		return "--allow " + host + ":" + itoa(port)
	}
}

func prefixHint(a netip.Addr, port int) string {
	if port == 80 || port == 443 {
		return allowHint(netip.PrefixFrom(a, a.BitLen()).String(), port)
	}
	return "--allow " + netip.PrefixFrom(a, a.BitLen()).String() + ":" + itoa(port) + "/tcp"
}

// lineHint is the policy line that would let one request pass.
func lineHint(r Request, path string) string {
	var b strings.Builder
	b.WriteString("- {host: " + r.Host)
	if r.Port != 443 && r.Port != 80 {
		b.WriteString(", ports: [" + itoa(r.Port) + "]")
	}
	b.WriteString(", methods: [" + r.Method + "], paths: [" + strconv.Quote(path) + "]")
	if r.WebSocket {
		b.WriteString(", websocket: true")
	}
	return b.String() + "}"
}

// portList writes ports for a sentence: "port 443", "ports 80 and 443", "ports 1, 2 and 3".
func portList(ports []int) string {
	if len(ports) == 1 {
		return "port " + itoa(ports[0])
	}
	const most = 8
	var words []string
	for _, p := range ports[:min(len(ports), most)] {
		words = append(words, itoa(p))
	}
	if len(ports) > most {
		return "ports " + strings.Join(words, ", ") + " and others"
	}
	return "ports " + strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
