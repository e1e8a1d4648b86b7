package teste2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// 6 MiB of jobs exceed the size of one page of a list. The command line lists every job, in the table and in the JSON, and with a limit it
// shows how to continue.
func TestTheCommandLineListsMoreThanOnePage(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const jobs = 75
		g := Install(t, database, cronConfig)
		g.Start()
		c := connect(t, g)
		text := strings.Repeat("x", 62_000)
		for i := range jobs {
			addJob(t, c, fmt.Sprintf("large-%02d", i), every(time.Hour), saying(text))
		}
		var page struct {
			Jobs  []json.RawMessage
			Total int
		}
		if err := c.Into(&page, "cron.list", map[string]any{"limit": 200, "extended": true}); err != nil || len(page.Jobs) >= jobs || page.Total != jobs {
			t.Fatalf("one page has %d of %d jobs: %v; the test needs more than a page", len(page.Jobs), page.Total, err)
		}
		cli := func(args ...string) (string, string) {
			out, errs, code := g.CLI(withTimeout(t, time.Minute), "", args...)
			if code != 0 {
				t.Fatalf("laneway %v: status %d, %s", args, code, errs)
			}
			return out, errs
		}
		if out, _ := cli("cron", "list"); strings.Count(out, "large-") != jobs {
			t.Errorf("the table has %d of %d jobs", strings.Count(out, "large-"), jobs)
		}
		var all struct {
			Jobs             []struct{ ID string }
			DeliveryPreviews map[string]any
			HasMore          bool
			NextOffset       *int
		}
		out, _ := cli("cron", "list", "--json")
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatal(err)
		}
		if len(all.Jobs) != jobs || len(all.DeliveryPreviews) != jobs || all.HasMore || all.NextOffset != nil {
			t.Errorf("the JSON has %d jobs and %d previews, more %v, next %v; want %d and the end", len(all.Jobs), len(all.DeliveryPreviews), all.HasMore, all.NextOffset, jobs)
		}
		out, errs := cli("cron", "list", "--limit", "70", "--offset", "1")
		if n := strings.Count(out, "large-"); n != 70 || !strings.Contains(errs, "70 of 75 jobs; continue with --offset 71") {
			t.Errorf("of 70 jobs after the first there are %d, and %q", n, errs)
		}
	})
}
