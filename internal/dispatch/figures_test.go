package dispatch_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// endings counts the runs that the observer of cron received.
type endings struct {
	cron.NopRunnerObserver

	mu    sync.Mutex
	count map[string]int
}

func (e *endings) Ended(t cron.Trigger, s cron.RunState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count[string(t)+" "+string(s)]++
}

func TestFiguresAreFreshWithoutACallOfStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(500 * time.Millisecond) // so that no count, every 15 s from the start, coincides with a fire
		seen := &endings{count: map[string]int{}}
		h := openCron(t, sqlitetest.Open(t, sqlite.Config{}), func(c *dispatch.Config) { c.Cron.Observer = seen })
		h.box.fail = func(chat.Reply) error { return &channel.SendError{Reason: "rate_limited", RetryAfter: time.Hour} }
		if f := h.d.Figures(); f.OutboxWaiting != 0 || f.Cron.OldestDue >= 0 {
			t.Errorf("before anything happened: %+v", f)
		}
		h.end(h.send("main", "hello", replyTo("1")))
		h.put(cron.Job{ID: "ends", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, Payload: cron.Payload{Text: "sleep 100ms"}})
		h.put(cron.Job{ID: "lasts", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, Payload: cron.Payload{Text: "sleep 40s"}})
		time.Sleep(31 * time.Second)
		synctest.Wait()
		f := h.d.Figures()
		if f.OutboxWaiting != 1 || f.Cron.Jobs != 2 || f.Cron.Running != 1 || f.Cron.Paused != 0 {
			t.Errorf("after half a minute: %+v, want one message that waits, two jobs and one run", f)
		}
		seen.mu.Lock()
		if n := seen.count["schedule ok"]; n < 29 || n > 31 || len(seen.count) != 1 {
			t.Errorf("runs that ended: %v, want one each second", seen.count)
		}
		seen.mu.Unlock()
		h.close()
	})
}

// A row that stays taken blocks what comes after it, and only a restart of its process helps.
func TestRowTakenTooLongIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := open(t, st)
		if err := st.Register(t.Context(), store.Node{ID: "other", Lease: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		row := store.Outgoing{ID: "o1", Kind: store.KindReply, Target: chat.Target{Channel: "elsewhere", ChatID: "1"}, Text: "hello"}
		if err := st.Enqueue(t.Context(), []store.Outgoing{row}); err != nil {
			t.Fatal(err)
		}
		if l, err := st.ClaimOutgoing(t.Context(), store.ClaimOutgoingParams{Node: "other", Channels: []string{"elsewhere"}, Limit: 1}); err != nil || len(l) != 1 {
			t.Fatalf("claimed %v, %v", l, err)
		}
		time.Sleep(10 * time.Minute)
		want(t, "rows before it is certain", h.d.Figures().TakenLong, 0)
		time.Sleep(time.Minute)
		want(t, "rows", h.d.Figures().TakenLong, 1)
		words := []string{"1 × delivery by gateway other: taken for more than 10m, which is longer than it can last; restart that gateway, then another attempt follows"}
		wantList(t, "problems", h.d.Status(t.Context()).Stranded[:1], words)
	})
}
