package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/gateway"
	"laneway/internal/testrun"
)

// reach describes what a method or a command does with the data of another principal, when a
// credential that sees only its own data calls it.
type reach int

const (
	// unowned: it shows and changes no data that a principal owns.
	unowned reach = iota + 1
	// hidden: the requested object does not exist for the caller; the answer is the same as for a
	// name that does not exist.
	hidden
	// taken: it writes into a session that the caller names. A free name would belong to the caller
	// from then on, so a name in use is refused; the caller learns only that it is in use.
	taken
	// counted: it counts and lists what the caller owns.
	counted
	// operators: it concerns people of a channel, who belong to the operator; it names no session,
	// job or run.
	operators
)

// methodReach has a line for every method of the table.
func methodReach() map[string]reach {
	return map[string]reach{
		"agents.list": unowned, "commands.list": unowned, "question.list": unowned, "plugin.approval.list": unowned, "taskSuggestions.list": unowned,
		"health": counted, "status": counted, "lanes.status": counted, "channels.status": counted, "cron.status": counted, "cron.list": counted,
		"needs.list": counted, "runs.list": counted, "runs.get": hidden, "questions.list": counted, "questions.answer": hidden, "tasks.list": counted, "tasks.get": hidden, "tasks.stop": hidden, "scheduler.status": counted, "sessions.list": counted, "sessions.search": counted, "toc.list": counted, "sessions.subscribe": counted, "sessions.unsubscribe": unowned,
		"chat.history": hidden, "chat.abort": hidden, "sessions.describe": hidden, "sessions.delete": hidden,
		"chat.send": taken, "agent": taken, "wake": taken, "sessions.reset": taken,
		"cron.add": taken, "cron.create": unowned, // which names no session
		"cron.get": hidden, "cron.runs": hidden, "cron.preview": hidden, "cron.explain": hidden, "cron.update": hidden, "cron.remove": hidden, "cron.delete": hidden, "cron.toggle": hidden,
		"cron.pause": hidden, "cron.resume": hidden, "cron.run": hidden, "cron.backfill": hidden, "cron.cancel": hidden,
		"usage.status": counted, "usage.list": counted,
		"channels.pairing.list": operators, "channels.pairing.approve": operators, "channels.pairing.dismiss": operators, "channels.pairing.revoke": operators,
	}
}

// volatile matches the numbers of an answer that do not depend on a principal: times, ages, and the
// ids of a connection or an error.
var volatile = regexp.MustCompile(`"(ts|uptimeMs|durationMs|latencyMs|lastTickAgeMs|lastTickMs|lastPollAgeMs|leaseMs|oldestWaitMs|acceptedAt)":\d+`)

// withoutNames returns an answer without the requested names and without volatile numbers.
func withoutNames(raw json.RawMessage, err error, names []string) string {
	text := string(raw)
	if wire, ok := errors.AsType[*WireError](err); ok {
		body, _ := json.Marshal(wire)
		text = "refused " + string(body)
	} else if err != nil {
		text = "lost " + err.Error()
	}
	for _, name := range names {
		text = strings.ReplaceAll(text, name, "NAME")
	}
	return volatile.ReplaceAllString(text, `"$1":0`)
}

// absent returns names like those of alice's data that do not exist.
func (a *alice) absent() *alice {
	return &alice{
		session: a.session + "-none", running: a.running + "-none", job: "00000000-0000-7000-8000-000000000000",
		run: strings.Replace(a.run, a.job, "00000000-0000-7000-8000-000000000000", 1), message: a.message + "-none",
	}
}

func (a *alice) names() []string { return []string{a.session, a.running, a.message, a.run, a.job} }

// commandReach has a line for every use of every command.
func commandReach() map[string]reach {
	return map[string]reach{
		"new ": taken, "stop ": taken, "stopall ": taken, "status ": taken, "queue ": taken, "queue clear": taken, "queue *": taken, "model ": taken, "model *": taken,
		"agent ": taken, "whoami ": taken, "id ": taken, "why ": hidden, "help ": taken, "remind ": taken, "jobs ": counted, "cron ": counted,
		"compact ": taken, "timezone ": taken, "timezone *": taken, "quiet ": taken, "quiet *": taken, "toc ": counted, "tasks ": counted, "tasks stop": hidden, "allow ": hidden, "deny ": hidden, "answer ": hidden, "approvals ": taken, "approvals *": taken, "dir ": taken, "dir *": taken,
		"cron add": taken, "cron new": taken, "cron replace": taken, "cron show": hidden, "cron why": hidden, "cron pause": hidden, "cron resume": hidden, "cron run": hidden, "cron rm": hidden, "cron remove": hidden,
	}
}

