package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway"
	"laneway/internal/gateway/pairing"
	"laneway/internal/store"
)

func TestHistoryByCursorGivesEveryMessageOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	say := func(id string) {
		s.must("chat.send", send("main", "text of "+id, id))
		s.next(chatState(id, "final"))
	}
	empty := s.must("chat.history", params{"sessionKey": "main"})
	cursor := empty["deltaCursor"].(string)
	if cursor != "m:0" || len(empty["messages"].([]any)) != 0 || empty["totalMessages"] != 0.0 {
		t.Errorf("unknown session: %v", empty)
	}
	for i := range 5 {
		say("m" + strconv.Itoa(i))
	}
	var got []string
	for {
		h := s.must("chat.history", params{"sessionKey": "main", "cursor": cursor, "limit": 3})
		if h["kind"] != "delta" {
			t.Fatalf("history %v", h)
		}
		for _, m := range h["messages"].([]any) {
			got = append(got, m.(params)["content"].([]any)[0].(params)["text"].(string))
		}
		cursor = h["deltaCursor"].(string)
		if len(h["messages"].([]any)) == 0 {
			break
		}
	}
	if len(got) != 10 || got[0] != "text of m0" || got[9] != "text of m4" {
		t.Errorf("messages %q", got)
	}
	page := s.must("chat.history", params{"sessionKey": "main", "limit": 2, "offset": 1, "maxChars": 4})
	messages := page["messages"].([]any)
	first := messages[0].(params)
	if len(messages) != 2 || page["hasMore"] != true || page["totalMessages"] != 10.0 || first["seq"] != 8.0 ||
		first["content"].([]any)[0].(params)["text"] != "text..." {
		t.Errorf("page %v", page)
	}
	if mark := messages[1].(params)["__openclaw"].(params); mark["idempotencyKey"] != "m4:user" || mark["id"] != "m-9" {
		t.Errorf("mark %v", mark)
	}
	s.must("sessions.reset", params{"key": "main"})
	if h := s.must("chat.history", params{"sessionKey": "main", "cursor": cursor}); h["kind"] != "reset" || len(h) != 1 {
		t.Errorf("after a reset: %v", h)
	}
	if h := s.must("chat.history", params{"sessionKey": "main", "cursor": "rubbish"}); h["kind"] != "reset" {
		t.Errorf("an invalid cursor: %v", h)
	}
}

func TestListAnswersAreCutAtFourMebibytes(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for i := range 50 {
		b.core.append(t, "main", strconv.Itoa(i), strings.Repeat("x", 200_000))
	}
	f := s.call("chat.history", params{"sessionKey": "main", "limit": 1000, "maxChars": 500_000})
	h := decode[params](t, f.Payload)
	if n := len(f.Payload); n > 4<<20+8192 || h["hasMore"] != true || len(h["messages"].([]any)) != 20 {
		t.Errorf("%d bytes, %d messages, hasMore %v; want at most 4 MiB and more to come", n, len(h["messages"].([]any)), h["hasMore"])
	}
	if last := h["messages"].([]any)[19].(params); last["seq"] != 50.0 {
		t.Errorf("the newest message is missing: seq %v", last["seq"])
	}
}

func TestRestOfLongMessageIsRead(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	whole := strings.Repeat("äx…", 400)
	for _, text := range []string{"before", whole, "after"} {
		b.core.append(t, "main", text[:5], text)
	}
	read := func(p params) (text string, next any) {
		t.Helper()
		p["sessionKey"], p["maxChars"] = "main", 500
		for _, m := range s.must("chat.history", p)["messages"].([]any) {
			if m := m.(params); m["seq"] == 2.0 {
				return m["content"].([]any)[0].(params)["text"].(string), m["nextChar"]
			}
		}
		t.Fatal("the message is missing")
		return "", nil
	}
	text, next := read(params{})
	text = strings.TrimSuffix(text, "...")
	for pieces := 0; next != nil; pieces++ {
		var more string
		more, next = read(params{"seq": 2, "fromChar": next})
		if text += more; pieces > 3 {
			t.Fatal("it never ends")
		}
	}
	if text != whole {
		t.Errorf("%d of %d bytes are read", len(text), len(whole))
	}
	for name, bad := range map[string]params{"without seq": {"fromChar": 1}, "with cursor": {"seq": 1, "cursor": "m:0"}} {
		bad["sessionKey"] = "main"
		if f := s.call("chat.history", bad); f.OK {
			t.Errorf("%s: it is not refused", name)
		}
	}
}

