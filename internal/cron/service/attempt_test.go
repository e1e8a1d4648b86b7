package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/service"
	"laneway/internal/store"
)

func TestAnAttemptIsRecognisedByItsMessage(t *testing.T) {
	t.Parallel()
	p := open(t)
	for id, want := range map[string]int{
		"schedule:j:1000": 1, "schedule:j:1000/2": 2, "backfill:2:j:1000": 1, "schedule:j:1000/1": 0, "schedule:j:1000/x": 0, "schedule:j": 0, "m1": 0,
	} {
		a := p.Attempt(cron.Channel, id)
		if (a != nil) != (want > 0) {
			t.Errorf("%s is an attempt: %v", id, a != nil)
			continue
		}
		if a != nil {
			equal(t, id, a.Start("node").Attempt, want)
		}
	}
	if p.Attempt("web", "schedule:j:1000") != nil {
		t.Error("a message of another channel is an attempt")
	}
}

// end is the end of a turn of the job's first run that was started at noon, with the answer for a
// person.
func (p *process) end(j cron.Job, how service.Ending) store.FinishParams {
	p.t.Helper()
	a := p.Attempt(cron.Channel, cron.RunID(cron.TriggerSchedule, j.ID, noon))
	turn := service.Turn{Session: chat.MainKey("main"), RunID: "r", Lane: "cron", Node: "node", StartedAt: noon, Began: time.Now(), Number: 1}
	a.Started(p.t.Context(), turn, &j)
	kind := store.KindReply
	if how.Outcome != chat.OutcomeAnswered {
		kind = store.KindNotice
	}
	params := store.FinishParams{Outgoing: []store.Outgoing{{Target: chat.Target{Channel: "box:work", ChatID: "9"}, Kind: kind, Text: how.Reply}}}
	a.End(p.t.Context(), turn, how, &params)
	return params
}

// start starts the turn of an attempt.
func (p *process) start(l cron.Launched) (*service.Attempt, store.Claim) {
	p.t.Helper()
	a, claim := p.Attempt(cron.Channel, l.Message.ID), store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}
	start := store.StartParams{Claim: claim, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq}, Cron: a.Start(l.Owner)}
	if _, err := p.store.Start(p.t.Context(), start); err != nil {
		p.t.Fatal(err)
	}
	return a, claim
}

// run starts a run of a job by hand and returns the parameters of its end, and the function that
// publishes that end. ctx is the context of the turn.
func (p *process) run(ctx context.Context, j cron.Job, how service.Ending) (params store.FinishParams, publish func(endedAt time.Time)) {
	p.t.Helper()
	if _, reason, err := p.Runs.Start(p.t.Context(), j.ID, cron.RunForce, operator, nil); err != nil || reason != "" {
		p.t.Fatalf("started: %q, %v", reason, err)
	}
	l := p.launched[len(p.launched)-1]
	a, claim := p.start(l)
	turn := service.Turn{Session: l.Message.Session, RunID: l.Message.ID, Lane: "cron", Node: l.Owner, StartedAt: p.now, Began: time.Now(), Number: 1}
	a.Started(p.t.Context(), turn, &j)
	params = store.FinishParams{Claim: claim, RunID: l.Message.ID, State: store.RunOK, Outcome: how.Outcome}
	return params, a.End(ctx, turn, how, &params)
}

