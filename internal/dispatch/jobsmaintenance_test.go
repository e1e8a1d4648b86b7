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
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
)

func TestOldMessagesAreRemovedByABuiltInJobEveryNight(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inJobs(t, func(t *testing.T, h *jobHarness) {
		old := h.send("main", "hello", replyTo("5"))
		h.end(old)
		after(3 * time.Hour)
		young := h.send("main", "again", replyTo("5"))
		h.end(young)
		after(time.Hour) // the job fires at 3:37
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
	}, func(c *dispatch.Config) { c.Cron.MessageRetention = time.Hour })
}

func TestWithoutARetentionNothingIsRemoved(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inJobs(t, func(t *testing.T, h *jobHarness) {
		id := h.send("main", "hello")
		h.end(id)
		after(4 * time.Hour)
		if _, err := h.st.MessageByID(t.Context(), id); err != nil {
			t.Errorf("the message is gone: %v", err)
		}
	})
}

func TestOldSessionsOfTasksAreRemovedByABuiltInJobEveryNight(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.end(h.send("agent:main:own", calling(delegated("old"), spawns("old", true))))
		after(3 * time.Hour)
		h.end(h.send("agent:main:own", calling(delegated("young"))))
		after(30 * time.Minute) // the job fires at 3:17
		kept := 0
		for _, task := range h.tasks(store.TaskFilter{}) {
			want(t, "a task that is kept", task.Text, "young")
			kept++
		}
		want(t, "tasks that are kept", kept, 1)
		wantSessions(t, h.st, "coder", 1)
		wantSessions(t, h.st, "main", 1)
		tr, err := h.st.Transcript(t.Context(), storeQuery("agent:main:own"))
		if err != nil || len(tr.Entries) < 4 {
			t.Errorf("the conversation has %d entries, %v", len(tr.Entries), err)
		}
	}, team(&branching{}), func(c *dispatch.Config) { c.Cron.Retention = time.Hour })
}

func TestOldSessionsOfCompactionsAreRemovedByABuiltInJobEveryNight(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		model := &scripted{window: 4000, takes: time.Second, sums: time.Second}
		h := openCron(t, newStore(t), compacting(model), func(c *dispatch.Config) { c.Cron.Retention = time.Hour })
		for i := range 40 {
			h.end(h.send(longSession, line(i)))
		}
		after(time.Minute) // the last compaction may still be running
		wantSessions(t, h.st, "main", 2)
		list, rows := summaries(t, h.st, longSession)
		if len(list) == 0 {
			t.Fatal("nothing was summarised")
		}
		after(4 * time.Hour) // the job fires at 3:17
		wantSessions(t, h.st, "main", 1)
		still, stay := summaries(t, h.st, longSession)
		want(t, "summaries", len(still), len(list))
		want(t, "rows of the conversation", stay, rows)
		h.close()
	})
}

// wantSessions counts the sessions of an agent that belong to people.
func wantSessions(t *testing.T, st dispatch.Store, agent string, want int) {
	t.Helper()
	list, _, err := st.ListSessions(t.Context(), store.SessionFilter{Agent: agent, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range list {
		if s.Principal != cron.SystemOwner {
			keys = append(keys, s.Key.String())
		}
	}
	if len(keys) != want {
		t.Errorf("the agent %s has %d sessions, want %d: %v", agent, len(keys), want, keys)
	}
}

// compacted is a store that counts its compactions.
type compacted struct {
	*sqlite.Store

	times []time.Time
}

func (c *compacted) Compact(context.Context) (string, error) {
	c.times = append(c.times, time.Now().UTC())
	return "3.5 MiB given back to the disk", nil
}

func TestTheStoreIsCompactedEverySunday(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		st := &compacted{Store: newStore(t)}
		var h *jobHarness
		for range 15 { // a process runs from 3:55 to 4:15 of each day, because an idle process costs the test the most time
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
