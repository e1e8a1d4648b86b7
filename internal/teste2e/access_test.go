package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/testrun"
)

// reach describes what a method or a command does with the data of another principal, when a credential that sees only its own data calls
// it.
type reach int

const (
	// unowned: it shows and changes no data that a principal owns.
	unowned reach = iota + 1
	// hidden: the requested object does not exist for the caller; the answer is the same as for a name that does not exist.
	hidden
	// taken: it writes into a session that the caller names. A free name would belong to the caller from then on, so a name in use is
	// refused; the caller learns only that it is in use.
	taken
	// counted: it counts and lists what the caller owns.
	counted
	// operators: it concerns people of a channel, who belong to the operator; it names no session, job or run.
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

// volatile matches the numbers of an answer that do not depend on a principal: times, ages, and the ids of a connection or an error.
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

// Every method of the table has a line that says how it treats the data of another principal; a method without a line fails. The answer for
// hidden data is byte by byte the answer for data that does not exist.
func TestWhatIsNotVisibleIsAnsweredAsWhatIsNotThere(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlimits: {cron_writes: 0, chat: 0, requests: 0}\n")
		g.Start()
		a := settle(t, dialWhenKnown(t, g, g.named(t, "alice"), nil))
		none := a.absent()
		bob := dialWhenKnown(t, g, g.named(t, "bob"), nil)
		lines := methodReach()
		calls := 0
		for _, m := range table(t) {
			kind := lines[m.Name]
			if kind == 0 {
				t.Errorf("the method %s has no line in the matrix", m.Name)
			}
			delete(lines, m.Name)
			if kind != hidden && kind != taken {
				continue
			}
			foreign, absent := a.attempts(m), none.attempts(m)
			for i := range foreign {
				for _, p := range []map[string]any{foreign[i], absent[i]} { // with keys of bob, so that no call repeats another
					if _, ok := p["idempotencyKey"]; ok {
						calls++
						p["idempotencyKey"] = fmt.Sprint("bobs-", calls)
					}
				}
				calls++
				raw, err := bob.Call(m.Name, foreign[i], 30*time.Second)
				got := withoutNames(raw, err, a.names())
				if kind == taken {
					named := foreign[i]["sessionKey"] == a.session || foreign[i]["key"] == a.session || foreign[i]["sessionTarget"] == "session:"+a.session
					if named && !strings.Contains(got, string(chat.CodeSessionNotFound)) && !strings.Contains(got, "invalid "+m.Name+" params") {
						t.Errorf("%s of a session of another: %s", m.Name, got)
					}
					continue
				}
				raw, err = bob.Call(m.Name, absent[i], 30*time.Second)
				if want := withoutNames(raw, err, none.names()); got != want {
					t.Errorf("%s %v of what is alice's: %s\nof what is not there: %s", m.Name, foreign[i], got, want)
				}
			}
		}
		for name := range lines {
			t.Errorf("the matrix has a line for %s, which is no method", name)
		}
		t.Logf("%d calls", calls)
	})
}

// commandReach has a line for every use of every command.
func commandReach() map[string]reach {
	return map[string]reach{
		"new ": taken, "stop ": taken, "stopall ": taken, "status ": taken, "queue ": taken, "queue clear": taken, "queue *": taken, "model ": taken, "model *": taken,
		"agent ": taken, "whoami ": taken, "id ": taken, "why ": hidden, "help ": taken, "remind ": taken, "jobs ": counted, "cron ": counted,
		"compact ": taken, "timezone ": taken, "timezone *": taken, "toc ": counted, "tasks ": counted, "tasks stop": hidden, "allow ": hidden, "deny ": hidden, "answer ": hidden, "approvals ": taken, "approvals *": taken, "dir ": taken, "dir *": taken,
		"cron add": taken, "cron new": taken, "cron replace": taken, "cron show": hidden, "cron why": hidden, "cron pause": hidden, "cron resume": hidden, "cron run": hidden, "cron rm": hidden, "cron remove": hidden,
	}
}

// Every command is refused in a session of another principal, and commands about jobs see only the caller's own. Every use of every command
// has a line, and its method has one in the table of methods.
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

// The figures for a credential that sees only its own data do not depend on other principals: counts, the next wake, the revision of the
// list, the lanes. Those for an operator do.
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
		operatorReads(t, g, "more sessions", `"count":([2-9]|\d\d)`)
		bob.Close()
		bob = dialWhenKnown(t, g, token, nil)
		busy, now := figures(t, bob), figures(t, connect(t, g))
		for what, before := range quiet {
			if busy[what] != before {
				t.Errorf("%s was %s\nand is, after what alice did, %s", what, before, busy[what])
			}
			if seen := all[what] != now[what]; !seen {
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
