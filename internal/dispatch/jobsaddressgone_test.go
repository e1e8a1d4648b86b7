package dispatch_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// goneHarness has a job that answers `hello` each minute to the chat 9 of the box, and counts what
// is sent there. gone is the chat that refuses messages.
type goneHarness struct {
	*jobHarness

	gone  string
	tries int
}

func openGone(t *testing.T, st cronStore, text string, change ...func(*cron.Job)) *goneHarness {
	t.Helper()
	h := &goneHarness{jobHarness: openCron(t, st, bodies), gone: "9"}
	h.box.change(func() {
		h.box.fail = func(r chat.Reply) error {
			if r.Target.ChatID == "9" {
				h.tries++
			}
			if r.Target.ChatID == h.gone {
				return &channel.SendError{Reason: "blocked", Permanent: true, Gone: true}
			}
			return nil
		}
	})
	minutely := cron.Job{ID: "digest", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000}, Payload: cron.Payload{Text: text}}
	h.put(minutely, append([]func(*cron.Job){deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "9"})}, change...)...)
	return h
}

// refuseIn selects another chat that refuses messages.
func (h *goneHarness) refuseIn(gone string) { h.box.change(func() { h.gone = gone }) }

// onTheWeb returns the messages in the main session.
func (h *harness) onTheWeb() (texts []string) {
	h.t.Helper()
	tr, err := h.st.Transcript(h.t.Context(), store.TranscriptQuery{Session: chat.MainKey("main")})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range tr.Entries {
		texts = append(texts, e.Text)
	}
	return texts
}

// deliveries returns the ledger's delivery states of the job's answers, the oldest first.
func (h *goneHarness) deliveries() (list []string) {
	for _, r := range h.runs("digest") {
		if r.State == cron.RunOK {
			list = append(list, strings.TrimSpace(string(r.Delivery)+" "+r.DeliveryError))
		}
	}
	return list
}

const (
	goneOnce  = "not-delivered blocked"
	goneAgain = "not-delivered delivery is paused: blocked"
)

func TestAnAnswerIsTriedOnceWhereTheChatIsGoneAndPeopleGetAnAlert(t *testing.T) {
	dead := cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "9", Thread: "7"}
	nowhere := cron.Delivery{Mode: cron.DeliverNone}
	ops := cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "ops"}
	for name, c := range map[string]struct {
		alert          cron.Delivery
		options        string
		web, box, hook int
	}{
		"in the web session":                            {web: 1},
		"in the web session, if alerts go nowhere":      {alert: nowhere, web: 1},
		"at the job's alert":                            {alert: ops, box: 1},
		"at a webhook":                                  {alert: cron.Delivery{Mode: cron.DeliverWebhook, To: hookURL}, hook: 1},
		"where failures go":                             {options: `{"failureDestination":{"channel":"box","to":"ops"}}`, box: 1},
		"where failures go, if the alert's one is gone": {alert: dead, options: `{"failureDestination":{"channel":"box","to":"ops"}}`, box: 1},
		"in the web session, if all are gone":           {alert: dead, options: `{"failureDestination":{"channel":"box","to":"9"}}`, web: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := openGone(t, newStore(t), "hello", func(j *cron.Job) {
					j.Alert.Delivery = c.alert
					if c.options != "" {
						j.Delivery.Options = []byte(c.options)
					}
				})
				before := h.job("digest")
				after(4*time.Minute + 30*time.Second)
				want(t, "tries", h.tries, 1)
				wantList(t, "ledger", h.deliveries(), []string{goneOnce, goneAgain, goneAgain, goneAgain})
				sent := append(h.onTheWeb(), h.box.texts("ops")...)
				want(t, "sent in the web session", len(h.onTheWeb()), c.web)
				want(t, "sent in a chat", len(h.box.texts("ops")), c.box)
				want(t, "sent to a webhook", len(h.hook.texts(hookURL)), c.hook)
				if c.hook == 0 && !strings.Contains(strings.Join(sent, "\n"), `"digest" are not sent any more: the chat 9 of box accepts no messages (blocked)`) {
					t.Errorf("sent %q", sent)
				}
				j := h.job("digest")
				want(t, "revision", j.Revision, before.Revision)
				want(t, "fires", j.MayFire(), true)
				want(t, "reason", j.State.DeliveryPause.Reason, "blocked")
				counts, err := h.st.OutboxCounts(t.Context())
				if err != nil || counts["box"].Failed != 1 || counts["box"].FailedAt.IsZero() || counts["box"].Waiting != 0 {
					t.Errorf("outbox %+v, %v", counts, err)
				}
				h.close()
			})
		})
	}
}

func TestTheDeliveryToAChatThatWasGoneGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		heal func(h *goneHarness) error
		to   string
	}{
		"after an edit of the delivery": {func(h *goneHarness) error {
			_, err := h.d.Jobs.Update(h.t.Context(), "digest", cron.Members{"delivery": []byte(`{"mode":"announce","channel":"box","to":"10"}`)}, "", operator())
			return err
		}, "10"},
		"after an edit to the same value": {func(h *goneHarness) error {
			h.refuseIn("")
			_, err := h.d.Jobs.Update(h.t.Context(), "digest", cron.Members{"delivery": []byte(`{"mode":"announce","channel":"box","to":"9"}`)}, "", operator())
			return err
		}, "9"},
		"after a resume": {func(h *goneHarness) error {
			h.refuseIn("")
			_, err := h.d.Jobs.Resume(h.t.Context(), "digest", operator())
			return err
		}, "9"},
		"after a pause and a resume": {func(h *goneHarness) error {
			h.refuseIn("")
			if _, err := h.d.Jobs.Pause(h.t.Context(), "digest", "note", time.Time{}, operator()); err != nil {
				return err
			}
			_, err := h.d.Jobs.Resume(h.t.Context(), "digest", operator())
			return err
		}, "9"},
		"after it was enabled": {func(h *goneHarness) error {
			h.refuseIn("")
			_, err := h.d.Jobs.Update(h.t.Context(), "digest", cron.Members{"enabled": []byte("true")}, "", operator())
			return err
		}, "9"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := openGone(t, newStore(t), "hello")
				after(2*time.Minute + 30*time.Second)
				wantList(t, "ledger", h.deliveries(), []string{goneOnce, goneAgain})
				if _, err := h.d.Jobs.Update(t.Context(), "digest", cron.Members{"description": []byte(`"another"`)}, "", operator()); err != nil {
					t.Fatal(err)
				}
				want(t, "paused after an edit of something else", h.job("digest").State.DeliveryPause.Since.IsZero(), false)
				if err := c.heal(h); err != nil {
					t.Fatal(err)
				}
				want(t, "delivery paused", h.job("digest").State.DeliveryPause, cron.DeliveryPause{})
				after(time.Minute)
				wantList(t, "answers", h.box.texts(c.to), []string{"hello"})
				wantList(t, "ledger", h.deliveries(), []string{goneOnce, goneAgain, "delivered"})
				want(t, "sent", len(h.onTheWeb()), 1)
				h.refuseIn(c.to) // and again: people receive another alert
				after(2 * time.Minute)
				want(t, "sent again", len(h.onTheWeb()), 2)
				h.close()
			})
		})
	}
}

func TestARefusedTextPausesNoDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openGone(t, newStore(t), "hello")
		h.box.change(func() {
			h.box.fail = func(chat.Reply) error {
				h.tries++
				return &channel.SendError{Reason: "bad_request", Permanent: true}
			}
		})
		after(3*time.Minute + 30*time.Second)
		want(t, "tries", h.tries, 3)
		want(t, "sent", len(h.onTheWeb()), 0)
		want(t, "delivery paused", h.job("digest").State.DeliveryPause, cron.DeliveryPause{})
		h.close()
	})
}

// Its notices have the address of its answers, which no one reads.
func TestTheAlertOfAFailingJobPassesOverAChatThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openGone(t, newStore(t), "fail bad_request")
		after(3*time.Minute + 30*time.Second)
		want(t, "tries", h.tries, 1)
		sent := h.onTheWeb()
		if len(sent) != 2 || !strings.Contains(sent[0], "are not sent any more") || !strings.Contains(sent[1], "failed 2 times in a row") {
			t.Errorf("sent %q", sent)
		}
		h.close()
	})
}

// The job was edited while its answer waited.
func TestAnAnswerOnItsWayToAChatThatTheJobHasLeftPausesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openGone(t, newStore(t), "hello")
		h.box.change(func() { h.box.delay = func(chat.Reply) time.Duration { return 10 * time.Second } })
		after(time.Minute + 5*time.Second)
		if _, err := h.d.Jobs.Update(t.Context(), "digest", cron.Members{"delivery": []byte(`{"to":"10"}`)}, "", operator()); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		wantList(t, "ledger", h.deliveries(), []string{goneOnce})
		want(t, "delivery paused", h.job("digest").State.DeliveryPause, cron.DeliveryPause{})
		want(t, "sent", len(h.onTheWeb()), 0)
		after(time.Minute)
		wantList(t, "answers", h.box.texts("10"), []string{"hello"})
		h.close()
	})
}

