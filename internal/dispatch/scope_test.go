package dispatch_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
)

// TestACommandNeedsTheScopeOfWhatItDoes gives every command of the table with every scope that a credential has. Without the scope nothing of it is
// done, and the reply says which scope it needs.
func TestACommandNeedsTheScopeOfWhatItDoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := openCron(t, newStore())
		table, err := command.New()
		if err != nil {
			t.Fatal(err)
		}
		ranks := []command.Scope{"", command.ScopeRead, command.ScopeWrite, command.ScopeAdmin}
		rank := func(s command.Scope) int {
			for i, r := range ranks {
				if r == s {
					return i
				}
			}
			t.Fatalf("a command needs the scope %q", s)
			return 0
		}
		needs := map[string]command.Scope{ // what changes jobs needs more than its command
			"/cron add 9:00 stretch": command.ScopeAdmin, "/cron rm 1": command.ScopeAdmin, "/cron pause 1": command.ScopeAdmin, "/cron resume 1": command.ScopeAdmin,
			"/cron run 1": command.ScopeAdmin, "/remind in 20m tea": command.ScopeAdmin,
			"/cron list": command.ScopeWrite, "/cron show 1": command.ScopeWrite, "/queue clear": command.ScopeWrite, "/queue collect": command.ScopeWrite,
		}
		for _, info := range table.Infos() {
			for _, name := range append([]string{info.Name}, info.Aliases...) {
				name = "/" + name
				cmd, _, _, ok := table.Parse(name, "")
				if !ok {
					t.Fatalf("%s is no command", name)
				}
				if needs[name] = cmd.Scope; cmd.Scope == "" {
					t.Errorf("%s needs no scope", name)
				}
			}
		}
		if len(needs) < 24 {
			t.Errorf("only %d commands: %v", len(needs), needs)
		}
		// The job that the commands are about, made by the same credential.
		h.end(h.send("main", "/cron add 9:00 first", func(m *chat.Message) { m.Principal = "gateway" }))
		jobs := func() int {
			page, err := h.d.CronList(t.Context(), cron.JobFilter{Limit: 10}, operator())
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Jobs)
		}
		want(t, "jobs", jobs(), 1)
		for _, said := range slices.Sorted(maps.Keys(needs)) {
			need := needs[said]
			for _, have := range ranks {
				if have == command.ScopeAdmin && strings.HasPrefix(said, "/cron rm") {
					continue // the others still want to see it
				}
				end := h.end(h.send("main", said, func(m *chat.Message) { m.Principal, m.Scope = "gateway", string(have) }))
				synctest.Wait() // the run that /cron run asks for begins before a later command stops it
				refused := strings.Contains(end.Text, "needs the scope operator.")
				want(t, said+" with "+string(have)+" is refused", refused, rank(have) < rank(need))
				if refused && !strings.Contains(end.Text, string(need)) && rank(have) >= rank(command.ScopeWrite) {
					t.Errorf("%s with %q: %q does not name %s", said, have, end.Text, need)
				}
			}
		}
		want(t, "jobs of an administrator: the first, and one of each of the two that make some", jobs(), 3)
		want(t, "turns: the one that /cron run asks for", len(h.runner.texts()), 1)
		h.close()
	})
}