// Every command is refused in a session of another principal, and commands about jobs see only the
// caller's own. Every use of every command has a line, and its method has one in the table of
// methods.
func TestACommandReachesNothingOfAnother(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlimits: {cron_writes: 0, chat: 0, requests: 0}\n")
		g.Start()
		a := settle(t, dialWhenKnown(t, g, g.named(t, "alice"), nil))
		bobs := newResetter(t, g, g.named(t, "bob"), chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin)
		before, n := a.belongings(t), 0
		table, err := command.New()
		if err != nil {
			t.Fatal(err)
		}
		lines, methods := commandReach(), methodReach()
		for _, use := range table.Uses() {
			name := use.Command + " " + use.Verb
			if lines[name] == 0 || methods[use.Method] == 0 {
				t.Errorf("/%s with the method %s has no line in the matrix", name, use.Method)
			}
			delete(lines, name)
			for _, arg := range []string{a.job, trace + " job", "1", "in 20m tea", ""} {
				n++
				text := strings.TrimSpace("/" + use.Command + " " + strings.Replace(use.Verb, "*", "collect", 1) + " " + arg)
				_, err := bobs.Call("chat.send", map[string]any{"sessionKey": a.session, "message": text, "idempotencyKey": fmt.Sprint("c-", n)}, 30*time.Second)
				if wire, ok := errors.AsType[*WireError](err); !ok || wire.Details["code"] != string(chat.CodeSessionNotFound) {
					t.Errorf("%s in a session of another: %v", text, err)
				}
				answer, err := bobs.say(t, "agent:main:bobs", text, fmt.Sprint("own-", n))
				if strings.Contains(arg, trace) { // a refusal repeats an unknown word
					answer = strings.ReplaceAll(answer, trace, "")
				}
				if err != nil || strings.Contains(answer, trace) {
					t.Errorf("%s: %s %v", text, answer, err)
				}
			}
		}
		for name := range lines {
			t.Errorf("the matrix has a line for %q, which is no use of a command", name)
		}
		if after := a.belongings(t); after != before {
			t.Errorf("alice's things were\n%s\nand are\n%s", before, after)
		}
	})
}

// named makes a token that sees only its own data.
func (g *Gateway) named(t *testing.T, name string) string {
	t.Helper()
	return g.namedFor(t, name, "admin")
}

// namedFor is named with a scope.
func (g *Gateway) namedFor(t *testing.T, name, scope string) string {
	t.Helper()
	return g.makeToken(t, name, scope, "own")
}

// makeToken makes a token and returns its secret.
func (g *Gateway) makeToken(t *testing.T, name, scope, visible string) string {
	t.Helper()
	out, errs, code := g.CLI(t.Context(), "", "token", "create", name, "--scope", scope, "--visible", visible, "--config", g.config)
	if code != 0 {
		t.Fatalf("making the token %s ended with %d: %s", name, code, errs)
	}
	return strings.TrimSpace(out)
}

// dialWhenKnown connects as soon as the gateway accepts the token.
func dialWhenKnown(t *testing.T, g *Gateway, token string, onEvent func(Event)) *Client {
	t.Helper()
	var c *Client
	testrun.Eventually(t, "the gateway takes the new token", func() bool {
		var err error
		c, err = Dial(g.URL(), token, onEvent)
		return err == nil
	})
	t.Cleanup(c.Close)
	return c
}

// trace is in everything that alice writes; bob must never see it.
const trace = "alices-own-words"

// alice has the ids of alice's data.
type alice struct {
	*Client

	session, running, job, run, message string
}

func (a *alice) must(t *testing.T, method string, params map[string]any, into any) {
	t.Helper()
	raw, err := a.Call(method, params, 30*time.Second)
	if err == nil && into != nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("alice's %s: %v", method, err)
	}
}