func TestTotalOfSessionsStopsAtThousand(t *testing.T) {
	t.Parallel()
	b := start(t)
	for i := range 1001 {
		b.core.append(t, fmt.Sprintf("s%04d", i), strconv.Itoa(i), "x")
	}
	s := b.login(adminToken)
	for offset, want := range map[int]params{0: {"totalCount": 1000.0, "totalIsLowerBound": true, "hasMore": true}, 1000: {"totalCount": 1001.0, "totalIsLowerBound": nil, "hasMore": false}} {
		list := s.must("sessions.list", params{"limit": 1, "offset": offset})
		for member, want := range want {
			if list[member] != want {
				t.Errorf("at %d: %s is %v, want %v", offset, member, list[member], want)
			}
		}
	}
	if n := s.must("status", nil)["sessions"].(params); n["known"] != 1000.0 || n["knownIsLowerBound"] != true {
		t.Errorf("status has %v", n)
	}
}

func TestSessionsMethods(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for _, k := range []string{"telegram:group:-100:topic:7", "main"} {
		s.must("chat.send", send(k, "hi", strings.ReplaceAll(k, ":", "-")))
		s.next(chatState(strings.ReplaceAll(k, ":", "-"), "final"))
	}
	list := s.must("sessions.list", params{"limit": 1, "includeGlobal": true, "sortBy": "updatedAt", "activeMinutes": 5})
	if list["count"] != 1.0 || list["totalCount"] != 2.0 || list["hasMore"] != true || list["nextOffset"] != 1.0 || list["limitApplied"] != 1.0 {
		t.Errorf("list %v", list)
	}
	list = s.must("sessions.list", params{"offset": 1})
	row := list["sessions"].([]any)[0].(params)
	if row["key"] != "agent:main:telegram:group:-100:topic:7" || list["nextOffset"] != nil {
		t.Errorf("the older one is %v of %v", row, list)
	}
	if row["kind"] != "group" || row["channel"] != "telegram" || row["isMain"] != false {
		t.Errorf("row %v of %v", row, list)
	}
	if got := s.must("sessions.describe", params{"key": "main"}); got["session"].(params)["isMain"] != true || got["session"].(params)["lane"] != "main" {
		t.Errorf("describe %v", got)
	}
	if got := s.must("sessions.describe", params{"key": "none"}); got["session"] != nil {
		t.Errorf("describe of nothing %v", got)
	}
	if got := s.must("sessions.subscribe", params{"limit": 5}); got["subscribed"] != true || got["list"].(params)["count"] != 2.0 {
		t.Errorf("subscribe with a list %v", got)
	}
	reset := params{"key": "main", "reason": "new", "idempotencyKey": "once"}
	id := s.must("sessions.reset", reset)["entry"].(params)["sessionId"]
	if again := s.must("sessions.reset", reset)["entry"].(params)["sessionId"]; again != id {
		t.Errorf("a repeated reset made %v after %v", again, id)
	}
	if f := s.call("sessions.reset", params{"key": "other", "idempotencyKey": "once"}); f.OK || f.Error.Details["code"] != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("same key, other params: %+v", f.Error)
	}
	if f := s.call("sessions.delete", params{"key": "main", "expectedSessionId": "old"}); f.OK || f.Error.Details["code"] != "CONFLICT" {
		t.Errorf("delete of another transcript: %+v", f.Error)
	}
	if got := s.must("sessions.delete", params{"key": "main"}); got["deleted"] != true || got["key"] != "agent:main:main" || len(got["archived"].([]any)) != 0 {
		t.Errorf("delete %v", got)
	}
	if got := s.must("sessions.delete", params{"key": "main"}); got["deleted"] != false {
		t.Errorf("delete of nothing %v", got)
	}
}

