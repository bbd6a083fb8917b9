package main

import (
	"fmt"
	"strings"
)

// spread is "median (min–max)", with as many digits as the size asks for.
func (s *samples) spread(key string) string {
	v := s.sorted(key)
	if len(v) == 0 {
		return "–"
	}
	m := s.median(key)
	return fmt.Sprintf("%s (%s–%s)", short(m), short(v[0]), short(v[len(v)-1]))
}

func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// verdict says whether a goal is reached by a number that the named samples make; without them there is none.
func (s *samples) verdict(goal string, reached bool, keys ...string) string {
	for _, key := range keys {
		if len(s.of[key]) == 0 {
			return goal + ": not measured"
		}
	}
	if reached {
		return goal + ": reached"
	}
	return goal + ": **missed**"
}

// table writes a Markdown table.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
	}
	return b.String()
}

func bytesReport(s *samples) string {
	var rows [][]string
	for _, hello := range []string{"", " hello"} {
		for _, name := range []string{"direct", "slirp4netns", "pasta", "rung hardened", "rung gvisor"} {
			if name == "rung gvisor" && hello != "" {
				continue
			}
			row := []string{name + map[string]string{"": "", " hello": ", after a TLS ClientHello"}[hello]}
			var goals []string
			for _, d := range []string{" up", " down"} {
				key := name + hello + d + " gbit"
				row = append(row, s.spread(key))
				if !strings.HasPrefix(name, "rung") {
					row = append(row, "")
					continue
				}
				slirp, pasta := s.median("slirp4netns"+hello+d+" gbit"), s.median("pasta"+hello+d+" gbit")
				peer, fastest := "slirp4netns", slirp
				if pasta > slirp {
					peer, fastest = "pasta", pasta
				}
				if fastest == 0 {
					row = append(row, "")
					continue
				}
				share := s.median(key) / fastest
				row = append(row, fmt.Sprintf("%.2f × %s", share, peer))
				if name == "rung hardened" {
					goals = append(goals, s.verdict(strings.TrimSpace(d)+" ≥ 0.6", share >= 0.6, key))
				}
			}
			rows = append(rows, append(row, strings.Join(goals, ", ")))
		}
	}
	return table([]string{"", "up", "ratio", "down", "ratio", "goal"}, rows) +
		"\nThe ratio is to the faster of slirp4netns and pasta. After the ClientHello come plain bytes: it is the relay that is measured.\n"
}

func connectionReport(s *samples) string {
	var rows [][]string
	for _, name := range []string{"direct", "slirp4netns", "pasta", "rung hardened", "rung gvisor"} {
		row := []string{name, s.spread(name + " p50"), s.spread(name + " p99"), "", ""}
		if name != "direct" {
			row[3] = fmt.Sprintf("%.0f, %.0f", s.median(name+" p50")-s.median("direct p50"), s.median(name+" p99")-s.median("direct p99"))
		}
		if name == "rung hardened" {
			row[4] = s.verdict("p50 added ≤ 1000", s.median(name+" p50")-s.median("direct p50") <= 1000, name+" p50", "direct p50")
		}
		rows = append(rows, row)
	}
	return table([]string{"µs", "p50", "p99", "added p50, p99", "goal"}, rows)
}