func settle(t *testing.T, c *Client) *alice {
	t.Helper()
	a := &alice{Client: c, session: "agent:main:" + trace, message: trace + "-key"}
	var sent struct{ RunID string }
	a.must(t, "agent", map[string]any{"sessionKey": a.session, "message": trace + " first", "idempotencyKey": a.message}, nil)
	a.must(t, "chat.send", map[string]any{"sessionKey": a.session, "message": "sleep 10m", "idempotencyKey": trace + "-running"}, &sent)
	a.running = sent.RunID
	var job struct{ ID string }
	a.must(t, "cron.add", map[string]any{
		"name": trace + " job", "schedule": json.RawMessage(`{"kind":"cron","expr":"0 3 29 2 *"}`), "sessionTarget": "isolated", "description": trace, // does not fire during the test
		"payload": map[string]any{"kind": "agentTurn", "message": "sleep 10m"},
	}, &job)
	a.job = job.ID
	a.must(t, "cron.run", map[string]any{"id": a.job}, &sent)
	a.run = sent.RunID
	testrun.Eventually(t, "alice's second turn runs", func() bool {
		now := a.belongings(t)
		return strings.Contains(now, a.running) && strings.Contains(now, "TotalMessages:3")
	})
	return a
}

// values are bob's values for a param of that name: alice's ids where one fits.
func (a *alice) values() map[string]any {
	job := map[string]any{"kind": "agentTurn", "message": "hello"}
	return map[string]any{
		"sessionKey": a.session, "key": a.session, "id": a.job, "jobId": a.job, "runId": a.run, "message": "hello", "text": "hello", "note": "n",
		"idempotencyKey": a.message, "mode": nil, "patch": map[string]any{"description": "bobs"}, "enabled": false, "all": true,
		"fromMs": time.Now().Add(-3 * time.Hour).UnixMilli(), "toMs": time.Now().UnixMilli(), "cancelRunning": true,
		"name": "bobs", "schedule": json.RawMessage(yearlyJob), "sessionTarget": "session:" + a.session, "payload": job,
		"owner": map[string]any{"sessionKey": a.session, "accountId": "alice"}, "includeDisabled": true, "includeSystem": true, "includeActive": true,
		"channel": "telegram", "accountId": "default", "requestId": "r1", "code": "ABCDEFGH", "extended": true, "query": trace, "search": trace,
		"scope": "all", "force": true, "agentId": "main",
	}
}

// attempts are params for one method: all that fit, only the required ones, and those with the
// running run.
func (a *alice) attempts(m gateway.MethodInfo) []map[string]any {
	all, needed := map[string]any{}, map[string]any{}
	for _, f := range m.Params.Members() {
		v, ok := a.values()[f.Name]
		if f.Name == "mode" && len(f.Type.Enum) > 0 {
			v, ok = f.Type.Enum[0], true
		}
		if !ok || v == nil {
			continue
		}
		all[f.Name] = v
		if f.Required {
			needed[f.Name] = v
		}
	}
	list := []map[string]any{all, needed, {}}
	for _, run := range []string{a.running, a.message} {
		if _, ok := all["runId"]; ok {
			one := map[string]any{"runId": run}
			if _, ok := all["sessionKey"]; ok {
				one["sessionKey"] = a.session
			}
			list = append(list, one)
		}
	}
	return list
}