func TestEventsGoToTheSenderAndSubscribersOnly(t *testing.T) {
	t.Parallel()
	b := start(t)
	sender, subscriber, other := b.login(adminToken), b.login(adminToken), b.login(adminToken)
	subscriber.must("sessions.subscribe", nil)
	sender.must("chat.send", send("main", "hello", "r"))
	sender.next(chatState("r", "final"))
	subscriber.next(chatState("r", "final"))
	other.request("h", "health", nil)
	if f := other.read(); f.ID != "h" {
		t.Errorf("a connection that neither sent nor subscribed got %s", f.Event)
	}
}

// The test counts the events of two runs that another connection starts, in the sessions main and
// other.
func TestASubscriptionWithoutDeltasGetsTheEndsOfOtherRuns(t *testing.T) {
	t.Parallel()
	b := start(t)
	sender := b.login(adminToken)
	subscribed := map[string]*socket{}
	for name, p := range map[string]params{"all": {}, "ends": {"deltas": false}, "ends, and main": {"deltas": false, "deltasOf": "main"}} {
		subscribed[name] = b.login(adminToken)
		if got := subscribed[name].must("sessions.subscribe", p); got["list"] != nil {
			t.Errorf("%s: a list without its parameters: %v", name, got)
		}
	}
	if got := subscribed["ends"].must("sessions.subscribe", params{"deltas": false, "limit": 1}); got["list"] == nil {
		t.Error("parameters of a list bring none")
	}
	if f := sender.call("sessions.subscribe", params{"deltasOf": "agent::"}); f.OK || !strings.Contains(f.Error.Message, "/deltasOf") {
		t.Errorf("the key is wrong: %+v", f.Error)
	}
	for _, key := range []string{"main", "other"} {
		sender.must("chat.send", send(key, "hello", key))
		sender.next(chatState(key, "final"))
	}
	type seen struct{ Grows, Ends int }
	want := map[string]map[string]bool{"all": {"main": true, "other": true}, "ends": {}, "ends, and main": {"main": true}}
	for name, s := range subscribed {
		got := map[string]*seen{"main": {}, "other": {}}
		s.request("last", "agents.list", nil)
		for f := s.read(); f.ID != "last"; f = s.read() {
			var ev struct {
				SessionKey, State string
				Data              struct{ Phase string }
			}
			if err := json.Unmarshal(f.Payload, &ev); err != nil {
				t.Fatal(err)
			}
			of := got[strings.TrimPrefix(ev.SessionKey, "agent:main:")]
			switch {
			case of == nil || f.Event != "chat" && f.Event != "agent":
			case ev.State == "final" || ev.Data.Phase == "end":
				of.Ends++
			default:
				of.Grows++
			}
		}
		for key, is := range got {
			if (is.Grows > 0) != want[name][key] || is.Ends == 0 {
				t.Errorf("%s: %+v of the session %s", name, *is, key)
			}
		}
	}
	own := subscribed["ends"]
	own.must("chat.send", send("mine", "hello", "mine"))
	own.next(chatState("mine", "delta"))
}

// The test counts the events that a connection receives of a run of another one, and of its own
// run, which ends after the unsubscription.
func TestUnsubscribeEndsTheEventsOfSessions(t *testing.T) {
	t.Parallel()
	b := start(t)
	s, other := b.login(adminToken), b.login(adminToken)
	s.must("sessions.subscribe", nil)
	other.must("sessions.subscribe", nil)
	s.must("chat.send", send("main", "wait mine", "mine"))
	s.next(isEvent("agent", "mine"))
	if got := s.must("sessions.unsubscribe", nil); got["subscribed"] != false {
		t.Errorf("the answer is %v", got)
	}
	s.passed = nil // came before the answer
	b.core.proceed()
	other.next(chatState("mine", "final"))
	other.must("chat.send", send("other", "hello", "theirs"))
	other.next(chatState("theirs", "final"))
	got := 0
	s.request("last", "agents.list", nil)
	for f := s.read(); f.ID != "last"; f = s.read() {
		if f.Event == "chat" || f.Event == "agent" || f.Event == "sessions.changed" {
			got++
		}
	}
	if got != 0 {
		t.Errorf("%d events of sessions came after it", got)
	}
	s.must("chat.send", send("next", "hello", "next"))
	s.next(chatState("next", "final"))
}

