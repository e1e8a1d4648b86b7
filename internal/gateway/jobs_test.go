package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway"
	"laneway/internal/gateway/jobs"
	"laneway/internal/store"
	"laneway/internal/usage"
	"laneway/internal/wire"
)

// listed is a core that lists the turns and the questions of a test.
type listed struct {
	*core

	list      []store.Turn
	waits     map[string]chat.Waiting
	questions []agent.OpenQuestion
	last      store.TurnFilter
}

func (h *listed) Turns(ctx context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error) {
	h.last = f
	var list []store.Turn
	for _, t := range h.list {
		fits := f.Which == store.TurnsOpen || f.Which == "" || (f.Which == store.TurnsEnded) == (t.State == store.StateDone)
		if f.One() || f.Parent != "" {
			fits = f.ID == t.ID || f.Message == t.ID || f.Parent != "" && f.Parent == t.Parent
		}
		if fits && (f.Visible == "" || f.Visible == t.Principal) && (f.Outcome == "" || f.Outcome == t.Outcome) {
			list = append(list, t)
		}
	}
	_, _, err := h.core.Turns(ctx, f)
	return list[:min(len(list), f.Most())], h.waits, err
}

func (h *listed) OpenQuestions(_ context.Context, owner string, limit int) ([]agent.OpenQuestion, error) {
	list := slices.DeleteFunc(slices.Clone(h.questions), func(q agent.OpenQuestion) bool { return owner != "" && owner != q.Principal })
	return list[:min(len(list), limit)], nil
}

func (h *listed) AnswerQuestion(_ context.Context, by, id string, option int) (string, error) {
	for _, q := range h.questions {
		if q.ID == id && q.Principal == by {
			return "The answer is: " + q.Options[option-1].Label + ".", nil
		}
	}
	return "", chat.Errorf(chat.CodeNotFound, "there is no open question like this")
}

// ledgerOfNone is a job service that has no runs: it says of which job.
type ledgerOfNone struct{ jobs.Backend }

func (ledgerOfNone) Ledger(_ context.Context, f cron.RunFilter, _ chat.Caller) (cron.RunPage, error) {
	return cron.RunPage{}, chat.Errorf(chat.CodeInvalid, "cron job not found: %s", f.JobID)
}

// Every method with a job as its target accepts it as id and as jobId: either, or both when they
// are equal.
func TestEveryCronMethodTakesEitherNameOfItsTarget(t *testing.T) {
	t.Parallel()
	c := newCore(t)
	b := serve(t, c, c, withBook(ledgerOfNone{c.Jobs}), func(c *gateway.Config) { c.CronWritesPerMinute = -1 })
	s := b.login(adminToken)
	without := map[string]string{ // the answers to calls without a target; the other methods require it
		"cron.cancel":  "invalid cron.cancel params: must have either runId or id",
		"cron.preview": "invalid cron.preview params: must have id or schedule",
		"cron.runs":    "cron job not found: ",
	}
	var tried []string
	for _, m := range b.srv.Methods() {
		if !strings.HasPrefix(m.Name, "cron.") || slices.Contains([]string{"cron.add", "cron.create", "cron.list", "cron.status"}, m.Name) {
			continue
		}
		tried = append(tried, m.Name)
		none, ok := without[m.Name]
		if !ok {
			none = "invalid " + m.Name + " params: must have required property 'id'"
		}
		for _, tc := range []struct {
			ids  params
			want string
		}{
			{params{"id": "one"}, "cron job not found: one"},
			{params{"jobId": "one"}, "cron job not found: one"},
			{params{"id": "one", "jobId": "one"}, "cron job not found: one"},
			{params{"id": "one", "jobId": "two"}, "invalid " + m.Name + " params: at /jobId: must be the same as id, or absent"},
			{params{"id": "one", "jobId": 1}, "invalid " + m.Name + " params: at /jobId: must be string"},
			{params{"jobId": strings.Repeat("x", 129)}, "invalid " + m.Name + " params: at /jobId: must NOT have more than 128 characters"},
			{params{"jobId": ""}, "invalid " + m.Name + " params: at /jobId: must NOT have fewer than 1 characters"},
			{params{}, none},
		} {
			for _, f := range m.Params.Fields { // other required members of the method
				if v, ok := map[string]any{"patch": params{}, "note": "n", "enabled": false, "fromMs": 1, "toMs": 2}[f.Name]; ok && f.Required {
					tc.ids[f.Name] = v
				}
			}
			if f := s.call(m.Name, tc.ids); f.OK || f.Error.Message != tc.want {
				t.Errorf("%s %v: ok %v, %+v, want %q", m.Name, tc.ids, f.OK, f.Error, tc.want)
			}
		}
	}
	if len(tried) < 12 {
		t.Errorf("the table has only %v", tried)
	}
}

