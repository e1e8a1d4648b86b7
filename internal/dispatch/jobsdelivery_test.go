package dispatch_test

import (
	"context"
	"errors"
	"strings"
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

// bodies sets a function for bodies that name their run.
func bodies(c *dispatch.Config) {
	c.Cron.WebhookBody = func(_ cron.Job, r cron.Run) []byte { return []byte(string(r.State) + " " + r.Summary + r.Error) }
}

const hookURL = "https://example.com/in"

func deliverTo(d cron.Delivery) func(*cron.Job) { return func(j *cron.Job) { j.Delivery = d } }

func TestAWebhookGetsTheRunAndTheLedgerWhetherItArrived(t *testing.T) {
	for name, c := range map[string]struct {
		fail  func(chat.Reply) error
		want  cron.DeliveryStatus
		sends int
	}{
		"taken":            {nil, cron.DeliveryDone, 1},
		"refused for good": {func(chat.Reply) error { return &channel.SendError{Reason: "refused", Permanent: true} }, cron.DeliveryNot, 1},
		"taken at the third attempt": {func(r chat.Reply) error {
			if r.Attempt < 3 {
				return errors.New("down")
			}
			return nil
		}, cron.DeliveryDone, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inJobs(t, func(t *testing.T, h *jobHarness) {
				var keys []string
				h.hook.fail = func(r chat.Reply) error {
					keys = append(keys, r.RunID)
					if c.fail != nil {
						return c.fail(r)
					}
					return nil
				}
				h.put(once("post", "hello", time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverWebhook, To: hookURL}))
				time.Sleep(time.Minute)
				synctest.Wait()
				runs := h.runs("post")
				if len(runs) != 1 || runs[0].State != cron.RunOK || runs[0].Delivery != c.want {
					t.Fatalf("the ledger has %+v", runs)
				}
				want(t, "runs of the agent", len(h.runner.texts()), 1)
				want(t, "attempts to send", len(keys), c.sends)
				for _, k := range keys {
					want(t, "key", k, runs[0].ID)
				}
				if c.want == cron.DeliveryDone {
					wantList(t, "bodies", h.hook.texts(hookURL), []string{"ok hello"})
				}
			}, bodies)
		})
	}
}

func TestARunThatNeededARetryIsReportedOnceUnderItsOwnID(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("bad", "fail", time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverWebhook, To: hookURL}))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		runs := h.runs("bad")
		if len(runs) != 1 || runs[0].State != cron.RunError || runs[0].Delivery != cron.DeliveryDone {
			t.Fatalf("the ledger has %+v", runs)
		}
		sent := h.hook.sent
		if len(sent) != 1 || sent[0].RunID != runs[0].ID || !strings.HasPrefix(sent[0].Text, "error ") {
			t.Errorf("sent %+v", sent)
		}
	}, bodies)
}

func TestTheCompletionIsSentBesideTheAnswer(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.hook.fail = func(chat.Reply) error { return &channel.SendError{Reason: "refused", Permanent: true} }
		var sent []string
		fail := h.hook.fail
		h.hook.fail = func(r chat.Reply) error { sent = append(sent, r.Target.ChatID+" "+r.Text); return fail(r) }
		h.put(once("both", "hello", time.Second), deliverTo(cron.Delivery{
			Mode: cron.DeliverAnnounce, Channel: "box", To: "9", Options: []byte(`{"completionDestination":{"mode":"webhook","to":"https://example.com/done"}}`),
		}))
		time.Sleep(time.Minute)
		synctest.Wait()
		wantList(t, "sent", sent, []string{"https://example.com/done ok hello"})
		wantList(t, "answers", h.box.texts("9"), []string{"hello"})
		if r := h.runs("both")[0]; r.Delivery != cron.DeliveryDone || r.DeliveryError != "" {
			t.Errorf("the failed completion counts as the answer: %+v", r)
		}
	}, bodies)
}

func TestAlertsAboutFailuresGoWhereTheJobNames(t *testing.T) {
	for name, c := range map[string]struct {
		options    string
		box, hooks int
	}{
		"a chat":    {`{"failureDestination":{"channel":"box","to":"ops"}}`, 1, 0},
		"a webhook": {`{"failureDestination":{"mode":"webhook","to":"` + hookURL + `"}}`, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inJobs(t, func(t *testing.T, h *jobHarness) {
				h.put(cron.Job{ID: "bad", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 120_000}, Payload: cron.Payload{Text: "fail"}},
					deliverTo(cron.Delivery{Mode: cron.DeliverNone, Options: []byte(c.options)}))
				time.Sleep(2*time.Minute + time.Minute) // the first run has failed
				synctest.Wait()
				want(t, "sent after one failure", len(h.box.texts("ops"))+len(h.hook.texts(hookURL)), 0)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				want(t, "sent in the chat", len(h.box.texts("ops")), c.box)
				want(t, "sent to the webhook", len(h.hook.texts(hookURL)), c.hooks)
			}, bodies)
		})
	}
}

func TestSkippedSlotsGiveOneAlertWhereTheJobAsksForIt(t *testing.T) {
	for name, c := range map[string]struct {
		include bool
		want    int
	}{"wanted": {true, 1}, "not wanted": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			inJobs(t, func(t *testing.T, h *jobHarness) {
				h.put(everySecond("slow", "sleep 9m"), func(j *cron.Job) {
					j.Alert = cron.Alert{After: 3, IncludeSkipped: c.include, Delivery: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "ops"}}
				})
				after(3500 * time.Millisecond)
				want(t, "sent after two", len(h.box.texts("ops")), 0)
				after(10 * time.Second)
				want(t, "sent", len(h.box.texts("ops")), c.want)
			})
		})
	}
}

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

func TestLateAnswersExpireAndRemindersNameTheirTime(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		began := time.Now()
		h.box.change(func() {
			h.box.fail = func(r chat.Reply) error {
				if r.Target.ChatID == "9" && time.Since(began) < 105*time.Minute {
					return &channel.SendError{Reason: "connection", Uncounted: true}
				}
				return nil
			}
		})
		to := deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "9"})
		h.put(cron.Job{ID: "often", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: (20 * time.Minute).Milliseconds()}, Payload: cron.Payload{Text: "often"}},
			to, func(j *cron.Job) {
				j.Alert.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "ops"}
			})
		h.put(cron.Job{
			ID: "pills", Schedule: schedule.Spec{Kind: schedule.KindAt, At: began.Add(time.Minute)}, Session: cron.Isolated, WakeMode: cron.WakeLater,
			Payload: cron.Payload{Kind: cron.PayloadSystemEvent, Text: "take the pills"},
		}, to)
		after(110 * time.Minute)
		planned := began.Add(time.Minute).UTC().Format("15:04")
		wantList(t, "sent", h.box.texts("9"), []string{"(planned " + planned + ") Reminder: take the pills", "often", "often", "often"}) // of the last hour
		wantList(t, "alerts", h.box.texts("ops"), []string{`An answer of the job "often" could not be sent in time and is not sent any more. The runs of the job show it.`})
		var became []string
		for _, r := range h.runs("often") {
			became = append(became, strings.TrimSpace(string(r.Delivery)+" "+r.DeliveryError))
		}
		late := "not-delivered it was not sent in time"
		wantList(t, "deliveries", became, []string{late, late, "delivered", "delivered", "delivered"})
		want(t, "of the reminder", h.runs("pills")[0].Delivery, cron.DeliveryDone)
	})
}
