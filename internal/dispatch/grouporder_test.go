package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// slowStarts is a store whose starts take as long as the number of their first message.
type slowStarts struct {
	dispatch.Store

	took func(p store.StartParams) time.Duration
}

func (s slowStarts) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	if d := s.took(p); d > 0 {
		time.Sleep(d)
	}
	return s.Store.Start(ctx, p)
}

// The test delays the start of the first of three concurrent turns of a group. The next turns start after it, have its message in their
// prompt and run at the same time. Another session does not wait.
func TestTurnsOfAGroupStartInTheOrderOfTheirMessages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		slow := slowStarts{Store: newStore(t), took: func(p store.StartParams) time.Duration {
			if p.Session.Kind() != chat.KindGroup {
				return 0
			}
			return time.Duration(4-p.Seqs[0]) * 100 * time.Millisecond
		}}
		h := open(t, slow, lanes(3))
		defer h.close()
		began := time.Now()
		var ids []string
		for i := range 3 {
			ids = append(ids, h.send("box:group:1", fmt.Sprintf("sleep %ds", 10+i)))
		}
		h.end(h.send("other", "quick"))
		want(t, "time that another session waited", time.Since(began), 0)
		synctest.Wait()
		for _, id := range ids {
			h.end(id)
		}
		want(t, "turns at once", h.runner.most["agent:main:box:group:1"], 3)
		wantList(t, "prompts", h.runner.textsOf("agent:main:box:group:1"), []string{"sleep 10s", "sleep 11s", "sleep 12s"})
		for i, c := range h.runner.calls {
			if c.Session.Kind() != chat.KindGroup {
				continue
			}
			var before []string
			for _, e := range c.History {
				before = append(before, e.Text)
			}
			all := []string{"sleep 10s", "sleep 11s", "sleep 12s"}
			if got, expect := strings.Join(before, " "), strings.Join(all[:len(before)], " "); got != expect || joined(c) != all[len(before)] {
				t.Errorf("call %d, %q, has the history %q", i, joined(c), before)
			}
		}
		tr, err := h.d.Transcript(t.Context(), store.TranscriptQuery{Session: h.msg("box:group:1", "x").Session})
		var rows []string
		for _, e := range tr.Entries {
			if e.Role == chat.RoleUser {
				rows = append(rows, e.Text)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		wantList(t, "user rows", rows, []string{"sleep 10s", "sleep 11s", "sleep 12s"})
	})
}
