package teste2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// theft is what a method of jobs does when a client names a job, or a run, of another principal.
type theft struct {
	params func(v victim) any
	// code of the refusal; "" = the call is answered, and clean looks at the answer.
	code  string
	clean func(t *testing.T, method string, answer json.RawMessage)
}

// victim is alice's job with its run.
type victim struct{ job, run, key string }

func byID(extra map[string]any) func(v victim) any {
	return func(v victim) any {
		p := map[string]any{"id": v.job}
		maps.Copy(p, extra)
		return p
	}
}

func byJobID(extra map[string]any) func(v victim) any {
	return func(v victim) any {
		p := map[string]any{"jobId": v.job}
		maps.Copy(p, extra)
		return p
	}
}

func always(p any) func(victim) any { return func(victim) any { return p } }

// empty wants lists without entries and counts of nothing.
func empty(t *testing.T, method string, answer json.RawMessage) {
	t.Helper()
	var p struct {
		Jobs    json.RawMessage
		Entries []json.RawMessage
		Total   int
	}
	if err := json.Unmarshal(answer, &p); err != nil {
		t.Fatal(err)
	}
	if text := string(p.Jobs); p.Total != 0 || len(p.Entries) != 0 || (text != "" && text != "[]" && text != "0") {
		t.Errorf("%s shows %s", method, answer)
	}
}

// own is an answer about the caller's own things; what matters is that alice's stay as they are.
func own(*testing.T, string, json.RawMessage) {}

// thefts lists for every method of jobs what another principal gets. A method that is not here fails the test.
func thefts() map[string][]theft {
	const gone = "CRON_JOB_NOT_FOUND"
	now := time.Now().UnixMilli()
	return map[string][]theft{
		"cron.add": {{func(v victim) any {
			return jobParams("mine", every(time.Hour), map[string]any{"key": v.key})
		}, "", own}},
		"cron.create": {{always(map[string]any{"name": "mine too", "schedule": every(time.Hour), "message": "x"}), "", own}},
		"cron.update": {{byID(map[string]any{"patch": map[string]any{"name": "stolen"}}), gone, nil}, {byID(map[string]any{"patch": map[string]any{"enabled": false}}), gone, nil}},
		"cron.remove": {{byID(nil), gone, nil}, {byID(map[string]any{"cancelRunning": true}), gone, nil}},
		"cron.delete": {{byJobID(nil), gone, nil}},
		"cron.toggle": {{byJobID(map[string]any{"enabled": false}), gone, nil}},
		"cron.pause":  {{byID(map[string]any{"note": "stolen"}), gone, nil}},
		"cron.resume": {{byID(nil), gone, nil}},
		"cron.run":    {{byID(nil), gone, nil}, {byID(map[string]any{"mode": "due"}), gone, nil}, {byID(map[string]any{"mode": "if-enabled"}), gone, nil}},
		"cron.backfill": {
			{byID(map[string]any{"fromMs": now - 7_200_000, "toMs": now - 1000}), gone, nil},
			{byID(map[string]any{"fromMs": now - 7_200_000, "toMs": now - 1000, "dryRun": true}), gone, nil},
		},
		"cron.cancel": {{byID(nil), gone, nil}, {func(v victim) any { return map[string]any{"runId": v.run} }, "CRON_RUN_NOT_FOUND", nil}},
		"cron.get":    {{byID(nil), gone, nil}, {byID(map[string]any{"extended": true}), gone, nil}},
		"cron.list": {
			{always(map[string]any{"includeDisabled": true, "extended": true, "query": "secret"}), "", empty},
			{func(v victim) any { return map[string]any{"includeDisabled": true, "query": v.job} }, "", empty},
		},
		"cron.runs": {
			{byID(map[string]any{"includeActive": true}), "", empty},
			{func(v victim) any { return map[string]any{"runId": v.run, "includeActive": true} }, "", empty},
			{always(map[string]any{"scope": "all", "includeActive": true}), "", empty},
			{always(map[string]any{"query": "secret"}), "", empty},
		},
		"cron.preview":     {{byID(nil), gone, nil}},
		"cron.explain":     {{byID(map[string]any{"at": "9:00"}), gone, nil}},
		"cron.status":      {{always(nil), "", own}},
		"scheduler.status": {{always(nil), "", own}},
	}
}

