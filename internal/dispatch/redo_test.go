package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// lossy is a store that loses the response of some calls, before or after it has executed them.
type lossy struct {
	cronStore
	accepts  atomic.Int64 // responses of Accept that are lost
	enqueues atomic.Int64 // calls of Enqueue that are lost
}

func (l *lossy) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	acc, err := l.cronStore.Accept(ctx, p)
	if p.Unqueued && l.accepts.Add(-1) >= 0 {
		return store.Accepted{}, chat.ErrStoreUnavailable
	}
	return acc, err
}

func (l *lossy) Enqueue(ctx context.Context, rows []store.Outgoing) error {
	if l.enqueues.Add(-1) >= 0 {
		return chat.ErrStoreUnavailable
	}
	return l.cronStore.Enqueue(ctx, rows)
}

// deliver sends the update of a channel; a repeated delivery has a new id.
func (h *jobHarness) deliver(dedupe, text string) (chat.Receipt, error) {
	m := h.msg(annaHere, text)
	person("7", "7")(&m)
	m.Dedupe = dedupe
	r, err := h.d.Receive(h.t.Context(), m)
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	return r, err
}

// A recorded command may have no answer, because the store's response was lost or the process died before or after its execution. It is
// executed when it is delivered again, also by another process, with one effect and the answer of a first execution.
func TestACommandIsNotLostBetweenItsRecordAndItsAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ accepts, enqueues int64 }{
		"the record's answer is lost": {accepts: 1}, "dies after the execution": {enqueues: 1}, "both": {accepts: 1, enqueues: 2},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					mem := newStore(t)
					st := &lossy{cronStore: mem}
					h := openCron(t, st)
					st.accepts.Store(c.accepts)
					st.enqueues.Store(c.enqueues)
					var err error
					for range c.accepts + c.enqueues {
						if _, err = h.deliver("u1", "/remind in 20m tea"); !errors.Is(err, chat.ErrStoreUnavailable) {
							t.Fatalf("the delivery was taken: %v", err)
						}
					}
					if restart {
						h.close()
						before := h.box
						h = openCron(t, mem)
						h.box.sent = append(h.box.sent, before.sent...)
					}
					time.Sleep(time.Minute) // the reminder is due 20 minutes after the first request, unless that had not been executed
					for range 3 {
						if r, err := h.deliver("u1", "/remind in 20m tea"); err != nil || !r.Duplicate {
							t.Fatalf("delivered again: %+v, %v", r, err)
						}
					}
					want(t, "jobs", h.countJobs(), 1)
					if got := h.box.texts("7"); len(got) != 1 || !strings.HasPrefix(got[0], "I will remind you at ") {
						t.Errorf("anna reads %q", got)
					}
					tr, err := mem.Transcript(t.Context(), store.TranscriptQuery{Session: h.msg(annaHere, "x").Session})
					want(t, "lines in the transcript", len(tr.Entries), 2)
					if err != nil {
						t.Error(err)
					}
					h.close()
				})
			})
		}
	}
}

// A command that names a job by its number is not repeated, because the numbers have changed.
func TestACommandThatMayHaveRemovedAJobRemovesNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := &lossy{cronStore: newStore(t)}
		h := openCron(t, st)
		h.command(annaHere, "/remind tomorrow 9:00 tea", "7", "7")
		h.command(annaHere, "/remind tomorrow 10:00 milk", "7", "7")
		st.enqueues.Store(1)
		if _, err := h.deliver("u1", "/cron rm 1"); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Fatalf("the delivery was taken: %v", err)
		}
		if _, err := h.deliver("u1", "/cron rm 1"); err != nil {
			t.Fatal(err)
		}
		want(t, "jobs", h.countJobs(), 1)
		if got := h.box.texts("7"); len(got) != 3 || !strings.Contains(got[2], "look at /jobs") {
			t.Errorf("anna reads %q", got)
		}
		h.close()
	})
}

// A command that was answered is not executed again, even after its transcript was archived.
func TestAnAnsweredCommandIsOver(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		model := func() string {
			s, err := h.st.Session(t.Context(), h.msg(annaHere, "x").Session, "")
			if err != nil {
				t.Fatal(err)
			}
			return s.Notes["model"]
		}
		for _, text := range []string{"/model one", "/new", "/model two", "/model one", "/new"} {
			if _, err := h.deliver(map[string]string{"/model one": "u1", "/new": "u2", "/model two": "u3"}[text], text); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "the model", model(), "two")
		want(t, "answers", len(h.box.texts("7")), 3)
	})
}
