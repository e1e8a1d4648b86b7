package dispatch_test

import (
	"context"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// toWeb sets a delivery to a session; "" = the main one.
func toWeb(session string) func(*cron.Job) {
	return deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web", To: session})
}

// lines returns the assistant entries of a session.
func lines(t *testing.T, st store.Store, session string) []string {
	t.Helper()
	key, err := chat.ParseSessionKey(session, "main")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: key})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range tr.Entries {
		if e.Role == chat.RoleAssistant {
			out = append(out, e.Text)
		}
	}
	return out
}

// finals returns the complete answers that subscribers received for a session.
func (h *harness) finals(session string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, e := range h.events {
		if e.Kind == chat.EventFinal && e.Session.String() == session {
			out = append(out, e.RunID+": "+e.Text)
		}
	}
	return out
}

func TestTheAnswerOfAJobIsALineOfTheSessionThatItNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st)
		h.put(once("named", "hello", time.Second), toWeb("agent:main:notes"))
		h.put(once("unnamed", "hi", time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce}))
		after(3 * time.Second)
		wantList(t, "in the session", lines(t, st, "notes"), []string{"hello"})
		wantList(t, "in the main session", lines(t, st, "main"), []string{"hi"})
		for _, job := range []string{"named", "unnamed"} {
			r := h.runs(job)[0]
			want(t, "delivery of "+job, r.Delivery, cron.DeliveryDone)
		}
		wantList(t, "sent", h.finals("agent:main:notes"), []string{h.runs("named")[0].ID + ": hello"})
		s, err := st.Session(t.Context(), chat.SessionKey{Agent: "main", Rest: "notes"}, "gateway")
		if err != nil || s.Principal != "gateway" {
			t.Errorf("the session that the delivery made: %+v, %v", s, err)
		}
		h.close()
	})
}

func TestAnAnswerThatWasGivenInTheSessionItselfIsThereOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st)
		h.put(once("own", "hello", time.Second), toWeb("agent:main:notes"), func(j *cron.Job) { j.Session = "session:agent:main:notes" })
		after(3 * time.Second)
		wantList(t, "in the session", lines(t, st, "notes"), []string{"hello"})
		want(t, "delivery", h.runs("own")[0].Delivery, cron.DeliveryDone)
		want(t, "sent", len(h.finals("agent:main:notes")), 1)
		h.close()
	})
}

// deliveries is a store that fails, or whose process dies, when an answer is delivered to the web.
type deliveries struct {
	*power

	append func(do func() error) error
}

func (s deliveries) AppendReply(ctx context.Context, p store.ReplyParams) (out store.Replied, err error) {
	err = s.append(func() error { out, err = s.power.cronStore.AppendReply(ctx, p); return err })
	if dead := s.dead(ctx); dead != nil {
		return store.Replied{}, dead
	}
	return out, err
}

func (s deliveries) Delivered(ctx context.Context, p store.DeliveredParams) (*store.ShownEntry, error) {
	if err := s.dead(ctx); err != nil {
		return nil, err
	}
	return s.power.cronStore.Delivered(ctx, p)
}

func TestAProcessThatDiesWhileItDeliversToTheWebLosesAndDoublesNothing(t *testing.T) {
	for name, before := range map[string]bool{"before the line is written": true, "after it, before that is noted": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				st := newStore(t)
				c, off := cord(st)
				dying := deliveries{power: c.(*power), append: func(do func() error) error {
					if before {
						off.Store(true)
						return nil
					}
					defer off.Store(true)
					return do()
				}}
				a := openCron(t, dying)
				a.put(once("job", "hello", time.Second), toWeb("agent:main:notes"))
				after(3 * time.Second)
				want(t, "the plug was pulled", off.Load(), true)
				page, err := st.Runs(t.Context(), cron.RunFilter{JobID: "job"})
				if err != nil || len(page.Runs) != 1 || page.Runs[0].State != cron.RunOK || page.Runs[0].Delivery != cron.DeliveryUnknown {
					t.Fatalf("the ledger after the death: %+v, %v", page.Runs, err)
				}
				b := openCron(t, st)
				after(time.Minute)
				wantList(t, "in the session", lines(t, st, "notes"), []string{"hello"})
				r := b.runs("job")
				want(t, "runs", len(r), 1)
				want(t, "delivery", r[0].Delivery, cron.DeliveryDone)
				wantList(t, "sent by the second life", b.finals("agent:main:notes"), []string{r[0].ID + ": hello"})
				want(t, "turns of the second life", len(b.runner.texts()), 0)
				a.stop()
				a.abandon()
				b.close()
			})
		})
	}
}

func TestADeliveryToTheWebOutlivesAnOutageOfTheStore(t *testing.T) {
	for name, committed := range map[string]bool{"nothing was written": false, "only the answer of the store was lost": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				st, fails := newStore(t), 3
				c, _ := cord(st)
				h := openCron(t, deliveries{power: c.(*power), append: func(do func() error) error {
					if fails--; fails < 0 {
						return do()
					}
					if committed {
						if err := do(); err != nil {
							return err
						}
					}
					return chat.ErrStoreUnavailable
				}})
				h.put(once("job", "hello", time.Second), toWeb("agent:main:notes"))
				after(time.Minute)
				wantList(t, "in the session", lines(t, st, "notes"), []string{"hello"})
				want(t, "delivery", h.runs("job")[0].Delivery, cron.DeliveryDone)
				want(t, "attempts that failed", fails < 0, true)
				h.close()
			})
		})
	}
}

func TestAlertsAreLinesOfTheSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st)
		h.put(cron.Job{ID: "bad", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 120_000}, Payload: cron.Payload{Text: "fail"}},
			deliverTo(cron.Delivery{Mode: cron.DeliverNone}), func(j *cron.Job) {
				j.Alert = cron.Alert{After: 2, Delivery: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web", To: "agent:main:ops"}}
			})
		after(10 * time.Minute)
		alerts := h.finals("agent:main:ops")
		want(t, "alerts sent", len(alerts), 1)
		want(t, "lines", len(lines(t, st, "ops")), 1)
		if len(alerts) == 1 && alerts[0][:len("schedule:bad:")] != "schedule:bad:" {
			t.Errorf("the alert names no run: %q", alerts[0])
		}
		h.put(once("once", "fail bad_request", time.Second), toWeb("agent:main:notes"))
		after(10 * time.Second)
		wantList(t, "a failure", lines(t, st, "notes"), []string{`The job "once" has failed: the model is overloaded; try again.`})
		want(t, "its answer", h.runs("once")[0].Delivery, cron.DeliveryNotRequested)
		h.close()
	})
}

func TestAChatUsersJobDeliversNothingToASessionOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		h := openCron(t, st)
		h.end(h.send("agent:main:notes", "mine")) // the session belongs to another principal
		for job, to := range map[string]string{"foreign": "agent:main:notes", "gone": "agent:absent:notes"} {
			h.put(once(job, "hello", time.Second), toWeb(to), func(j *cron.Job) { j.Owner, j.Principal = "box:7", "box:7" })
		}
		after(time.Minute)
		wantList(t, "in the session", lines(t, st, "notes"), []string{"mine"})
		for job, why := range map[string]string{"foreign": "not_theirs", "gone": "no_agent"} {
			r := h.runs(job)[0]
			want(t, "state of "+job, r.State, cron.RunOK)
			want(t, "delivery of "+job, r.Delivery, cron.DeliveryNot)
			want(t, "reason of "+job, r.DeliveryError, why)
		}
		h.close()
	})
}
