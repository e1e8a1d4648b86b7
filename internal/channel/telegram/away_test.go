package telegram_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/testtelegram"
)

// Telegram does not answer for five minutes, from the first call on, with each kind of outage. Nothing else is delayed: jobs fire on time, other
// channels are answered at once, the gateway is ready. Within fifteen seconds after the end of the outage the bot answers.
func TestFiveMinutesWithoutTelegramAtTheStartDelayNothingElse(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, fault := range map[string]testtelegram.Fault{
		"hangs": {Hang: true}, "resets": {Reset: true}, "bad gateway": {HTML: 502}, "garbage": {Garbage: true}, "500": testtelegram.Refuse(500, "Internal Server Error"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { awayAtTheStart(t, fault) })
		})
	}
}

func awayAtTheStart(t *testing.T, fault testtelegram.Fault) {
	t.Helper()
	h := newHome(t)
	h.srv.BreakAlways(fault)
	h.begin()
	began := time.Now()
	key := chat.MainKey("main")
	say := func(id, text string) {
		t.Helper()
		asked := time.Now()
		_, err := h.d.Receive(t.Context(), chat.Message{Session: key, ID: id, Principal: "gateway", Scope: "operator.admin", Channel: "web", Content: chat.Content{Text: text}})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if end, err := h.d.Wait(ctx, id); err != nil || end.Outcome != chat.OutcomeAnswered || time.Since(asked) > time.Second {
			t.Errorf("%s: %+v, %v after %s", text, end, err, time.Since(asked))
		}
	}
	say("add", "/cron add every 30s look at the mail")
	for i := range 10 {
		after(time.Until(began.Add(time.Duration(i+1) * 30 * time.Second)))
		say(fmt.Sprint("m", i), fmt.Sprint("message ", i))
		if err := h.d.Ready(t.Context()); err != nil {
			t.Errorf("not ready after %s: %v", time.Since(began), err)
		}
	}
	if s := h.ch.Status(); s.State != "degraded" || s.LastError == "" || !s.Running {
		t.Errorf("the status is %+v", s)
	}
	after(5 * time.Second) // the last fire ends
	runs, err := h.st.Runs(t.Context(), cron.RunFilter{IncludeActive: true, Ascending: true})
	if err != nil {
		t.Fatal(err)
	}
	late := time.Duration(0)
	for _, r := range runs.Runs {
		if late = max(late, r.StartedAt.Sub(r.ScheduledFor)); r.State != cron.RunOK {
			t.Errorf("run %+v", r)
		}
	}
	if len(runs.Runs) < 9 || late > time.Second {
		t.Errorf("%d runs in five minutes, the latest %s late", len(runs.Runs), late)
	}

	h.srv.Mend()
	h.srv.Say(anna, anna, "are you there?")
	healed := time.Now()
	for len(h.srv.Texts(anna)) == 0 && time.Since(healed) < time.Minute {
		after(100 * time.Millisecond)
	}
	if took := time.Since(healed); took > 15*time.Second {
		t.Errorf("the first update was handled %s after Telegram was back", took)
	}
	t.Logf("%d runs, at most %s late; the bot answered %s after Telegram was back", len(runs.Runs), late, time.Since(healed))
	h.wantLast("anna", anna, "laneway pair approve")
	h.end()
}