// Two people have tokens that see only their own data. One calls every method of the table with the
// other's sessions, jobs, runs and keys. He finds no trace in any answer or event, and changes
// nothing. Every method has a line that says how it treats the data of another principal: the answer
// for hidden data is byte by byte the answer for data that does not exist.
func TestNoPrincipalReachesWhatBelongsToAnother(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlimits: {cron_writes: 0, chat: 0, requests: 0}\n")
		g.Start()
		a := settle(t, dialWhenKnown(t, g, g.named(t, "alice"), nil))
		none := a.absent()
		var (
			mu    sync.Mutex
			heard []string
		)
		bobs := g.named(t, "bob")
		bob := dialWhenKnown(t, g, bobs, func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, e.Name+" "+string(e.Payload))
		})
		if _, err := bob.Call("sessions.subscribe", map[string]any{}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		before, lines, calls := a.belongings(t), methodReach(), 0
		call := func(method string, p map[string]any, of *alice) string {
			calls++
			raw, err := bob.Call(method, p, 30*time.Second)
			text := withoutNames(raw, err, of.names())
			if strings.Contains(text, trace) {
				t.Errorf("%s %v shows bob %s", method, p, text)
			}
			return text
		}
		withKey := func(p map[string]any) map[string]any { // of bob, so that no call repeats another
			if _, ok := p["idempotencyKey"]; ok {
				p["idempotencyKey"] = fmt.Sprint("bobs-", calls)
			}
			return p
		}
		for _, m := range table(t) {
			kind := lines[m.Name]
			if kind == 0 {
				t.Errorf("the method %s has no line in the matrix", m.Name)
			}
			delete(lines, m.Name)
			absent := none.attempts(m)
			for i, p := range a.attempts(m) {
				call(m.Name, p, a)
				if kind != hidden && kind != taken {
					continue
				}
				got := call(m.Name, withKey(p), a)
				if kind == taken {
					named := p["sessionKey"] == a.session || p["key"] == a.session || p["sessionTarget"] == "session:"+a.session
					if named && !strings.Contains(got, string(chat.CodeSessionNotFound)) && !strings.Contains(got, "invalid "+m.Name+" params") {
						t.Errorf("%s of a session of another: %s", m.Name, got)
					}
				} else if want := call(m.Name, withKey(absent[i]), none); got != want {
					t.Errorf("%s %v of what is alice's: %s\nof what is not there: %s", m.Name, p, got, want)
				}
			}
		}
		for name := range lines {
			t.Errorf("the matrix has a line for %s, which is no method", name)
		}
		g.asBobOverHTTP(t, bobs, a)
		a.must(t, "chat.send", map[string]any{"sessionKey": a.session + "-2", "message": trace + " second", "idempotencyKey": trace + "-2"}, nil)
		if after := a.belongings(t); after != before {
			t.Errorf("alice's things were\n%s\nand are\n%s", before, after)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range heard {
			if strings.Contains(e, trace) || strings.Contains(e, a.job) {
				t.Errorf("bob heard %s", e)
			}
		}
		t.Logf("%d calls of bob", calls)
	})
}

// belongings describes alice's data in a form that changes with everything that bob could do to it.
func (a *alice) belongings(t *testing.T) string {
	t.Helper()
	var list struct {
		Sessions []struct {
			Key, SessionID string
			ActiveRunIDs   []string
		}
	}
	a.must(t, "sessions.list", map[string]any{"search": trace}, &list)
	var history struct{ TotalMessages int }
	a.must(t, "chat.history", map[string]any{"sessionKey": a.session}, &history)
	var job struct {
		ConfigRevision, Description string
		Enabled                     bool
	}
	a.must(t, "cron.get", map[string]any{"id": a.job}, &job)
	var runs struct {
		Entries []struct{ RunID, Action string }
	}
	a.must(t, "cron.runs", map[string]any{"id": a.job, "includeActive": true}, &runs)
	var sessions []string
	for _, s := range list.Sessions {
		if s.Key == a.session {
			sessions = append(sessions, fmt.Sprint(s))
		}
	}
	return fmt.Sprintf("sessions %v\nhistory %+v\njob %+v\nruns %+v", sessions, history, job, runs)
}

// asBobOverHTTP uses alice's session and name wherever HTTP accepts them.
func (g *Gateway) asBobOverHTTP(t *testing.T, token string, a *alice) {
	t.Helper()
	body := `{"model":"laneway","user":"alice","messages":[{"role":"user","content":"what did I say?"}]}`
	for _, headers := range []map[string]string{
		{"X-Laneway-Session-Key": a.session},
		{"X-Laneway-Session-Key": a.session, "X-Forwarded-User": "alice", "X-User-Id": "alice"},
		{"Idempotency-Key": a.message},
		{},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL()+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		status, text := roundTrip(t, req)
		if strings.Contains(withoutNames(json.RawMessage(text), nil, a.names()), trace) || headers["X-Laneway-Session-Key"] != "" && status != http.StatusNotFound {
			t.Errorf("a completion with %v: %d %s", headers, status, text)
		}
	}
}