func TestASessionHasWhetherTheCallerMayResetIt(t *testing.T) {
	t.Parallel()
	b := start(t)
	admin, writer, reader := b.login(adminToken), b.login(writeToken), b.login(readToken)
	admin.must("chat.send", send("agent:main:theirs", "hello", "r1"))
	writer.must("chat.send", send("agent:main:mine", "hello", "r2"))
	for name, c := range map[string]struct {
		s    *socket
		want map[string]bool
	}{
		"admin":  {admin, map[string]bool{"agent:main:theirs": true, "agent:main:mine": true, "agent:main:none": true}},
		"writer": {writer, map[string]bool{"agent:main:theirs": false, "agent:main:mine": true, "agent:main:none": true}},
		"reader": {reader, map[string]bool{"agent:main:theirs": false, "agent:main:mine": false, "agent:main:none": false}},
	} {
		for key, want := range c.want {
			if got := c.s.must("chat.history", params{"sessionKey": key})["sessionInfo"].(params)["mayReset"]; got != want {
				t.Errorf("chat.history of %s as %s: mayReset %v, want %v", key, name, got, want)
			}
			if row, ok := c.s.must("sessions.describe", params{"key": key})["session"].(params); ok && row["mayReset"] != want {
				t.Errorf("sessions.describe of %s as %s: mayReset %v, want %v", key, name, row["mayReset"], want)
			}
		}
		for _, row := range c.s.must("sessions.list", nil)["sessions"].([]any) {
			if key := row.(params)["key"].(string); row.(params)["mayReset"] != c.want[key] {
				t.Errorf("sessions.list as %s: %v, want mayReset %v", name, row, c.want[key])
			}
		}
	}
}

func TestSessionsSearch(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for i := range 3 {
		id := "m" + strconv.Itoa(i)
		s.must("chat.send", send("main", "needle "+strings.Repeat("hay ", 200)+id, id))
		s.next(chatState(id, "final"))
	}
	got := s.must("sessions.search", params{"query": "NEEDLE m1", "maxChars": 30})
	hits := got["hits"].([]any)
	if len(hits) == 0 || got["count"] != float64(len(hits)) || got["hasMore"] != false || got["nextUntilMs"] != nil {
		t.Fatalf("the search found %v", got)
	}
	hit := hits[len(hits)-1].(params)
	excerpt := hit["excerpt"].(string)
	if hit["sessionKey"] != "agent:main:main" || hit["agentId"] != "main" || hit["role"] != "user" || hit["messageId"] != "m-"+strconv.Itoa(int(hit["seq"].(float64))) ||
		!strings.HasPrefix(excerpt, "needle hay") || len(excerpt) > 40 || hit["timestamp"] == 0.0 {
		t.Errorf("the hit is %v", hit)
	}
	limited := s.must("sessions.search", params{"query": "needle", "limit": 1})
	if limited["count"] != 1.0 || limited["hasMore"] != true || limited["nextUntilMs"] != limited["hits"].([]any)[0].(params)["timestamp"] {
		t.Errorf("a limited search found %v", limited)
	}
	if got := s.must("sessions.search", params{"query": "needle", "untilMs": 1}); got["count"] != 0.0 {
		t.Errorf("before 1970 there is %v", got)
	}
	for query, want := range map[string]string{
		"?!":                                    "the query has no word",
		strings.Repeat("a ", 3) + manyWords(17): "too many words",
	} {
		if f := s.call("sessions.search", params{"query": query}); f.OK || f.Error.Code != "INVALID_REQUEST" || !strings.Contains(f.Error.Message, want) {
			t.Errorf("%q: got %s %+v, want %q", query, f.Payload, f.Error, want)
		}
	}
}

func manyWords(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(" word" + strconv.Itoa(i))
	}
	return text.String()
}

