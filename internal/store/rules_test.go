package store

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
)

func TestASearchIsCutToItsNewestHits(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	hit := func(rest string, seq int64, after time.Duration) Hit {
		return Hit{Session: chat.SessionKey{Agent: "main", Rest: rest}, Entry: chat.TranscriptEntry{Seq: seq, At: at.Add(after)}}
	}
	// Newest first. At equal times by session, and within a session the higher number first.
	sorted := []Hit{hit("b", 1, 2), hit("a", 3, 1), hit("a", 2, 1), hit("b", 7, 1), hit("a", 1, 0)}
	for limit, want := range map[int]SearchResult{
		5: {Hits: sorted},
		4: {Hits: sorted[:4], More: true, Back: at.Add(1)},
		1: {Hits: sorted[:1], More: true, Back: at.Add(2)},
		0: {Hits: sorted},
	} {
		given := []Hit{sorted[2], sorted[4], sorted[0], sorted[3], sorted[1]}
		if got := (SearchQuery{Limit: limit}).Cut(given); !reflect.DeepEqual(got, want) {
			t.Errorf("limit %d: got %+v, want %+v", limit, got, want)
		}
	}
}

func TestASubTurnIsLeftWhenNoParentWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task Task
		want bool
	}{
		"its parent runs":                          {Task{State: StateRunning}, false},
		"its parent was stopped":                   {Task{State: StateRunning, ParentOutcome: chat.OutcomeStopped}, true},
		"it is announced, its parent was stopped":  {Task{State: StateWaiting, ParentOutcome: chat.OutcomeStopped, Announce: true}, true},
		"it is announced, its parent was replaced": {Task{State: StateWaiting, ParentOutcome: chat.OutcomeSuperseded, Announce: true}, true},
		"it is announced, its parent has ended":    {Task{State: StateRunning, ParentOutcome: chat.OutcomeAnswered, Announce: true}, false},
		"its parent has ended although it waited":  {Task{State: StateRunning, ParentOutcome: chat.OutcomeFailed}, true},
		"it has ended itself":                      {Task{State: StateDone, ParentOutcome: chat.OutcomeStopped}, false},
	} {
		if got := c.task.Left(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestAJournalThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	asked := JournalRow{Round: 1, Kind: RowAsked, Body: `{"calls":[{"name":"a"},{"name":"b"}]}`}
	result := func(n int64, body string) JournalRow { return JournalRow{Round: 1, Kind: RowResult, N: n, Body: body} }
	for want, rows := range map[string][]JournalRow{
		"":                         {asked, {Round: 1, Kind: RowInput, N: 7}, result(0, "{}"), result(1, "{}")},
		"a result of call 2 of 2":  {asked, result(2, "{}")},
		"a result of call -1 of 2": {asked, result(-1, "{}")},
		"reading the result of call 1 in round 1": {asked, result(1, "{")},
		"without what was asked":                  {asked, {Round: 2, Kind: RowInput}},
		"reading round 1: ":                       {{Round: 1, Kind: RowAsked, Body: "{"}},
	} {
		rounds, err := RoundsOf(rows)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", rows, err, want)
		}
		if err == nil && (len(rounds) != 1 || len(rounds[0].Results) != 2 || rounds[0].Results[1] == nil || rounds[0].Input[0] != 7) {
			t.Errorf("got %+v", rounds)
		}
	}
}