// A small credential tries to make each session into which the gateway will write for another
// principal, before that. It cannot, and reads nothing of what is written there.
func TestNamesUsedBeforeTheyExist(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {cron_writes: 0, chat: 0}\n"+
			"hooks: {ci: {secret: "+ciSecret+", session: code}, deploy: {secret: "+ciSecret+"}}\n")
		g.Start()
		op := &alice{Client: connect(t, g)}
		victim := g.named(t, "victim")
		vc := dialWhenKnown(t, g, victim, nil)
		bob := dialWhenKnown(t, g, g.named(t, "bob"), nil)
		var job struct{ ID string }
		announce := map[string]any{"mode": "announce", "channel": "web", "to": "reports"}
		op.must(t, "cron.add", map[string]any{
			"name": "nightly", "schedule": json.RawMessage(yearlyJob), "sessionTarget": "session:nightly", "delivery": announce,
			"failureAlert": map[string]any{"mode": "announce", "channel": "web", "to": "alerts"},
			"payload":      map[string]any{"kind": "agentTurn", "message": trace},
		}, &job)
		keys := map[string]string{
			"tools": "agent:main:mcp-victim", "a job": "agent:main:nightly", "the delivery of a job": "agent:main:reports",
			"a run of a job": "agent:main:cron:" + job.ID + ":manual-1", "a hook's session": "agent:main:code", "a hook": "agent:main:hook:deploy",
			"a reminder": "agent:main:cron:00000000-0000-0000-0000-000000000001", "a task": "agent:main:task:00000000-0000-0000-0000-000000000001",
			"/v1": "agent:main:api:victim:phone", "/v1 without a user": "agent:main:api:0b6c1f7e", "/v1 that is not kept": "agent:main:api:passing-0b6c1f7e",
			"an alert": "agent:main:alerts", "a compaction": "agent:main:cron:compact:00000000-0000-0000-0000-000000000001",
			"a private chat": "agent:main:telegram:direct:4711", "a group": "agent:main:telegram:group:-1004711", "the operator": "agent:main:main",
		}
		payload := map[string]any{"kind": "agentTurn", "message": "I was here first"}
		for what, key := range keys {
			for method, params := range map[string]map[string]any{
				"chat.send": {"sessionKey": key, "message": "I was here first", "idempotencyKey": what}, "sessions.reset": {"key": key},
				"agent":    {"sessionKey": key, "message": "I was here first", "idempotencyKey": what + " by agent"},
				"cron.add": {"name": what, "schedule": json.RawMessage(yearlyJob), "sessionTarget": "session:" + key, "payload": payload},
				"cron.create": {
					"name": what, "schedule": json.RawMessage(yearlyJob), "payload": payload,
					"delivery": map[string]any{"mode": "announce", "channel": "web", "to": key},
				},
			} {
				if raw, err := bob.Call(method, params, 30*time.Second); err == nil {
					t.Errorf("bob made the session of %s, %s, with %s: %s", what, key, method, raw)
				}
			}
		}
		writer := dialWhenKnown(t, g, g.makeToken(t, "writer", "write", "all"), nil) // may write there, and does not own it
		if _, err := writer.Call("chat.send", map[string]any{"sessionKey": "main", "message": "I was here first", "idempotencyKey": "w"}, 30*time.Second); err != nil {
			t.Error(err)
		}
		if n := OpenOracle(t, g, database).Count("SELECT count(*) FROM sessions WHERE key = 'agent:main:main' AND principal = 'gateway'"); n != 1 {
			t.Error("the credential that wrote first owns the main session")
		}
		var run struct{ RunID string }
		op.must(t, "cron.run", map[string]any{"id": job.ID}, &run)
		for _, name := range []string{"ci", "deploy"} {
			if a := g.Hook(name, ciSecret, trace); a.Status != http.StatusAccepted {
				t.Errorf("the hook %s: %d %s", name, a.Status, a.Body)
			}
		}
		if _, err := vc.Call("chat.send", map[string]any{"sessionKey": "agent:main:mcp-victim", "message": trace, "idempotencyKey": "v"}, 30*time.Second); err != nil {
			t.Errorf("the owner of the tools: %v", err)
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the gateway has written", func() bool {
			return o.Count("SELECT count(DISTINCT session_key) FROM transcript WHERE content LIKE '%"+trace+"%'") >= 5
		})
		for what, key := range keys {
			raw, err := bob.Call("chat.history", map[string]any{"sessionKey": key}, 30*time.Second)
			if err == nil && strings.Contains(string(raw), trace) {
				t.Errorf("bob reads the session of %s: %s", what, raw)
			}
		}
	})
}

