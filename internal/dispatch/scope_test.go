package dispatch_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/gateway"
)

// spoken returns one message for each use of each command. The test fails for a use that is missing here.
func spoken() map[string]string {
	return map[string]string{
		"new ": "/new", "stop ": "/stop", "stopall ": "/stopall", "status ": "/status", "agent ": "/agent", "whoami ": "/whoami", "id ": "/id", "why ": "/why", "help ": "/help",
		"tasks ": "/tasks", "tasks stop": "/tasks stop 1",
		"queue ": "/queue", "queue clear": "/queue  CLEAR", "queue *": "/queue collect", "model ": "/model", "model *": "/model default",
		"remind ": "/remind in 20m tea", "jobs ": "/jobs", "cron ": "/cron", "cron add": "/cron ADD 9:00 stretch", "cron new": "/cron new 9:00 walk", "cron replace": "/cron replace 10:00 first", "cron show": "/cron show 1", "cron why": "/cron why 1 9:00",
		"cron pause": "/cron pause 1", "cron resume": "/cron\tresume 1", "cron run": "/cron run 1", "cron rm": "/cron rm 1", "cron remove": "/cron remove 1",
		"compact ": "/compact", "toc ": "/toc", "timezone ": "/timezone", "timezone *": "/timezone default", "answer ": "/answer q 1", "allow ": "/allow q", "deny ": "/deny q",
		"approvals ": "/approvals", "approvals *": "/approvals revoke all", "dir ": "/dir", "dir *": "/dir default",
	}
}

func tableOfCommands(t *testing.T) *command.Table {
	t.Helper()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Each command is compared with its method, for every scope: a credential needs the same scope for both. Without it nothing is done, and
// the reply names the missing scope.
func TestACommandNeedsWhatItsMethodNeeds(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		methods := gateway.Needs()
		jobs := func() int {
			page, err := h.d.CronList(t.Context(), cron.JobFilter{Limit: 10}, operator())
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Jobs)
		}
		for _, use := range tableOfCommands(t).Uses() {
			text, need := spoken()[use.Command+" "+use.Verb], methods[use.Method]
			if text == "" || need.Scope == "" {
				t.Fatalf("/%s %s has no text here, or %q is no method", use.Command, use.Verb, use.Method)
			}
			for _, have := range []string{"", "operator.root", chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin} {
				h.end(h.send("main", "/cron add 9:00 first", func(m *chat.Message) { m.Principal = "gateway" })) // the job that the commands refer to
				before := jobs()
				end := h.end(h.send("main", text, func(m *chat.Message) { m.Principal, m.Scope = "gateway", have }))
				synctest.Wait() // the run of /cron run starts before a later command stops it
				refused := strings.Contains(end.Text, "needs the scope operator.")
				want(t, text+" with "+have+" is refused", refused, chat.ScopeLevel(have) < chat.ScopeLevel(need.Least()))
				if refused && (!strings.Contains(end.Text, need.Scope) || jobs() != before) {
					t.Errorf("%s with %q: %q and %d jobs after %d, want the scope %s", text, have, end.Text, jobs(), before, need.Scope)
				}
			}
		}
		want(t, "turns: the one that /cron run asks for", len(h.runner.texts()), 1)
	})
}

// Commands that only read require only the read scope, and commands that change jobs or a session require what the method requires. The
// table repeats this, so that the test finds a row with a weaker method.
func TestNoCommandStandsForLessThanItDoes(t *testing.T) {
	t.Parallel()
	methods := gateway.Needs()
	need := map[string]chat.Need{}
	for _, use := range tableOfCommands(t).Uses() {
		need[use.Command+" "+use.Verb] = methods[use.Method]
	}
	admin, write, read := chat.Need{Scope: chat.ScopeAdmin}, chat.Need{Scope: chat.ScopeWrite}, chat.Need{Scope: chat.ScopeRead}
	for use := range spoken() {
		expected := read
		switch use {
		case "new ":
			expected = chat.Need{Scope: chat.ScopeAdmin, Owner: true}
		case "stop ", "stopall ", "tasks stop", "queue clear", "queue *", "model *", "compact ", "timezone *", "answer ", "allow ", "deny ", "approvals *", "dir *":
			expected = write
		case "remind ", "cron add", "cron new", "cron replace", "cron pause", "cron resume", "cron run", "cron rm", "cron remove":
			expected = admin
		}
		want(t, use, need[use], expected)
	}
	want(t, "uses", len(need), len(spoken()))
}

// A person in a chat can reset only their private chat: no group, even if they were the first to write there, and no session of another
// person.
func TestAPersonResetsTheOwnPrivateChatOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st)
		defer h.close()
		as := func(user string) func(*chat.Message) {
			return func(m *chat.Message) { m.Principal, m.Scope, m.Channel = "box:"+user, chat.ScopeWrite, "box" }
		}
		id := func(key string) string {
			parsed, _ := chat.ParseSessionKey(key, "main")
			s, err := st.Session(t.Context(), parsed, "")
			if err != nil {
				t.Fatal(err)
			}
			return s.SessionID
		}
		const private, group = "agent:main:box:direct:7", "agent:main:box:group:-5"
		for _, key := range []string{private, group} {
			h.end(h.send(key, "hello", as("7")))
		}
		h.end(h.send("agent:main:notes", "hello"))
		for _, c := range []struct {
			key, user string
			may       bool
		}{{private, "7", true}, {private, "8", false}, {group, "7", false}, {group, "8", false}, {"agent:main:notes", "7", false}} {
			for _, text := range []string{"/new", "/reset"} {
				before := id(c.key)
				end := h.end(h.send(c.key, text, as(c.user)))
				if changed := id(c.key) != before; changed != c.may || strings.Contains(end.Text, chat.ScopeAdmin) == c.may {
					t.Errorf("%s of %s by %s: reset %t, %q", text, c.key, c.user, changed, end.Text)
				}
			}
		}
	})
}