// The answer is sent again, and the next process records the gone chat.
func TestAProcessThatDiesBeforeItNotesAGoneChatLeavesItToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(t)
		cut, off := cord(st)
		h := openGone(t, cut, "hello")
		fail := h.box.fail
		h.box.change(func() {
			h.box.fail = func(r chat.Reply) error {
				off.Store(true) // nothing is written after this
				return fail(r)
			}
		})
		after(time.Minute + time.Second)
		want(t, "tries", h.tries, 1)
		next := openCron(t, st)
		var tries int
		next.box.change(func() {
			next.box.fail = func(chat.Reply) error {
				tries++
				return &channel.SendError{Reason: "blocked", Permanent: true, Gone: true}
			}
		})
		after(3 * time.Minute)
		want(t, "tries of the next", tries, 1)
		want(t, "sent", len(next.onTheWeb()), 1)
		want(t, "reason", next.job("digest").State.DeliveryPause.Reason, "blocked")
		next.close()
		h.stop()
		h.abandon()
	})
}

func TestWhatFailuresHaveSwitchedOffIsOnAgainAfterAResume(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(everySecond("bad", "fail bad_request"), func(j *cron.Job) { j.PauseAfter = 3 })
		after(10 * time.Second)
		want(t, "switched off", h.job("bad").AutoDisabled, true)
		ran := len(h.runs("bad"))
		j, err := h.d.Jobs.Resume(t.Context(), "bad", operator())
		if err != nil || !j.MayFire() || j.AutoDisabled || j.State.NextRunAt.IsZero() || j.State.ConsecutiveErrors != 0 {
			t.Fatalf("resumed: %+v, %v", j, err)
		}
		after(1500 * time.Millisecond)
		want(t, "runs again", len(h.runs("bad")) > ran, true)
	})
}

// What says that an agent has nothing to report is shown to nobody: not in an event, the
// conversation, the list of sessions or the ledger. The agent itself gets it.
func TestSuppressedAnswersAreShownNowhere(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		ends := 0
		cancel := h.d.Subscribe(func(ev chat.Event) {
			if ev.Kind != chat.EventFinal {
				return
			}
			if ends++; strings.Contains(ev.Text, "NO_REPLY") {
				t.Errorf("an event of %s has the text %q", ev.Session, ev.Text)
			}
		}, func(chat.Event) bool { return true })
		defer cancel()
		h.put(everySecond("quiet", "NO_REPLY"), func(j *cron.Job) { j.Session = cron.Main })
		after(5 * time.Second)
		want(t, "ends", ends >= 3, true)
		main := h.msg("main", "").Session
		tr, err := h.d.Transcript(t.Context(), store.TranscriptQuery{Session: main})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range tr.Entries {
			if e.Role != chat.RoleUser {
				t.Errorf("the conversation has an entry of %s: %q", e.Role, e.Text)
			}
		}
		want(t, "entries", tr.Total, len(tr.Entries))
		st, err := h.d.Session(t.Context(), main, "")
		want(t, "the preview", st.LastPreview, "")
		want(t, "reading the session", err, nil)
		for _, r := range h.runs("quiet") {
			want(t, "summary in the ledger", r.Summary, "")
		}
		req, _, _ := h.runner.call(len(h.runner.texts()) - 1)
		said := 0
		for _, e := range req.History {
			if e.Role == chat.RoleAssistant && e.Text == chat.NoReply {
				said++
			}
		}
		want(t, "the agent knows what it said", said, len(h.runner.texts())-1)
	})
}

// Until the end of a run it is not known whether its answer is delivered. Only followers of the run
// receive what it writes.
func TestNothingOfAJobIsShownBeforeItsEnd(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		var grew int
		cancel := h.d.Subscribe(func(ev chat.Event) {
			if ev.Kind == chat.EventDelta {
				h.asker.change(func() { grew++ })
				if !ev.Unattended {
					t.Errorf("a delta of a job may be shown in its session: %+v", ev)
				}
				if flight, ok := h.d.InFlight(ev.Session); ok {
					t.Errorf("the unfinished answer of a job is in the history of its session: %+v", flight)
				}
			}
		}, func(chat.Event) bool { return true })
		defer cancel()
		h.put(everySecond("digest", "hello"), deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "asker", To: "9"}))
		after(5 * time.Second)
		want(t, "answers", len(h.asker.texts("9")) >= 3, true)
		want(t, "shown", len(h.asker.shown), 0)
		h.asker.change(func() { want(t, "followers receive text", grew >= 3, true) })
	})
}