// Sessions that a job and a hook reserve are free after the job and the hook.
func TestReservedSessionsGoWithTheirLastName(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const rest = "agents: {main: {runner: echo}}\nlimits: {cron_writes: 0, chat: 0}\nmetrics_listen: \"off\"\nlisten: [\"127.0.0.1:0\"]\n"
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {cron_writes: 0, chat: 0}\nhooks: {ci: {secret: "+ciSecret+", session: code}}\n")
		g.Start()
		op := &alice{Client: connect(t, g)}
		var job struct{ ID string }
		op.must(t, "cron.add", map[string]any{
			"name": "nightly", "schedule": json.RawMessage(yearlyJob), "sessionTarget": "session:nightly",
			"payload": map[string]any{"kind": "agentTurn", "message": trace}, "delivery": map[string]any{"mode": "none"},
		}, &job)
		reserved := func() int {
			return OpenOracle(t, g, database).Count("SELECT count(*) FROM sessions WHERE key IN ('agent:main:nightly', 'agent:main:code')")
		}
		if n := reserved(); n != 2 {
			t.Errorf("%d sessions are reserved", n)
		}
		op.must(t, "cron.remove", map[string]any{"id": job.ID}, nil)
		g.Signal(syscall.SIGTERM)
		g.WaitExit(time.Minute)
		if err := os.WriteFile(g.config, []byte(rest), 0o600); err != nil {
			t.Fatal(err)
		}
		g.Start()
		if n := reserved(); n != 0 {
			t.Errorf("%d sessions are still reserved", n)
		}
	})
}

// The operator deletes sessions that a job and a hook name, and a small credential makes them
// again: both write nothing there.
func TestTakenSessionsGetNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {cron_writes: 0, chat: 0}\nhooks: {ci: {secret: "+ciSecret+", session: code}}\n")
		g.Start()
		op := &alice{Client: connect(t, g)}
		bob := &alice{Client: dialWhenKnown(t, g, g.named(t, "bob"), nil)}
		ids := map[string]string{}
		for name, more := range map[string]map[string]any{
			"nightly": {"sessionTarget": "session:nightly", "delivery": map[string]any{"mode": "none"}},
			"report":  {"sessionTarget": "isolated", "delivery": map[string]any{"mode": "announce", "channel": "web", "to": "reports"}},
		} {
			more["name"], more["schedule"], more["payload"] = name, json.RawMessage(yearlyJob), map[string]any{"kind": "agentTurn", "message": trace}
			var job struct{ ID string }
			op.must(t, "cron.add", more, &job)
			ids[name] = job.ID
		}
		for _, key := range []string{"agent:main:nightly", "agent:main:reports", "agent:main:code"} {
			op.must(t, "sessions.delete", map[string]any{"key": key}, nil)
			bob.must(t, "chat.send", map[string]any{"sessionKey": key, "message": "mine now", "idempotencyKey": strings.ReplaceAll(key, ":", "-")}, nil)
		}
		if a := g.Hook("ci", ciSecret, trace); a.Status != http.StatusNotFound {
			t.Errorf("the hook: %d %s", a.Status, a.Body)
		}
		var started struct{ RunID string }
		for _, id := range ids {
			op.must(t, "cron.run", map[string]any{"id": id}, &started)
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the run ends, and both jobs alert their owner", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'error' AND error_class = 'session_taken'") == 1 &&
				o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok' AND delivery = 'not-delivered'") == 1 &&
				o.Count("SELECT count(*) FROM transcript WHERE session_key = 'agent:main:main' AND content LIKE '%job \"%'") == 2
		})
		g.Signal(syscall.SIGTERM)
		g.WaitExit(time.Minute)
		g.Start() // it knows since when the hook names its session
		if a := g.Hook("ci", ciSecret, trace+" again"); a.Status != http.StatusNotFound {
			t.Errorf("the hook after a restart: %d %s", a.Status, a.Body)
		}
		for _, key := range []string{"agent:main:nightly", "agent:main:reports", "agent:main:code"} {
			if n := o.Count("SELECT count(*) FROM transcript WHERE session_key = '" + key + "' AND content LIKE '%" + trace + "%'"); n != 0 {
				t.Errorf("%s has %d entries of others", key, n)
			}
		}
	})
}

