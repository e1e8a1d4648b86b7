package dispatch_test

import (
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