// TestNoPrincipalSeesChangesOrRunsTheJobsOfAnother tries every method of the table on a job of another principal, over a credential with every scope that
// sees only what is its own.
func TestNoPrincipalSeesChangesOrRunsTheJobsOfAnother(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		tokens := map[string]string{}
		for _, name := range []string{"alice", "bob"} {
			out, errs, code := g.CLI(withTimeout(t, time.Minute), "", "token", "create", name, "--scope", "admin", "--visible", "own", "--config", g.config)
			if code != 0 {
				t.Fatalf("token create: %s", errs)
			}
			tokens[name] = strings.TrimSpace(out)
		}
		testrun.Eventually(t, "the gateway knows the tokens", func() bool {
			c, err := Dial(g.URL(), tokens["bob"], nil)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		alice, err := Dial(g.URL(), tokens["alice"], nil)
		if err != nil {
			t.Fatal(err)
		}
		defer alice.Close()
		var mu sync.Mutex
		var heard []string
		bob, err := Dial(g.URL(), tokens["bob"], func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, e.Name+" "+string(e.Payload))
		})
		if err != nil {
			t.Fatal(err)
		}
		defer bob.Close()
		j := addJob(t, alice, "alice's secret job", every(time.Hour), map[string]any{
			"payload": map[string]any{"kind": "agentTurn", "message": "sleep 10m"}, "key": "a key", "description": "alice's words",
		})
		var ran struct{ RunID string }
		if err := alice.Into(&ran, "cron.run", map[string]any{"id": j.ID}); err != nil {
			t.Fatal(err)
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "alice's run runs", func() bool { return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'running'") == 1 })
		picture := func() string {
			return strings.Join(append(o.Rows("SELECT * FROM cron_jobs WHERE id = '"+j.ID+"'"), o.Rows("SELECT * FROM cron_run_logs WHERE job_id = '"+j.ID+"'")...), "\n")
		}
		v, before := victim{job: j.ID, run: ran.RunID, key: "a key"}, picture()
		table := thefts()
		for _, m := range methodsOfJobs(t, bob) {
			if len(table[m]) == 0 {
				t.Errorf("say what %s does with the job of another principal", m)
			}
			for i, try := range table[m] {
				answer, err := bob.Call(m, try.params(v), 10*time.Second)
				judgeTheft(t, fmt.Sprintf("%s (%d)", m, i), try, answer, err)
			}
		}
		for method, p := range map[string]map[string]any{
			"chat.history": {"sessionKey": "agent:main:cron:" + j.ID + ":manual-" + ran.RunID[strings.LastIndex(ran.RunID, ":")+1:]},
			"chat.abort":   {"sessionKey": "main", "runId": ran.RunID},
		} {
			answer, err := bob.Call(method, p, 10*time.Second)
			key, _ := p["sessionKey"].(string)
			if rest := strings.ReplaceAll(string(answer), key, ""); err == nil && (strings.Contains(rest, j.ID) || key != "main" && !strings.Contains(rest, `"totalMessages":0`)) {
				t.Errorf("%s shows more than the key that it was given: %s", method, answer) // an absent session is answered in the same way
			}
		}
		if after := picture(); after != before {
			t.Errorf("alice's rows have changed:\n%s\nwere\n%s", after, before)
		}
		pause(300 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		for _, e := range heard {
			if strings.Contains(e, j.ID) || strings.Contains(e, "alice") {
				t.Errorf("bob heard %s", e)
			}
		}
	})
}

func judgeTheft(t *testing.T, what string, try theft, answer json.RawMessage, err error) {
	t.Helper()
	if try.code == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		try.clean(t, what, answer)
		if text := string(answer); strings.Contains(text, "secret") || strings.Contains(text, "alice's words") {
			t.Errorf("%s shows %s", what, text)
		}
		return
	}
	if err == nil {
		t.Errorf("%s was answered: %s", what, answer)
		return
	}
	r := refusal(t, err)
	if r.Code != "INVALID_REQUEST" || r.Details["code"] != try.code || strings.Contains(r.Message, "alice") || strings.Contains(r.Message, "secret") {
		t.Errorf("%s: %v, want %s and no content", what, r, try.code)
	}
}

// methodsOfJobs are the methods of the table that have to do with jobs, as the gateway lists them.
func methodsOfJobs(t *testing.T, c *Client) (list []string) {
	t.Helper()
	hello := decodeInto[struct{ Features struct{ Methods []string } }](t, c.hello)
	for _, m := range hello.Features.Methods {
		if strings.HasPrefix(m, "cron.") || strings.HasPrefix(m, "scheduler.") {
			list = append(list, m)
		}
	}
	if len(list) < 15 {
		t.Errorf("only %d methods have to do with jobs: %v", len(list), list)
	}
	return list
}

// TestATokenThatSeesItsOwnSeesNoBuiltInJobs looks for the gateway's own jobs over a credential with every scope that sees only what is its own.
func TestATokenThatSeesItsOwnSeesNoBuiltInJobs(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		out, errs, code := g.CLI(withTimeout(t, time.Minute), "", "token", "create", "alice", "--scope", "admin", "--visible", "own", "--config", g.config)
		if code != 0 {
			t.Fatalf("token create: %s", errs)
		}
		var alice *Client
		testrun.Eventually(t, "the gateway knows the token", func() (ok bool) {
			c, err := Dial(g.URL(), strings.TrimSpace(out), nil)
			alice = c
			return err == nil
		})
		defer alice.Close()
		all := map[string]any{"includeDisabled": true, "includeSystem": true}
		jobs := func(c *Client, method string, params map[string]any) int {
			var list struct{ Jobs []json.RawMessage }
			if err := c.Into(&list, method, params); err != nil {
				t.Fatal(err)
			}
			return len(list.Jobs)
		}
		operator := connect(t, g)
		testrun.Eventually(t, "the gateway has made its own jobs", func() bool { return jobs(operator, "cron.list", all) > 0 })
		for method, params := range map[string]map[string]any{"cron.list": all, "scheduler.status": nil} {
			if n := jobs(alice, method, params); n != 0 {
				t.Errorf("%s shows %d built-in jobs to alice", method, n)
			}
			if n := jobs(operator, method, params); n == 0 {
				t.Errorf("%s shows no built-in job to the operator", method)
			}
		}
	})
}