// TestAnEndThatWasTriedTwicePublishesWhatIsCommitted covers a first try that passed the run to the
// job, and a second one in which the job had been removed.
func TestAnEndThatWasTriedTwicePublishesWhatIsCommitted(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(nil)
	var took []time.Duration
	p.Events.Subscribe(func(e cron.Event) {
		if e.Action == cron.ActionFinished {
			took = append(took, e.Run.Duration)
		}
	}, func() bool { return true })
	params, publish := p.run(t.Context(), j, service.Ending{Outcome: chat.OutcomeAnswered})
	params.Cron.Job(j, cron.Run{ID: params.RunID, State: cron.RunOK, StartedAt: noon, FinishedAt: noon.Add(5 * time.Millisecond), Duration: 5 * time.Millisecond}, noon)
	if err := p.Editor.Remove(t.Context(), j.ID, true, operator); err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(44 * time.Millisecond)
	fin, err := p.store.Finish(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	publish(fin.EndedAt)
	if len(took) != 1 || took[0] != 44*time.Millisecond {
		t.Errorf("published durations %s, want 44ms", took)
	}
}

// A job is removed with its running run: the turn was cancelled, and its end is read again because
// the job received no run.
func TestEndOfARemovedJobIsPublishedAfterAStop(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(nil)
	ctx, stop := context.WithCancel(t.Context())
	params, publish := p.run(ctx, j, service.Ending{Outcome: chat.OutcomeStopped, Reason: string(cron.ReasonRemoved)})
	params.State = store.RunStopped
	if err := p.Editor.Remove(t.Context(), j.ID, true, operator); err != nil {
		t.Fatal(err)
	}
	stop()
	p.takeEvents()
	fin, err := p.store.Finish(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	publish(fin.EndedAt)
	equal(t, "events", p.takeEvents(), "finished digest cancelled")
}

// TestARetryIsPublishedAlikeOnEveryReplica covers a next attempt that has begun before another
// replica reads the run.
func TestARetryIsPublishedAlikeOnEveryReplica(t *testing.T) {
	t.Parallel()
	p := open(t)
	params, publish := p.run(t.Context(), p.add(map[string]any{"retry": map[string]any{"maxRetries": 2}}), service.Ending{Outcome: chat.OutcomeFailed, Reason: string(chat.FailOverloaded)})
	params.State = store.RunFailed
	fin, err := p.store.Finish(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	heard := map[string]cron.Run{}
	hear := func(s *service.Service, where string) {
		s.Events.Subscribe(func(e cron.Event) { heard[where] = *e.Run }, func() bool { return true })
	}
	hear(p.Service, "here")
	publish(fin.EndedAt)
	p.now = heard["here"].NextAttempt
	if err := p.store.Register(t.Context(), store.Node{ID: "node", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	claimed, err := p.store.Claim(t.Context(), cron.ClaimParams{Node: "node", Limit: 1})
	if err != nil || len(claimed.Launched) != 1 {
		t.Fatalf("claimed %+v, %v; want the second attempt", claimed, err)
	}
	p.start(claimed.Launched[0])
	there := &process{t: t, now: p.now}
	there.join(p.store)
	hear(there.Service, "there")
	there.Events.Receive(t.Context(), p.sent[len(p.sent)-1])
	for _, r := range heard {
		equal(t, "the class of the error", r.ErrorClass, string(chat.FailOverloaded))
	}
	equal(t, "the event of the other replica", fmt.Sprintf("%+v", heard["there"]), fmt.Sprintf("%+v", heard["here"]))
}

func TestTheEndOfATurnDecidesTheRun(t *testing.T) {
	t.Parallel()
	p := open(t)
	retried := p.add(nil)
	for what, c := range map[string]struct {
		how     service.Ending
		state   cron.RunState
		reason  cron.Reason
		attempt cron.AttemptState
		again   bool
	}{
		"answered":        {service.Ending{Outcome: chat.OutcomeAnswered, Reply: "hello"}, cron.RunOK, "", cron.AttemptOK, false},
		"overloaded":      {service.Ending{Outcome: chat.OutcomeFailed, Reason: string(chat.FailOverloaded)}, cron.RunRetrying, "", cron.AttemptError, true},
		"timed out":       {service.Ending{Outcome: chat.OutcomeFailed, Reason: string(chat.FailTimeout)}, cron.RunRetrying, "", cron.AttemptTimeout, true},
		"refused":         {service.Ending{Outcome: chat.OutcomeFailed, Reason: string(chat.FailRefusal)}, cron.RunError, "", cron.AttemptError, false},
		"dead":            {service.Ending{Outcome: chat.OutcomeDead}, cron.RunInterrupted, "", cron.AttemptInterrupted, false},
		"drained":         {service.Ending{Outcome: chat.OutcomeInterrupted, Requeued: true}, cron.RunQueued, "", cron.AttemptInterrupted, false},
		"stopped":         {service.Ending{Outcome: chat.OutcomeStopped, Reason: "stop"}, cron.RunCancelled, cron.ReasonStopped, cron.AttemptCancelled, false},
		"with its job":    {service.Ending{Outcome: chat.OutcomeStopped, Reason: "removed"}, cron.RunCancelled, cron.ReasonRemoved, cron.AttemptCancelled, false},
		"for a newer run": {service.Ending{Outcome: chat.OutcomeSuperseded, Reason: "superseded"}, cron.RunCancelled, cron.ReasonReplaced, cron.AttemptCancelled, false},
	} {
		params := p.end(retried, c.how)
		e := params.Cron
		if e.State != c.state || e.Reason != c.reason || e.Attempt.State != c.attempt || e.NextAttempt.After(noon) != c.again {
			t.Errorf("%s: state %s, reason %q, attempt %s, again at %s; want %+v", what, e.State, e.Reason, e.Attempt.State, e.NextAttempt, c)
		}
	}
}

func TestWhatIsSentFollowsTheDeliveryOfTheJob(t *testing.T) {
	t.Parallel()
	p := open(t)
	const url = "https://example.com/hook"
	chat9 := cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "9"}
	gone := cron.JobState{DeliveryPause: cron.DeliveryPause{Since: noon, Reason: "blocked", Channel: "box:work", ChatID: "9"}}
	answered := service.Ending{Outcome: chat.OutcomeAnswered, Text: "hello", Reply: "hello"}
	failed := service.Ending{Outcome: chat.OutcomeFailed, Reason: string(chat.FailRefusal), Message: "no"}
	for what, c := range map[string]struct {
		job        cron.Job
		how        service.Ending
		sent       string // channels and messages
		delivery   cron.DeliveryStatus
		suppressed string
	}{
		"an answer to a chat":    {cron.Job{Delivery: chat9}, answered, "box:work hello", cron.DeliveryUnknown, ""},
		"an answer to no one":    {cron.Job{Delivery: cron.Delivery{Mode: cron.DeliverNone}}, answered, "", cron.DeliveryNotRequested, ""},
		"an empty answer":        {cron.Job{Delivery: chat9}, service.Ending{Outcome: chat.OutcomeAnswered, Reply: " "}, "", cron.DeliveryNotRequested, "empty"},
		"files without text":     {cron.Job{Delivery: chat9}, service.Ending{Outcome: chat.OutcomeAnswered, Files: true}, "box:work ", cron.DeliveryUnknown, ""},
		"nothing to report":      {cron.Job{Delivery: chat9}, service.Ending{Outcome: chat.OutcomeAnswered, Reply: "NO_REPLY\n"}, "", cron.DeliveryNotRequested, "no-reply"},
		"a failure to a chat":    {cron.Job{Delivery: chat9}, failed, "box:work ", cron.DeliveryNot, ""},
		"a failure to a session": {cron.Job{Delivery: cron.Delivery{Mode: cron.DeliverAnnounce}}, failed, "", cron.DeliveryNotRequested, ""},
		"a chat that is gone":    {cron.Job{Delivery: chat9, State: gone}, answered, "", cron.DeliveryNot, ""},
		"an answer to a webhook": {cron.Job{Delivery: cron.Delivery{Mode: cron.DeliverWebhook, To: url}}, answered, "webhook ok hello", cron.DeliveryUnknown, ""},
		"nothing for a webhook":  {cron.Job{Delivery: cron.Delivery{Mode: cron.DeliverWebhook, To: url}}, service.Ending{Outcome: chat.OutcomeAnswered, Reply: "NO_REPLY"}, "webhook ok ", cron.DeliveryUnknown, "no-reply"},
		"a failure to a webhook": {cron.Job{Delivery: cron.Delivery{Mode: cron.DeliverWebhook, To: url}}, failed, "webhook error ", cron.DeliveryUnknown, ""},
		"a run that is tried again": {
			cron.Job{Delivery: chat9, Retry: cron.DefaultRetry()},
			service.Ending{Outcome: chat.OutcomeFailed, Reason: string(chat.FailOverloaded)},
			"", cron.DeliveryNotRequested, "",
		},
	} {
		c.job.ID, c.job.Agent = "j", "main"
		params := p.end(c.job, c.how)
		var sent []string
		for _, o := range params.Outgoing {
			sent = append(sent, o.Target.Channel+" "+o.Text)
		}
		if got := strings.Join(sent, ", "); got != c.sent || params.Cron.Delivery != c.delivery || params.Cron.SuppressedBy != c.suppressed {
			t.Errorf("%s: sent %q, delivery %s, suppressed by %q; want %q, %s, %q", what, got, params.Cron.Delivery, params.Cron.SuppressedBy, c.sent, c.delivery, c.suppressed)
		}
	}
}

func TestAWorkOfTheGatewayNeedsNoAgent(t *testing.T) {
	t.Parallel()
	p := open(t)
	for what, c := range map[string]struct {
		job  cron.Job
		text string
		done bool
		err  string
	}{
		"an agent turn":      {cron.Job{Payload: cron.Payload{Kind: cron.PayloadAgentTurn, Text: "hello"}}, "", false, ""},
		"a reminder":         {cron.Job{Payload: cron.Payload{Kind: cron.PayloadSystemEvent, Text: "tea"}, WakeMode: cron.WakeLater, Session: cron.Isolated, Delivery: cron.Delivery{Mode: cron.DeliverAnnounce}}, "Reminder: tea", true, ""},
		"text for later":     {cron.Job{Payload: cron.Payload{Kind: cron.PayloadSystemEvent, Text: "tea"}, WakeMode: cron.WakeLater, Session: cron.Main}, "", true, ""},
		"a retention":        {cron.Job{Owner: cron.SystemOwner, Payload: cron.Payload{Kind: cron.PayloadSystemEvent, Text: "retention"}}, "everything is kept, 0 kept answers removed", true, ""},
		"an unknown job":     {cron.Job{Owner: cron.SystemOwner, Payload: cron.Payload{Kind: cron.PayloadSystemEvent, Text: "sing"}}, "", true, "there is no built-in job sing"},
		"a program, refused": {cron.Job{Payload: cron.Payload{Kind: cron.PayloadCommand}}, "", true, "the payload kind command is disabled"},
	} {
		c.job.ID = "j"
		a := p.Attempt(cron.Channel, cron.RunID(cron.TriggerSchedule, "j", noon))
		a.Started(t.Context(), service.Turn{Number: 1, StartedAt: noon}, &c.job)
		res, done, err := a.Execute(t.Context(), agent.Request{Messages: []chat.Content{{Text: "hello"}}}, nil, func(agent.Event) {})
		if res.Text != c.text || done != c.done || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %q, done %v, %v; want %+v", what, res.Text, done, err, c)
		}
	}
}

// elsewhere makes another process serve bots that this one does not have.
func (p *process) elsewhere(names ...string) {
	p.t.Helper()
	for _, name := range names {
		if _, ok, err := p.store.AcquireLease(p.t.Context(), name, "node"); err != nil || !ok {
			p.t.Fatalf("acquiring %s: %v, %v", name, ok, err)
		}
	}
}

func toTelegram(account string) map[string]any {
	delivery := map[string]any{"mode": "announce", "channel": "telegram", "to": "7"}
	if account != "" {
		delivery["accountId"] = account
	}
	return map[string]any{"delivery": delivery}
}

// The process that creates and launches the run has no bot: the address gets the account that the
// store has.
func TestARunOfAProcessWithoutTheChannelHasAnAddressWithItsAccount(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.elsewhere("telegram:123", "other:1")
	j := p.add(toTelegram(""))
	if _, reason, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil); err != nil || reason != "" {
		t.Fatalf("%q, %v", reason, err)
	}
	equal(t, "address", p.launched[0].Message.Content.Options.ReplyTo, chat.Target{Channel: "telegram:123", ChatID: "7"})
}

func TestAJobThatCouldMeanSeveralAccountsIsRefused(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.elsewhere("telegram:123", "telegram:456")
	_, err := p.Editor.Add(t.Context(), members(t, toTelegram("")), operator, nil)
	if err == nil || !strings.Contains(err.Error(), "telegram:123, telegram:456") {
		t.Errorf("without an account: %v", err)
	}
	j := p.add(toTelegram("456"))
	if _, _, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil); err != nil {
		t.Fatal(err)
	}
	equal(t, "address", p.launched[0].Message.Content.Options.ReplyTo, chat.Target{Channel: "telegram:456", ChatID: "7"})
}

// Without a known bot, an answer would wait forever under an address that no process serves.
func TestAnAnswerWithoutAKnownAccountIsNotSent(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(toTelegram(""))
	id, _, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	to := p.launched[0].Message.Content.Options.ReplyTo
	if why := p.Attempt(cron.Channel, id).HeldBack(to); !strings.Contains(why, "no account of telegram is known") {
		t.Errorf("to %v it is held back because %q", to, why)
	}
}