// filler is a backend whose backfills need as many mebibytes as MaxRuns.
type filler struct{ jobEvents }

func (filler) Backfill(_ context.Context, p cron.BackfillParams, _ chat.Caller) ([]cron.BackfillFire, error) {
	return nil, p.Spend(p.MaxRuns << 20)
}

// A backfill of a job with a long text stores many times the bytes of its params.
func TestABackfillTakesTheBytesOfItsRunsFromTheAllowance(t *testing.T) {
	t.Parallel()
	b := start(t, withBook(filler{jobEvents{publish: make(chan func(cron.Event), 1)}}))
	s := b.login(annaToken)
	backfill := func(mebibytes int) *frameError {
		t.Helper()
		return s.call("cron.backfill", params{"id": "job", "fromMs": 1, "toMs": 2, "maxRuns": mebibytes}).Error
	}
	if e := backfill(15); e != nil {
		t.Errorf("15 MiB of 16: %+v", e)
	}
	if e := backfill(15); e == nil || e.Details["allowance"] != "bytes" || !e.Retryable {
		t.Errorf("15 MiB more: %+v", e)
	}
	other := b.login(ottoToken)
	if e := other.call("cron.backfill", params{"id": "job", "fromMs": 1, "toMs": 2, "maxRuns": 100}).Error; e == nil || e.Details["allowance"] != "bytes" {
		t.Errorf("more than a minute's allowance in one call: %+v", e)
	}
}

