package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/store/memory"
)

func TestOldMessagesAreRemovedByABuiltInJobEveryNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openCron(t, newStore(), func(c *dispatch.Config) { c.Cron.MessageRetention = time.Hour })
		old := h.send("main", "hello", replyTo("5"))
		h.end(old)
		after(3 * time.Hour)
		young := h.send("main", "again", replyTo("5"))
		h.end(young)
		after(time.Hour) // the job is at 3:37
		if m, err := h.st.MessageByID(t.Context(), old); !errors.Is(err, chat.ErrNotFound) {
			t.Errorf("the old message is still there: %+v, %v", m, err)
		}
		if _, err := h.st.MessageByID(t.Context(), young); err != nil {
			t.Errorf("the young message is gone: %v", err)
		}
		tr, err := h.st.Transcript(t.Context(), storeQuery("agent:main:main"))
		if err != nil || len(tr.Entries) != 4 {
			t.Errorf("the conversation has %d entries, %v", len(tr.Entries), err)
		}
		page, err := h.jobs.Runs(t.Context(), cron.RunFilter{Query: "outgoing"})
		if err != nil || len(page.Runs) != 1 || !strings.HasPrefix(page.Runs[0].Summary, "1 messages and 1 outgoing messages removed") {
			t.Errorf("the ledger has %+v, %v", page.Runs, err)
		}
		h.close()
	})
}

func TestWithoutARetentionNothingIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openCron(t, newStore())
		id := h.send("main", "hello")
		h.end(id)
		after(4 * time.Hour)
		if _, err := h.st.MessageByID(t.Context(), id); err != nil {
			t.Errorf("the message is gone: %v", err)
		}
		h.close()
	})
}

// compacted is a store that counts its compactions.
type compacted struct {
	*memory.Store

	times []time.Time
}

func (c *compacted) Compact(context.Context) (string, error) {
	c.times = append(c.times, time.Now().UTC())
	return "3.5 MiB given back to the disk", nil
}

func TestTheStoreIsCompactedEverySunday(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &compacted{Store: newStore()}
		var h *jobHarness
		for range 15 { // a process runs from 3:55 to 4:15 of each day: the seconds of one that waits cost the test the most
			until(3, 55)
			h = openCron(t, st)
			until(4, 15)
			h.close()
		}
		if len(st.times) != 2 {
			t.Fatalf("compacted at %v in fifteen days, want twice", st.times)
		}
		for _, at := range st.times {
			if at.Weekday() != time.Sunday || at.Hour() != 4 || at.Minute() > 10 {
				t.Errorf("compacted at %s, want Sundays from 4:00 to 4:10", at)
			}
		}
		page, err := h.jobs.Runs(t.Context(), cron.RunFilter{Query: "3.5 MiB given back"})
		if err != nil || len(page.Runs) != 2 {
			t.Errorf("the ledger has %+v, %v", page.Runs, err)
		}
	})
}
