package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/cron"
)

// Each turn of the jobs starts a background task.
func TestTheEndOfATaskOfAJobGoesWhereTheAnswersOfTheJobGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st, team(&branching{}))
		defer h.close()
		text := func(report string) string { return calling(spawns(report, false)) }
		h.put(once("chat", text("for the chat"), time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "9"}))
		h.put(once("web", text("for the notes"), time.Second), toWeb("agent:main:notes"))
		h.put(once("unnamed", text("for the main session"), time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce}))
		h.put(once("none", text("for no person"), time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverNone}))
		after(30 * time.Second)
		var everywhere []string
		for report, read := range map[string][]string{
			"for the chat": h.box.texts("9"), "for the notes": lines(t, st, "notes"), "for the main session": lines(t, st, "main"),
		} {
			ends := slices.DeleteFunc(slices.Clone(read), func(line string) bool { return !strings.Contains(line, "has ended. Its answer:\n\n"+report) })
			want(t, report, len(ends), 1)
			everywhere = append(everywhere, read...)
		}
		if all := strings.Join(everywhere, "\n"); strings.Contains(all, "for no person") || strings.Count(all, "has ended") != 3 {
			t.Errorf("persons read\n%s", all)
		}
	})
}