// An operator and a principal that sees only its own data list and show runs. The latter does not
// see the position in the lane, which would reveal how much work of others waits.
func TestACallerSeesTheRunsThatAreItsOwn(t *testing.T) {
	t.Parallel()
	h := &listed{core: newCore(t)}
	b := serve(t, h.core, h, withHooks)
	run := func(id, principal, state string) store.Turn {
		return store.Turn{
			ID: id, Session: chat.MainKey("main"), Lane: "main", Channel: "api", Text: "work of " + principal, Principal: principal, State: state, Node: "gw-1",
			AcceptedAt: time.UnixMilli(1000), Detail: "the service's words",
		}
	}
	child := run("c1", "anna", store.RunRunning)
	child.Parent, child.Root, child.Channel = "anna:r1", "anna:r1", chat.ChannelTask
	ended := run("anna:r1", "anna", store.StateDone)
	ended.Outcome, ended.Error, ended.EndedAt = chat.OutcomeFailed, "no route", time.UnixMilli(3000)
	ended.Sent = []store.Sending{{Target: chat.Target{Channel: "telegram:1", ChatID: "7"}, Kind: store.KindReply, State: store.OutFailed, Attempts: 3, Error: "403"}}
	h.list = []store.Turn{run("otto:r2", "otto", store.RunRunning), run("w1", "anna", store.StateWaiting), child, ended}
	h.waits = map[string]chat.Waiting{"w1": {Cause: chat.WaitLane, Position: 57}}
	admin, anna := b.login(adminToken), b.login(annaToken)
	list := func(got params) string {
		var lines []string
		for _, r := range got["runs"].([]any) {
			row := r.(params)
			line := fmt.Sprint(row["id"], " ", row["kind"], " ", row["state"])
			if w, ok := row["waitingFor"].(params); ok {
				line += fmt.Sprintf(" (%v)", w["text"])
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, ", ")
	}
	for _, tt := range []struct{ who, got, want string }{
		{"the operator, ended ones", list(admin.must("runs.list", params{"state": "ended"})), "anna:r1 api done"},
		{"the operator", list(admin.must("runs.list", params{})), "otto:r2 api running, w1 api waiting (a slot of its lane, place 57), c1 task running, anna:r1 api done"},
		{"anna", list(anna.must("runs.list", params{})), "w1 api waiting (a slot of its lane), c1 task running, anna:r1 api done"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s sees %q, want %q", tt.who, tt.got, tt.want)
		}
	}
	if got := anna.must("runs.get", params{"id": "otto:r2"}); got["run"] != nil {
		t.Errorf("anna is shown a run of another principal: %v", got)
	}
	got := anna.must("runs.get", params{"id": "r1"}) // by its idempotency key
	row, _ := got["run"].(params)
	if row["error"] != "no route" || row["runId"] != "r1" || row["detail"] != nil {
		t.Errorf("a run that has ended: %v", got)
	}
	if x := got["answer"].(params); x["why"] != "failed" || !strings.Contains(fmt.Sprint(x["text"]), "without an answer (failed): no route. The reply to telegram:1 7 was given up") {
		t.Errorf("where its answer is: %v", x)
	}
	if x := anna.must("runs.get", params{"id": "w1"})["answer"].(params); x["why"] != "waiting" || strings.Contains(fmt.Sprint(x["text"]), "57") {
		t.Errorf("where the answer of one that waits is: %v", x)
	}
	if sent := fmt.Sprint(got["deliveries"]); !strings.Contains(sent, "403") || len(got["tasks"].([]any)) != 1 {
		t.Errorf("what it sent and asked for: %v", got)
	}
	if row := admin.must("runs.get", params{"id": "anna:r1"})["run"].(params); row["detail"] != "the service's words" {
		t.Errorf("an administrator is shown %v", row)
	}
	page := admin.must("runs.list", params{"limit": 1})
	admin.must("runs.list", params{"limit": 1, "cursor": page["nextCursor"]})
	if after := h.last.After; after == nil || *after != (store.TurnMark{At: time.UnixMilli(1000), ID: "otto:r2"}) {
		t.Errorf("the second page begins after %+v", after)
	}
	if f := admin.call("runs.list", params{"cursor": "x"}); f.OK || !strings.Contains(f.Error.Message, "nextCursor") {
		t.Errorf("a wrong cursor: %+v", f)
	}
}

// usageOfMarch is the usage of one day.
type usageOfMarch struct{}

// Report returns a budget that is nearly used up.
func (usageOfMarch) Report(_ context.Context, principal string, _ bool) (usage.Report, error) {
	r := usage.Report{
		Day: "2026-03-14", Zone: time.UTC, Resets: time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC), Currency: "EUR",
		Today: usage.Counted{Turns: 2, Requests: 3, InputTokens: 70, OutputTokens: 30, CachedTokens: 5, Cost: usage.MoneyOf(0.25), Unreported: 90 * time.Second},
		Budgets: []usage.State{
			{Scope: usage.Scope{Kind: usage.KindPrincipal, Name: principal}, Limit: usage.Limit{Tokens: 120, Cost: usage.Unit}, Spent: usage.Spent{Tokens: 100, Cost: usage.MoneyOf(0.25)}},
			{Scope: usage.Scope{Kind: usage.KindTurn}, Limit: usage.Limit{Tokens: 50}},
		},
	}
	return r, nil
}

// Rows returns one row that contains the query.
func (usageOfMarch) Rows(_ context.Context, q usage.Query) ([]usage.Row, error) {
	return []usage.Row{{Day: q.From, Name: string(q.By) + " of " + q.Principal, Counted: usage.Counted{InputTokens: 1}}}, nil
}

