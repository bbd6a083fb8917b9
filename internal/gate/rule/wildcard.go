package rule

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/rung-dev/rung"
)

// wildcard returns the suffix of a *.suffix pattern.
func wildcard(host string) (suffix string, is bool) { return strings.CutPrefix(host, "*.") }

// pattern of hosts: an exact name or *.suffix, in normal form.
func hostPattern(text string) (string, error) {
	suffix, is := wildcard(text)
	if !is {
		if strings.Contains(text, "*") {
			return "", rung.Errorf(rung.KindInvalid, "%s is no host pattern: * stands only for whole labels in front, as in *.example.com",
				quote(text)).WithHint("name the hosts one by one; --egress open lets every public one pass")
		}
		return Name(text)
	}
	name, err := Name(suffix)
	if err != nil {
		return "", err
	}
	public, icann := publicsuffix.PublicSuffix(name)
	if !strings.Contains(name, ".") || public == name && icann {
		return "", rung.Errorf(rung.KindInvalid, "*.%s names the hosts of everybody: %s is a public suffix", name, name).
			WithHint("name a domain below it, such as *.example." + name)
	}
	return "*." + name, nil
}

// Names that lead to host control or around the gate's own resolver. Only exact rules can name the resolvers; nothing can
// name the others, because their addresses are refused, and an upstream proxy would not know that.
var (
	hostControl = set("metadata", "metadata.google.internal", "metadata.goog", "metadata.tencentyun.com", "metadata.azure.internal",
		"instance-data", "instance-data.ec2.internal")
	// DNS over HTTPS (RFC 8484); use-application-dns.net is how a network tells Firefox to leave it off.
	resolvers = set("dns.google", "dns.google.com", "dns64.dns.google", "cloudflare-dns.com", "one.one.one.one", "1dot1dot1dot1.cloudflare-dns.com",
		"mozilla.cloudflare-dns.com", "chrome.cloudflare-dns.com", "security.cloudflare-dns.com", "family.cloudflare-dns.com",
		"dns.quad9.net", "dns9.quad9.net", "dns10.quad9.net", "dns11.quad9.net", "doh.opendns.com", "dns.opendns.com",
		"dns.nextdns.io", "dns.adguard-dns.com", "dns.adguard.com", "doh.cleanbrowsing.org", "dns.alidns.com", "doh.pub", "doh.360.cn",
		"doh.dns.sb", "dns.mullvad.net", "freedns.controld.com", "use-application-dns.net")
	// Parents of hosts of many tenants that the public suffix list does not have under that name.
	sharedParents = set("amazonaws.com", "azure.com", "windows.net", "azureedge.net", "cloudfront.net", "googleapis.com",
		"googleusercontent.com", "githubusercontent.com", "gist.github.com", "storage.googleapis.com", "raw.githubusercontent.com",
		"objects.githubusercontent.com", "webhook.site", "requestbin.com", "pastebin.com", "transfer.sh", "discord.com", "slack.com",
		"hooks.slack.com", "api.telegram.org")
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// unnameable reports whether no rule can ever name that host.
func unnameable(name string) bool {
	return hostControl[name] || name == "localhost" || strings.HasSuffix(name, ".localhost") // RFC 6761 section 6.3
}

// onlyExact reports whether a host must be named itself: no wildcard and no open mode means it.
func onlyExact(name string) bool {
	return !strings.Contains(name, ".") || resolvers[name] || unnameable(name)
}

// Notes returns what a reviewer of the policy should know, one sentence each: rules that open more than their text looks
// like, and rules without effect.
func (p *Policy) Notes() []string {
	var notes []string
	for i := range p.rules {
		r := &p.rules[i].rule
		if s := sharedNote(r.Host); s != "" {
			notes = append(notes, fmt.Sprintf("rule %q: %s", r.Name, s))
		}
		if strings.Contains(r.Host, "xn--") {
			notes = append(notes, fmt.Sprintf("rule %q names an internationalised host: check that it is the one you mean", r.Name))
		}
		if r.Methods != nil && len(r.Methods) == 0 || r.Paths != nil && len(r.Paths) == 0 {
			notes = append(notes, fmt.Sprintf("rule %q has an empty list of methods or paths, so that no request matches it", r.Name))
		}
		if p.rules[i].opened {
			notes = append(notes, p.shadowNotes(r)...)
		}
	}
	return notes
}

// shadowNotes names the tcp rules that let any bytes to where another rule has conditions.
func (p *Policy) shadowNotes(r *rung.EgressRule) []string {
	var notes []string
	for _, port := range r.Ports {
		host := strings.TrimPrefix(r.Host, "*.")
		if raw := p.first(host, func(c *compiled) bool { return c.rule.Protocol == "tcp" && c.has(port) }); raw != nil {
			notes = append(notes, fmt.Sprintf("rule %q lets any bytes to port %d of %s, so that the conditions of %q do not hold there",
				raw.rule.Name, port, host, r.Name))
		}
	}
	return notes
}

// sharedNote warns where a host pattern reaches other people's content: whoever can put something there can take something
// out through it.
func sharedNote(host string) string {
	if host == "" {
		return ""
	}
	suffix, wild := wildcard(host)
	if !wild {
		if public, icann := publicsuffix.PublicSuffix(host); sharedParents[host] || public == host && !icann && strings.Contains(host, ".") {
			return host + " serves many tenants: anybody can send and receive there; name paths too"
		}
		return ""
	}
	// One label more shows the wildcards of the list itself, such as *.compute.example.
	public, icann := publicsuffix.PublicSuffix("x." + suffix)
	if sharedParents[suffix] || !icann && strings.HasSuffix(public, suffix) && strings.Contains(public, ".") {
		return host + " names the hosts of many tenants: anybody can have one; name exact hosts"
	}
	return ""
}