// The credential has every scope and sees only its own data.
func TestATokenThatSeesItsOwnSeesNoBuiltInJobs(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		alice, operator := dialWhenKnown(t, g, g.named(t, "alice"), nil), connect(t, g)
		jobs := func(c *Client, method string, params map[string]any) int {
			var list struct{ Jobs []json.RawMessage }
			if err := c.Into(&list, method, params); err != nil {
				t.Fatal(err)
			}
			return len(list.Jobs)
		}
		for method, params := range map[string]map[string]any{"cron.list": {"includeDisabled": true, "includeSystem": true}, "scheduler.status": nil} {
			testrun.Eventually(t, method+" shows the operator built-in jobs", func() bool { return jobs(operator, method, params) > 0 })
			if n := jobs(alice, method, params); n != 0 {
				t.Errorf("%s shows %d built-in jobs to alice", method, n)
			}
		}
	})
}

// The figures for a credential that sees only its own data do not depend on other principals:
// counts, the next wake, the revision of the list, the lanes. Those for an operator do.
func TestTheFiguresOfOneCredentialShowNothingOfOthers(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlimits: {cron_writes: 0, chat: 0, requests: 0}\n")
		g.Start()
		operatorReads(t, g, "that all parts run", `"health":{"ok":true`) // a gateway checks its parts every two seconds
		token := g.named(t, "bob")
		bob := dialWhenKnown(t, g, token, nil)
		if err := bob.Into(&struct{}{}, "sessions.reset", map[string]any{"key": "bobs"}); err != nil {
			t.Fatal(err)
		}
		quiet, all := figures(t, bob), figures(t, connect(t, g))
		a := settle(t, dialWhenKnown(t, g, g.named(t, "alice"), nil))
		connect(t, g)
		operator := connect(t, g)
		testrun.Eventually(t, "the operator reads more sessions", func() bool {
			raw, err := operator.Call("status", nil, 30*time.Second)
			return err == nil && regexp.MustCompile(`"known":([2-9]|\d\d)`).Match(raw)
		})
		bob.Close()
		bob = dialWhenKnown(t, g, token, nil)
		busy, now := figures(t, bob), figures(t, connect(t, g))
		for what, before := range quiet {
			if busy[what] != before {
				t.Errorf("%s was %s\nand is, after what alice did, %s", what, before, busy[what])
			}
			if seen := all[what] != now[what]; !seen && what != "hello" && what != "health" { // these count no sessions
				t.Errorf("%s shows the operator nothing of it: %s", what, now[what])
			}
		}
		if !strings.Contains(busy["status"], `"known":1`) || !strings.Contains(busy["status"], `"clients":1`) {
			t.Errorf("bob's own: %s", busy["status"])
		}
		names := slices.Concat(a.names(), []string{trace})
		for what, text := range busy {
			for _, name := range names {
				if strings.Contains(text, name) {
					t.Errorf("%s has %s: %s", what, name, text)
				}
			}
		}
	})
}

// operatorReads waits until the hello-ok of an operator matches the pattern.
func operatorReads(t *testing.T, g *Gateway, what, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	testrun.Eventually(t, "the operator reads in hello-ok "+what, func() bool {
		c, err := Dial(g.URL(), g.Token(), nil)
		if err != nil {
			return false
		}
		defer c.Close()
		return re.Match(c.hello)
	})
}

// figures returns the answers in which totals would show the work of others.
func figures(t *testing.T, c *Client) map[string]string {
	t.Helper()
	out := map[string]string{"hello": volatile.ReplaceAllString(regexp.MustCompile(`"(connId|version)":("[^"]*"|\d+)`).ReplaceAllString(
		regexp.MustCompile(`"stateVersion":\{[^}]*\}`).ReplaceAllString(string(c.hello), ""), ""), `"$1":0`)}
	for method, p := range map[string]map[string]any{
		"health": {"probe": true, "extended": true}, "status": {}, "lanes.status": {}, "channels.status": {"probe": true}, "cron.status": {},
		"cron.list": {"includeDisabled": true, "includeSystem": true}, "scheduler.status": {}, "sessions.list": {}, "cron.runs": {"includeActive": true},
		"runs.list": {"state": "ended"}, "usage.status": {}, "usage.list": {"by": "agent"},
	} {
		raw, err := c.Call(method, p, 30*time.Second)
		out[method] = withoutNames(raw, err, nil)
	}
	return out
}