// troubled is a backend with every condition that needs attention.
type troubled struct{ *listed }

// troubledJobs and oneAsks are its jobs and its channels.
type (
	troubledJobs struct{ *jobBook }
	oneAsks      struct{ pairing.Backend }
)

func (b troubled) Channels() []chat.ChannelStatus {
	return []chat.ChannelStatus{{
		ID: "telegram", Name: "telegram:1", Configured: true, State: "conflict", LastError: "another program polls", OutboxWaiting: 3, OldestWaiting: time.Now().Add(-time.Hour),
		OutboxFailed: 2, LastFailed: time.Now().Add(-time.Hour),
	}, {ID: "box", Name: "box", Configured: true, Running: true, OutboxFailed: 2, LastFailed: time.Now().Add(-25 * time.Hour)}}
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

func (troubledJobs) Jobs(_ context.Context, f cron.JobFilter, by chat.Caller) (cron.JobPage, error) {
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

func (troubledJobs) Ledger(_ context.Context, f cron.RunFilter, by chat.Caller) (cron.RunPage, error) {
	if !slices.Equal(f.States, []cron.RunState{cron.RunMissed}) || by.Own {
		return cron.RunPage{}, nil
	}
	return cron.RunPage{Runs: []cron.Run{{JobID: "digest", JobName: "digest", SlotCount: 4}, {JobID: "digest", JobName: "digest"}, {JobID: "odd", JobName: "odd"}}}, nil
}

func (oneAsks) OpenPairings(context.Context, string) ([]channel.Pairing, error) {
	return []channel.Pairing{{ID: "req", Name: "Anna", Peer: channel.Peer{Channel: "telegram:1", UserID: 4711}}}, nil
}

func TestNeedsAreListedTheWorstFirst(t *testing.T) {
	t.Parallel()
	h := &listed{core: newCore(t)}
	old := time.Now().Add(-time.Hour)
	h.list = []store.Turn{
		{ID: "gone", Session: chat.MainKey("main"), Principal: "otto", State: store.StateDone, Outcome: chat.OutcomeDead, Error: "it failed 5 times", EndedAt: old},
		{ID: "waits", Session: chat.MainKey("main"), Principal: "anna", State: store.StateWaiting, AcceptedAt: old},
	}
	h.waits = map[string]chat.Waiting{"waits": {Cause: chat.WaitSession}}
	h.questions = []agent.OpenQuestion{
		{ID: "q1", Agent: "coder", Principal: "gateway", Session: chat.MainKey("coder"), Question: agent.Question{Text: "run the command “ls”; with “a” = “b”", Act: "run the command “ls”"}},
		{ID: "q2", Agent: "coder", Principal: "otto", Session: chat.MainKey("coder"), Question: agent.Question{Text: "x"}},
	}
	b := serve(t, h.core, troubled{h}, withHooks, withBook(troubledJobs{&jobBook{}}), func(c *gateway.Config) { c.Pairings = oneAsks{} })
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
		"warn deliveries: Channel telegram: 2 messages were given up, the last one within a day.",
		"warn replica: Replica gw-3 ended without a clean stop, and no other has taken its place.",
		"warn version: Replicas run different versions: 0.1.0 (a), 0.2.0 (b).",
		"ask pairing: Anna (telegram 4711) asks to talk to the agent.",
		"ask question: The agent coder asks before it does this: run the command “ls”",
		"hint agent: The default agent is the demo, which repeats messages.",
	}
	if got := list(adminToken); !slices.Equal(got, want) {
		t.Errorf("needs:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	h.set(func() { h.down = true })
	if got := list(adminToken); !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "error database: database: ") }) {
		t.Errorf("needs while the store does not answer:\n%s", strings.Join(got, "\n"))
	}
	h.set(func() { h.down = false })
	for _, line := range list(annaToken) {
		if strings.Contains(line, "ask ") || strings.Contains(line, "lane:") || strings.Contains(line, "dead:") || strings.Contains(line, "deliveries") {
			t.Errorf("a principal that sees its own is shown %q", line)
		}
	}
}
