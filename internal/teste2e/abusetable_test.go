package teste2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// table formats the results of all stages as Markdown.
func (a *abuseLife) table() string {
	var b strings.Builder
	b.WriteString("| method | RSS peak MB | health p99 ms | start max ms | growth KB (allowed) | calls | ok | refused |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range a.rows {
		var refused []string
		for _, code := range slices.Sorted(maps.Keys(r.refused)) {
			refused = append(refused, fmt.Sprintf("%s %d", code, r.refused[code]))
		}
		if len(r.lost) > 0 {
			refused = append(refused, fmt.Sprintf("%d connections closed (%v)", len(r.lost), r.lost[0]))
		}
		fmt.Fprintf(&b, "| %s | %d | %.1f | %.1f | %d (%d) | %d | %d | %s |\n", r.method, r.rss>>20, float64(r.health.Microseconds())/1000,
			float64(r.start.Microseconds())/1000, r.growth>>10, r.allowed>>10, r.sent, r.ok, strings.Join(refused, ", "))
	}
	return b.String()
}