// The words about one message from its acceptance to the end of its answer; a fact that is not
// stored is not said.
func TestWhereAnAnswerIsIsSaidFromStoredFacts(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	at := func(ago time.Duration) time.Time { return now.Add(-ago) }
	waits := Turn{ID: "r", State: StateWaiting, AcceptedAt: at(90 * time.Second)}
	runs := waits
	runs.State, runs.Node, runs.Attempt, runs.StartedAt = RunRunning, "gw-1", 2, at(80*time.Second)
	answered := runs
	answered.State, answered.Outcome, answered.EndedAt, answered.Attempt = StateDone, chat.OutcomeAnswered, at(20*time.Second), 1
	sent := func(s Sending) Turn {
		t := answered
		s.Target, s.Kind = chat.Target{Channel: "telegram:1", ChatID: "7"}, KindReply
		t.Sent = []Sending{s}
		return t
	}
	ended := func(o chat.Outcome, text, by string) Turn {
		t := answered
		t.Outcome, t.Error, t.StopBy = o, text, by
		return t
	}
	asked := func(t Turn, requests, limited int) Turn {
		t.Asked = chat.Asked{Requests: requests, Limited: limited}
		return t
	}
	const accepted, worked = "The message was accepted 90 s ago. ", "The agent began on gw-1 10 s later and worked for 60 s. "
	for _, c := range []struct {
		turn      Turn
		waits     *chat.Waiting
		why, text string
	}{
		{waits, &chat.Waiting{Cause: chat.WaitLane, Position: 4}, WhyWaiting, accepted + "It waits for a slot of its lane, place 4."},
		{waits, &chat.Waiting{Cause: chat.WaitSession, Position: 1, BlockedBy: "q"}, WhyWaiting, accepted + "It waits for its session, place 1. Before it runs q."},
		{waits, &chat.Waiting{Cause: chat.WaitRetry, Until: now.Add(30 * time.Second)}, WhyWaiting, accepted + "It waits for its next attempt, for 30 s more."},
		{waits, nil, WhyWaiting, accepted + "It waits for its turn."},
		{runs, nil, WhyRunning, accepted + "The agent began on gw-1 10 s later and worked for 80 s. This was attempt 2. There is no answer yet."},
		{runs, &chat.Waiting{Cause: chat.WaitQuestion}, WhyRunning, accepted + "The agent began on gw-1 10 s later and worked for 80 s. This was attempt 2. It waits for the answer of a person."},
		{answered, nil, WhyAnswered, accepted + worked + "It was answered 20 s ago; the answer is in the conversation."},
		{asked(answered, 3, 2), nil, WhyAnswered, accepted + worked + "It asked the model 3 times (429 twice). It was answered 20 s ago; the answer is in the conversation."},
		{asked(ended(chat.OutcomeFailed, "the model is busy", ""), 1, 1), nil, WhyFailed, accepted + worked + "It asked the model once (429 once). It ended 20 s ago without an answer (failed): the model is busy."},
		{asked(answered, 2, 0), nil, WhyAnswered, accepted + worked + "It asked the model twice. It was answered 20 s ago; the answer is in the conversation."},
		{sent(Sending{State: OutDelivered, Receipt: "4712", DoneAt: at(19 * time.Second)}), nil, WhyDelivered, accepted + worked + "The reply was delivered to telegram:1 7 as message 4712 19 s ago."},
		{sent(Sending{State: OutPending, Attempts: 2, Error: "429.", NextAt: now.Add(5 * time.Second)}), nil, WhySending, accepted + worked + "The reply to telegram:1 7 is not delivered yet, after 2 attempts, next in 5.0 s: 429."},
		{sent(Sending{State: OutPending, HeldAt: now.Add(3 * time.Hour), NextAt: now.Add(3 * time.Hour)}), nil, WhySending, accepted + worked + "The reply to telegram:1 7 is held by quiet hours for 3 h more."},
		{sent(Sending{State: OutSuperseded, DoneAt: at(time.Second)}), nil, WhyUndelivered, accepted + worked + "The reply to telegram:1 7 was not sent: a later run of its job took its place during quiet hours."},
		{sent(Sending{State: OutMaybeSent, Error: "timeout"}), nil, WhyUndelivered, accepted + worked + "The reply to telegram:1 7 may have arrived and is not sent again: timeout."},
		{sent(Sending{State: OutFailed, Error: "403", DoneAt: at(time.Second)}), nil, WhyUndelivered, accepted + worked + "The reply to telegram:1 7 was given up 1.0 s ago (failed): 403."},
		{ended(chat.OutcomeFailed, "the model was overloaded", ""), nil, WhyFailed, accepted + worked + "It ended 20 s ago without an answer (failed): the model was overloaded."},
		{ended(chat.OutcomeDead, "", ""), nil, WhyFailed, accepted + worked + "It ended 20 s ago without an answer (dead): no reason is stored."},
		{ended(chat.OutcomeStopped, "", "stop"), nil, WhyStopped, accepted + worked + "It was not answered: stopped by stop 20 s ago."},
	} {
		if x := ExplainTurn(&c.turn, c.waits, now); x.Why != c.why || x.Text != c.text {
			t.Errorf("%s: %s\nwant %s: %s", x.Why, x.Text, c.why, c.text)
		}
	}
}

func TestAStopSelects(t *testing.T) {
	t.Parallel()
	running := []Run{{ID: "stopping", StopBy: "ann"}, {ID: "first"}, {ID: "second"}}
	waiting := []Waiting{{MessageID: "a"}, {MessageID: "b"}}
	for name, c := range map[string]struct {
		p        StopParams
		running  []Run
		named    string
		runs     []string
		messages []string
		fails    bool
	}{
		"everything":                       {p: StopParams{Scope: StopAll}, running: running, runs: []string{"stopping", "first", "second"}, messages: []string{"a", "b"}},
		"one that is not asked yet":        {p: StopParams{Scope: StopOne}, running: running, runs: []string{"first"}},
		"a message when no other run runs": {p: StopParams{Scope: StopOne}, running: running[:1], messages: []string{"a", "b"}},
		"the run of a name":                {p: StopParams{Scope: StopRun, MessageID: "m"}, running: running, named: "second", runs: []string{"second"}},
		"the message of a name":            {p: StopParams{Scope: StopRun, MessageID: "b"}, running: running, named: "b", messages: []string{"b"}},
		"no such name":                     {p: StopParams{Scope: StopRun, MessageID: "x"}, running: running, named: "x"},
		"no such scope":                    {p: StopParams{Scope: "some"}, running: running, fails: true},
	} {
		runs, messages, err := c.p.Meets(c.running, waiting, c.named)
		var ids, names []string
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		for _, m := range messages {
			names = append(names, m.MessageID)
		}
		if !slices.Equal(ids, c.runs) || !slices.Equal(names, c.messages) || err != nil != c.fails {
			t.Errorf("%s: runs %v, messages %v, %v, want %v and %v", name, ids, names, err, c.runs, c.messages)
		}
	}
}