func webReport(s *samples) string {
	var rows [][]string
	title := map[string]string{
		"direct": "nothing in between", "pasta": "pasta, TLS not opened", "goproxy": "goproxy, client beside it", "goproxy pasta": "goproxy, client behind pasta",
		"rung hardened": "rung hardened",
	}
	for _, name := range []string{"direct", "pasta", "goproxy", "goproxy pasta", "rung hardened"} {
		rows = append(rows, []string{
			title[name], s.spread(name + " 1 rps"), s.spread(name + " 100 rps"), s.spread(name + " 1 p50"),
			s.spread(name + " paced p50"), s.spread(name + " paced p99"), s.spread(name + " 100 p99"),
		})
	}
	text := table([]string{"", "requests/s, 1 connection", "requests/s, 100 connections", "p50 µs, 1 connection", fmt.Sprintf("p50 µs, 100 at %d/s", pacedRate), fmt.Sprintf("p99 µs, 100 at %d/s", pacedRate), "p99 µs, 100 at full load"}, rows)
	var goals []string
	for _, peer := range []string{"goproxy", "goproxy pasta"} {
		for _, c := range []string{"1", "100"} {
			if p := s.median(peer + " " + c + " rps"); p > 0 {
				f := s.median("rung hardened "+c+" rps") / p
				goals = append(goals, fmt.Sprintf("- %s connections, %.2f × %s: %s", c, f, title[peer], s.verdict("≥ 2", f >= 2, "rung hardened "+c+" rps")))
			}
		}
	}
	for _, c := range []struct{ key, title string }{{"paced", fmt.Sprintf("at %d requests/s", pacedRate)}, {"100", "at full load"}} {
		added := (s.median("rung hardened "+c.key+" p99") - s.median("direct "+c.key+" p99")) / 1000
		goals = append(goals, fmt.Sprintf("- p99 added at 100 connections, %s, %.1f ms: %s", c.title, added, s.verdict("≤ 5 ms", added <= 5, "rung hardened "+c.key+" p99", "direct "+c.key+" p99")))
	}
	return text + "\n" + strings.Join(goals, "\n") + "\n\nThe client beside goproxy crosses no user-space network at all; the one behind pasta is what somebody who " +
		"wants both would have. Client and server share the two processors with what is measured.\n"
}

func memoryReport(s *samples) string {
	row := func(name, title string) []string {
		return []string{title, s.spread(name + " empty"), s.spread(name + " each"), s.verdict("≤ 1", s.median(name+" each") <= 1, name+" each")}
	}
	return table([]string{"MiB PSS", "no sandbox", "per idle sandbox", "goal"}, [][]string{
		row("deny", "no rules"), row("inspect", "a rule that opens TLS"),
	})
}

func loadReport(s *samples) string {
	var rows [][]string
	for _, r := range []struct{ name, title string }{
		{"quiet", "4 rules, alone"},
		{"rules", "1,004 rules, alone"},
		{"lookups", "4 rules, beside the lookups"},
		{"both", "1,004 rules, beside the lookups"},
		{"control", "4 rules, beside the same questions to a name server of that sandbox's own"},
	} {
		row := []string{r.title, s.spread(r.name + " gbit"), s.spread(r.name + " p50"), s.spread(r.name + " p99"), s.spread(r.name + " answered"), "", ""}
		if r.name != "quiet" {
			g, p := s.median(r.name+" gbit")/s.median("quiet gbit"), s.median(r.name+" p50")/s.median("quiet p50")
			row[5] = fmt.Sprintf("%.2f, %.2f", g, p)
			if r.name != "control" {
				row[6] = s.verdict("bytes ≥ 0.9", g >= 0.9, "quiet gbit", r.name+" gbit") + ", " + s.verdict("p50 ≤ 1.1", p <= 1.1, "quiet p50", r.name+" p50")
			}
		}
		rows = append(rows, row)
	}
	note := ""
	if c := s.median("control gbit"); c > 0 {
		note = fmt.Sprintf("\nThe other sandbox needs a processor of the two for asking alone, whoever answers; against that control the lookups at the gate leave %.2f of the bytes, and p50 is %.2f times.\n",
			s.median("lookups gbit")/c, s.median("lookups p50")/s.median("control p50"))
	}
	return table([]string{"", "Gbit/s down", "request p50 µs, at 500/s", "p99 µs", "lookups answered/s", "bytes, p50 to the first row", "goal"}, rows) + note
}

func startReport(s *samples) string {
	var rows [][]string
	for _, name := range []string{"process", "container", "hardened", "gvisor"} {
		none, deny := s.median(name+" none ms"), s.median(name+" deny ms")
		if none == 0 || deny == 0 {
			continue
		}
		rows = append(rows, []string{"rung " + name, s.spread(name + " none ms"), s.spread(name + " deny ms"), fmt.Sprintf("%+.1f (%.2f ×)", deny-none, deny/none)})
	}
	return table([]string{"ms", "`--egress none`", "default", "the network's share"}, rows) +
		"\nThe goal is the ladder's, which the section on start time judges.\n"
}