func TestUsageIsShown(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for method, want := range map[string]string{
		"usage.status": `{"day":"2026-03-14","timezone":"UTC","resetsAtMs":1773532800000,"currency":"EUR",` +
			`"today":{"turns":2,"requests":3,"inputTokens":70,"outputTokens":30,"cachedTokens":5,"totalTokens":100,"costMicros":250000,"unreportedMs":90000},` +
			`"budgets":[{"kind":"principal","limitTokens":120,"limitMicros":1000000,"usedTokens":100,"usedMicros":250000,"level":"near"},{"kind":"turn","limitTokens":50}]}`,
		"usage.list": `{"from":"2026-03-08","to":"2026-03-14","by":"agent","currency":"EUR",` +
			`"rows":[{"day":"2026-03-08","name":"agent of ","turns":0,"requests":0,"inputTokens":1,"outputTokens":0,"cachedTokens":0,"totalTokens":1,"costMicros":0,"unreportedMs":0}],"hasMore":false}`,
	} {
		p := params{}
		if method == "usage.list" {
			p["by"] = "agent"
		}
		if f := s.call(method, p); string(f.Payload) != want {
			t.Errorf("%s: got %s, want %s", method, f.Payload, want)
		}
	}
	for _, tt := range []struct {
		params  params
		message string
	}{
		{params{"from": "yesterday!"}, "from must be a day such as 2026-03-14"},
		{params{"to": "2026-02-30"}, "to must be a day such as 2026-03-14"},
		{params{"from": "2026-03-15"}, "from must not be after to"},
		{params{"from": "2025-12-04"}, "from and to may be at most 100 days; ask in parts"},
	} {
		if f := s.call("usage.list", tt.params); f.OK || f.Error.Message != tt.message {
			t.Errorf("%v: got %+v, want %q", tt.params, f.Error, tt.message)
		}
	}
	own := b.login(annaToken).must("usage.list", params{"by": "agent"})
	if rows := objects(t, own, "rows"); len(rows) != 1 || rows[0]["name"] != "agent of anna" {
		t.Errorf("who sees only its own usage receives %v", rows)
	}
}

// Questions are listed and answered by an administrator and by a principal that is asked itself.
func TestAQuestionIsForThePersonWhomTheAgentAsks(t *testing.T) {
	t.Parallel()
	h := &listed{core: newCore(t)}
	b := serve(t, h.core, h, withHooks)
	ask := func(id, principal string) agent.OpenQuestion {
		return agent.OpenQuestion{
			ID: id, Agent: "main", Principal: principal, Session: chat.MainKey("main"), RunID: "gateway:r1", AskedAt: time.UnixMilli(1000), ExpiresAt: time.UnixMilli(2000),
			Question: agent.Question{Text: "delete it; with all", Act: "delete it", Options: []agent.Option{{Label: "Allow always", Allow: true, Always: true}, {Label: "Deny"}}},
		}
	}
	whole := ask("q3", "anna")
	whole.Text, whole.RunID = whole.Act, ""
	h.questions = []agent.OpenQuestion{ask("q1", "gateway"), ask("q2", "anna"), whole}
	admin, anna := b.login(adminToken), b.login(annaToken)
	listed := func(s *socket, p params) (ids []string, rows []any) {
		rows = s.must("questions.list", p)["questions"].([]any)
		for _, row := range rows {
			id := row.(params)["id"].(string)
			if row.(params)["mine"] == true {
				id += "!"
			}
			ids = append(ids, id)
		}
		return ids, rows
	}
	all, rows := listed(admin, params{})
	if got := strings.Join(all, " "); got != "q1! q2 q3" {
		t.Errorf("the administrator sees %q", got)
	}
	want := params{
		"id": "q1", "sessionKey": "agent:main:main", "agentId": "main", "runId": "r1", "principal": "gateway", "mine": true, "text": "delete it; with all", "act": "delete it",
		"options": []any{params{"label": "Allow always", "allow": true, "always": true}, params{"label": "Deny", "allow": false}}, "askedAtMs": 1000.0, "expiresAtMs": 2000.0,
	}
	if diff := cmp.Diff(want, rows[0]); diff != "" {
		t.Errorf("a question (-want +got):\n%s", diff)
	}
	if row := rows[2].(params); row["act"] != nil || row["runId"] != nil {
		t.Errorf("a question without details, whose turn has ended: %v", row)
	}
	if ids, _ := listed(anna, params{}); strings.Join(ids, " ") != "q2! q3!" {
		t.Errorf("anna sees %q", ids)
	}
	if ids, _ := listed(admin, params{"limit": 1}); len(ids) != 1 {
		t.Errorf("one question: %q", ids)
	}
	if got := anna.must("questions.answer", params{"id": "q2", "option": 2}); got["ok"] != true || got["text"] != "The answer is: Deny." {
		t.Errorf("the answer: %v", got)
	}
	for _, s := range []*socket{anna, admin} { // the administrator may read q2, but not answer it
		id := map[*socket]string{anna: "q1", admin: "q2"}[s]
		if f := s.call("questions.answer", params{"id": id, "option": 1}); f.OK || f.Error.Details["code"] != "NOT_FOUND" || f.Error.Message != "there is no open question like this" {
			t.Errorf("an answer to the question of another: %+v", f)
		}
	}
}

