package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway"
	"laneway/internal/store"
)

// troubled is a backend with every condition that needs attention.
type troubled struct {
	*fakeBackend
	*jobBook
	gateway.PairingBackend
}

func (b troubled) Channels() []chat.ChannelStatus {
	return []chat.ChannelStatus{{
		ID: "telegram", Name: "telegram:1", Configured: true, State: "conflict", LastError: "another program polls", OutboxWaiting: 3, OldestWaiting: time.Now().Add(-time.Hour),
	}}
}

func (b troubled) Status(context.Context) chat.SystemStatus {
	return chat.SystemStatus{
		Held: "held since yesterday", DiskLow: true, Stranded: []string{"the agent coder is missing"}, Progress: chat.Progress{StalledFor: time.Minute, CronAge: time.Minute},
		Channels: b.Channels(),
		Lanes:    chat.LanesStatus{Stuck: 2, Lanes: []chat.LaneStatus{{Name: "main", Capacity: 60, Active: 60, Waiting: 12, OldestWait: 38 * time.Second}, {Name: "team", Capacity: 9}}},
		Gone:     []chat.GoneNode{{Name: "gw-3", Since: time.Now().Add(-time.Minute)}},
		Nodes:    []chat.NodeStatus{{ID: "a", Version: "0.1.0"}, {ID: "b", Version: "0.2.0"}},
	}
}

func (b troubled) CronList(_ context.Context, f cron.JobFilter, by gateway.Caller) (cron.JobPage, error) {
	jobs := map[cron.JobCondition][]cron.Job{
		cron.JobsInvalid: {{ID: "odd", Name: "odd", Invalid: "its schedule has no fields"}},
		cron.JobsFailing: {
			{ID: "once", Name: "once", State: cron.JobState{ConsecutiveErrors: 1}},
			{ID: "off", Name: "off", AutoDisabled: true, State: cron.JobState{ConsecutiveErrors: 9, LastError: "no key"}},
			{ID: "digest", Name: "digest", State: cron.JobState{ConsecutiveErrors: 3, LastError: "no route"}},
			{ID: "patient", Name: "patient", Alert: cron.Alert{After: 5}, State: cron.JobState{ConsecutiveErrors: 4}},
		},
		cron.JobsUnsent: {{ID: "digest", Name: "digest", State: cron.JobState{DeliveryPause: cron.DeliveryPause{Since: time.Now(), Reason: "blocked", Channel: "telegram:1", ChatID: "4711"}}}},
	}[f.Condition]
	if by.Own {
		jobs = nil
	}
	return cron.JobPage{Jobs: jobs, Total: len(jobs)}, nil
}

func (b troubled) CronRuns(_ context.Context, f cron.RunFilter, by gateway.Caller) (cron.RunPage, error) {
	if !slices.Equal(f.States, []cron.RunState{cron.RunMissed}) || by.Own {
		return cron.RunPage{}, nil
	}
	return cron.RunPage{Runs: []cron.Run{{JobID: "digest", JobName: "digest", SlotCount: 4}, {JobID: "digest", JobName: "digest"}, {JobID: "odd", JobName: "odd"}}}, nil
}

func (b troubled) OpenPairings(context.Context, string) ([]channel.Pairing, error) {
	return []channel.Pairing{{ID: "req", Name: "Anna", Peer: channel.Peer{Channel: "telegram:1", UserID: 4711}}}, nil
}

func TestNeedsAreListedTheWorstFirst(t *testing.T) {
	t.Parallel()
	h := newFakeBackend(t)
	old := time.Now().Add(-time.Hour)
	h.turnList = []store.Turn{
		{ID: "gone", Session: chat.MainKey("main"), Principal: "otto", State: store.StateDone, Outcome: chat.OutcomeDead, Error: "it failed 5 times", EndedAt: old},
		{ID: "waits", Session: chat.MainKey("main"), Principal: "anna", State: store.StateWaiting, AcceptedAt: old},
	}
	h.waits = map[string]chat.Waiting{"waits": {Cause: chat.WaitSession}}
	h.questions = []agent.OpenQuestion{
		{ID: "q1", Agent: "coder", Principal: "gateway", Session: chat.MainKey("coder"), Question: agent.Question{Text: "run the command “ls”; with “a” = “b”", Act: "run the command “ls”"}},
		{ID: "q2", Agent: "coder", Principal: "otto", Session: chat.MainKey("coder"), Question: agent.Question{Text: "x"}},
	}
	b := serve(t, h, troubled{h, &jobBook{}, nil}, withHooks)
	list := func(token string) (lines []string) {
		for _, row := range b.login(token).must("needs.list", params{})["needs"].([]any) {
			n := row.(params)
			lines = append(lines, fmt.Sprintf("%v %v: %v", n["level"], n["kind"], n["text"]))
		}
		return lines
	}
	want := []string{
		"error held: held since yesterday",
		"error disk: disk: it has too little free space; new messages are refused until there is more",
		"error stranded: the agent coder is missing",
		"error stalled: work has been ready for 1m0s and nothing starts",
		"error cron: the cron loop has not turned for 1m0s",
		"error channel: channel telegram: another program polls",
		"error job-invalid: Job odd cannot be understood: its schedule has no fields",
		"error job-disabled: Job off was switched off after 9 failed runs: no key",
		"error job-failing: Job digest has failed 3 times in a row: no route",
		"error job-unsent: The answers of job digest are kept and not sent: the chat 4711 of telegram:1 accepts no messages (blocked).",
		"error dead: A message in agent:main:main was given up: it failed 5 times",
		"error deliveries: Channel telegram: 3 messages wait to be sent, the first for more than 5 minutes.",
		"warn missed: Job digest missed 5 slots in the last 24 hours.",
		"warn missed: Job odd missed 1 slot in the last 24 hours.",
		"warn session: A message in agent:main:main waits for its session.",
		"warn lane: Lane main: 12 sessions wait, 60 of 60 slots in use.",
		"warn stopping: 2 stopped runs have not ended: the agent does not react.",
		"warn replica: Replica gw-3 ended without a clean stop, and no other has taken its place.",
		"warn version: Replicas run different versions: 0.1.0 (a), 0.2.0 (b).",
		"ask pairing: Anna (telegram 4711) asks to talk to the agent.",
		"ask question: The agent coder asks before it does this: run the command “ls”",
		"hint agent: The default agent only echoes messages.",
	}
	if got := list(adminToken); !slices.Equal(got, want) {
		t.Errorf("needs:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	h.mu.Lock()
	h.down = true
	h.mu.Unlock()
	if got := list(adminToken); !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "error database: database: ") }) {
		t.Errorf("needs while the store does not answer:\n%s", strings.Join(got, "\n"))
	}
	h.mu.Lock()
	h.down = false
	h.mu.Unlock()
	for _, line := range list(annaToken) {
		if strings.Contains(line, "ask ") || strings.Contains(line, "lane:") || strings.Contains(line, "dead:") || strings.Contains(line, "deliveries") {
			t.Errorf("a principal that sees its own is shown %q", line)
		}
	}
}