// One change is published to four connections.
func TestChangesOfQuestionsReachThePersonAndAdministrators(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	connections := map[string]*socket{
		"the person": b.login(annaToken, "laneway-ext"), "an administrator": b.login(adminToken, "laneway-ext"), "another principal": b.login(ottoToken, "laneway-ext"),
		"a client in the standard view": b.login(adminToken),
	}
	b.core.publish(chat.Event{Kind: chat.EventQuestions, Session: chat.MainKey("main"), Principal: "anna", Reason: "asked"})
	for who, s := range connections {
		got := 0
		s.request("last", "agents.list", nil)
		for f := s.read(); f.ID != "last"; f = s.read() {
			if f.Event == "questions.changed" {
				got++
			}
		}
		if want := map[string]int{"the person": 1, "an administrator": 1}[who]; got != want {
			t.Errorf("%s got %d events, want %d", who, got, want)
		}
	}
}

func TestWebhooksHaveTheWholeAnswerAndItsSlot(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	body := string(jobs.WebhookBody(cron.Job{}, cron.Run{State: cron.RunOK, Summary: "NO_REPLY", SuppressedBy: "no-reply"}))
	if !strings.Contains(body, `"suppressed":"no_reply"`) || strings.Contains(body, "NO_REPLY") {
		t.Errorf("an answer that is not sent: %s", body)
	}
	for name, c := range map[string]struct {
		answer string
		want   int
	}{
		"a short answer":           {"hello", 5},
		"the longest":              {strings.Repeat("x", limit), limit},
		"a longer one":             {strings.Repeat("x", limit+1), limit},
		"what takes six bytes":     {strings.Repeat("\x01", limit), limit / 2},
		"characters are not split": {strings.Repeat("日", limit), limit - limit%3},
	} {
		body := jobs.WebhookBody(cron.Job{ID: "j"}, cron.Run{
			ID: "r", JobID: "j", State: cron.RunOK, Summary: c.answer, SessionKey: "agent:main:main", ScheduledFor: time.UnixMilli(1_700_000_000_000),
		})
		var got wire.WebhookBody
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Summary) != c.want || got.Truncated != (c.want < len(c.answer)) || len(body) > 1<<20 {
			t.Errorf("%s: %d bytes of the answer, truncated %t, in %d bytes; want %d", name, len(got.Summary), got.Truncated, len(body), c.want)
		}
		if got.SessionKey != "agent:main:main" || got.ScheduledForMs != 1_700_000_000_000 {
			t.Errorf("%s: session %q, slot %d", name, got.SessionKey, got.ScheduledForMs)
		}
	}
}
