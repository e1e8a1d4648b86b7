package teste2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/wire"
)

// The test uses all commands of the documentation on a job, with the real binary.
func TestTheCommandLineLooksAfterJobs(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		ctx := withTimeout(t, 4*time.Minute)
		run := func(code int, pattern string, args ...string) string {
			t.Helper()
			out, errs, got := g.CLI(ctx, "", args...)
			if got != code || !regexp.MustCompile(pattern).MatchString(out+errs) {
				t.Fatalf("laneway %q ended with %d and printed %q %q, want %d and %s", args, got, out, errs, code, pattern)
			}
			return out
		}
		run(0, `digest`, "cron", "add", "--name", "digest", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--message", "the digest", "--key", "dg")
		run(0, `digest`, "cron", "add", "--name", "digest", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--message", "the digest", "--key", "dg") // changes nothing
		run(0, `slow`, "cron", "add", "--name", "slow", "--every", "24h", "--message", "sleep 10m", "--overlap", "concurrent", "--retries", "0")
		run(0, `broken`, "cron", "add", "--name", "broken", "--every", "24h", "--message", "fail refusal")
		if out := run(0, `digest +weekdays at 09:00, Berlin +enabled +in `, "cron", "list"); strings.Count(out, "digest") != 1 {
			t.Errorf("the list: %s", out)
		}
		run(0, `"expr": "0 9 \* \* 1-5"`, "cron", "get", "dg", "--json")
		run(0, `(?s)\d{4}-\d\d-\d\d.*\n.*\n`, "cron", "next", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "-n", "3")
		run(0, `.`, "cron", "edit", "digest", `{"schedule":{"kind":"cron","expr":"30 9 * * 1-5"}}`)
		run(0, `(?s)"expr": "30 9 \* \* 1-5".*"tz": "Europe/Berlin"`, "cron", "get", "digest", "--json")
		run(0, `(?s)schedule +weekdays at 09:30, Berlin[^\n]*\n.*answers to +-\nowner +gateway\n.*\n\nthe digest\n$`, "cron", "get", "digest")
		run(0, `.`, "cron", "pause", "digest", "--note", "holidays")
		run(0, `digest .* paused `, "cron", "list", "--all")
		run(0, `.`, "cron", "resume", "digest")
		run(0, `digest .* enabled `, "cron", "list")
		run(0, `^the digest\n$`, "cron", "run", "digest", "--wait")
		run(1, `the run ended as error`, "cron", "run", "broken", "--wait")
		run(0, `^manual:`, "cron", "run", "slow")
		run(0, `slow +.*(running|queued)`, "cron", "runs", "slow", "--active")
		run(0, `^1 runs? ends?`, "cron", "cancel", "slow", "--reason", "wrong text")
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the slow run is cancelled", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_name = 'slow' AND state = 'cancelled'") == 1
		})
		run(0, `digest .*ok`, "cron", "runs", "digest")
		now := time.Now().UTC()
		run(0, `.`, "cron", "backfill", "digest", "--from", now.AddDate(0, 0, -8).Format(time.RFC3339), "--to", now.AddDate(0, 0, -1).Format(time.RFC3339), "--dry-run")
		if n := o.Count("SELECT count(*) FROM cron_run_logs WHERE trigger = 'backfill'"); n != 0 {
			t.Errorf("a dry run made %d entries", n)
		}
		run(0, `.`, "cron", "backfill", "digest", "--from", now.AddDate(0, 0, -8).Format(time.RFC3339), "--to", now.AddDate(0, 0, -1).Format(time.RFC3339))
		testrun.Eventually(t, "the backfill has run", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE trigger = 'backfill' AND state = 'ok'") == 5
		})
		run(0, `digest +30 9`, "scheduler", "list")
		run(0, `(?s)digest`, "scheduler", "status", "digest")
		run(0, `.`, "scheduler", "pause", "digest")
		run(0, `.`, "scheduler", "resume", "digest")
		run(0, `^the digest\n$`, "scheduler", "run", "digest", "--wait")
		run(0, `.`, "scheduler", "run", "system:retention", "--wait")
		run(0, `MiB given back to the disk`, "scheduler", "run", "system:compaction", "--wait")
		run(1, `built-in`, "cron", "rm", "system:retention")
		exportAndImport(t, run)
		run(0, `digest +weekdays at 09:30, Berlin`, "cron", "list")
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE owner <> 'system'"); n != 3 {
			t.Errorf("%d jobs after two imports of three", n)
		}
		if n := o.Count("SELECT count(*) FROM cron_run_logs WHERE owner <> 'system'"); n != 9 {
			t.Errorf("%d entries of the ledger, want the 4 runs by hand and 5 of the backfill", n)
		}
		o.Check(cronLease)
	})
}

// exportAndImport removes the three jobs and restores them from the output of export, as YAML and
// as lines of JSON.
func exportAndImport(t *testing.T, run func(code int, pattern string, args ...string) string) {
	t.Helper()
	run(0, `.`, "cron", "edit", "digest", `{"payload":{"kind":"agentTurn","message":"  the digest\n\n- yes: \"no\" # 0x1F\n\tend\n"},"description":"2027-03-01"}`)
	written := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	asYAML, asJSON := run(0, `(?m)^    everyMs: 86400000$`, "cron", "export"), run(0, `"name":"digest"`, "cron", "export", "--json")
	for name, text := range map[string]string{"jobs.yaml": asYAML, "jobs.jsonl": asJSON} {
		for _, job := range []string{"digest", "slow", "broken"} {
			run(0, `.`, "cron", "rm", job)
		}
		run(1, `.`, "cron", "get", "digest")
		for _, broken := range []struct{ text, says string }{
			{strings.Replace(asYAML, "30 9 * * 1-5", "61 9 * * 1-5", 1), `line \d+ of .*schedule.expr: .*nothing was changed`},
			{asYAML + "  colour: red\n", `line \d+ of .*a job has no member colour; nothing was changed`},
			{asYAML + "- name: [\n", `line \d+.*nothing was changed`},
			{asYAML + "  name: twice\n", `already defined at line \d+.*nothing was changed`},
			{asJSON + "{\"name\":\n", `line 4 is not a job.*nothing was changed`},
			{"name: digest\n", `not a list of jobs.*nothing was changed`},
		} {
			run(1, `(?s)`+broken.says, "cron", "import", written("broken", broken.text))
		}
		if list := run(0, ``, "cron", "export", "--json"); list != "" {
			t.Errorf("refused files left %s", list)
		}
		run(0, `^3 jobs`, "cron", "import", written(name, text))
		run(0, `^3 jobs`, "cron", "import", written(name, text))
		if got := sortedLines(run(0, `.`, "cron", "export", "--json")); got != sortedLines(asJSON) {
			t.Errorf("after the import of %s the jobs are\n%s\nwant\n%s", name, got, sortedLines(asJSON))
		}
	}
}

func sortedLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Each command fails for a name that does not exist, and says which command lists those that do.
func TestUnknownNamesEndEveryCommand(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	g := Install(t, "", cronConfig)
	g.Start()
	if out, errs, code := g.CLI(t.Context(), "", "cron", "add", "--name", "tea", "--every", "24h", "--message", "x"); code != 0 {
		t.Fatal(out, errs)
	}
	for line, list := range map[string]string{
		"cron get": "cron list", "cron rm": "cron list", "cron run": "cron list", "cron pause": "cron list", "cron resume": "cron list", "cron cancel": "cron list",
		"cron why": "cron list", "cron runs": "cron list", "cron backfill --from yesterday --to now": "cron list", "cron edit --message x": "cron list",
		"scheduler pause": "cron list", "scheduler resume": "cron list", "scheduler run": "cron list", "scheduler status": "scheduler list",
		"sessions show": "sessions list", "sessions reset": "sessions list", "sessions stop": "sessions list", "sessions delete --yes": "sessions list",
		"sessions search x --session": "sessions list", "toc day --session": "sessions list", "runs --session": "sessions list", "tasks list --session": "sessions list",
		"tasks show": "tasks list --all", "tasks stop": "tasks list --all", "tasks stop --json": "tasks list --all", "questions answer": "questions list",
		"runs": "runs --state ended", "why": "runs --state ended", "token revoke": "token list", "pair approve": "pair list", "pair dismiss": "pair list", "pair revoke": "pair list",
		"cron list --agent": "the agents are", "sessions list --agent": "the agents are", "send hi --agent": "the agents are", "runs --lane": "the lanes are", "files get": "id of a file",
		`cron edit tea {"nam":"y"}`: "did you mean name", "cron edit tea {bad": `cannot be read at character 2, after "{"; write it like`, `cron edit tea {"name"`: "it ends too early; write it like",
		"cron edit tea [1]": "not a JSON object; write it like",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(line)
			if args[0] != "cron" || args[1] != "edit" || args[2] != "tea" {
				args = append(args, "nosuch")
			}
			if args[0] == "questions" {
				args = append(args, "1")
			}
			if out, errs, code := g.CLI(t.Context(), "", args...); code == 0 || !strings.Contains(errs, list) || strings.Count(errs, "\n") != 1 {
				t.Errorf("laneway %v ended with %d: %q, %q; want %q in one line", args, code, out, errs, list)
			}
		})
	}
}

// Random jobs are exported, the file is imported into an empty gateway, and the result is exported
// again. Both files are equal, in both forms, and so is the state that is not in the files.
func TestExportAndImportAreEqual(t *testing.T) {
	t.Parallel()
	for store, databases := range map[string]func(t *testing.T) [2]string{
		"sqlite":   func(*testing.T) [2]string { return [2]string{} },
		"postgres": func(t *testing.T) [2]string { t.Helper(); return [2]string{testpg.DB(t), testpg.DB(t)} },
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			exportAndCompare(t, databases(t))
		})
	}
}

func exportAndCompare(t *testing.T, databases [2]string) {
	t.Helper()
	const config = cronConfig + "webhook_allowed_hosts: [127.0.0.1]\n"
	from, to := Install(t, databases[0], config), Install(t, databases[1], config)
	from.Start()
	to.Start()
	c := connect(t, from)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 8))
	for i := range 40 {
		randomJob(t, c, dice, i)
	}
	ctx := withTimeout(t, 3*time.Minute)
	export := func(g *Gateway, args ...string) string {
		t.Helper()
		out, errs, code := g.CLI(ctx, "", append([]string{"cron", "export"}, args...)...)
		if code != 0 {
			t.Fatalf("export: %s", errs)
		}
		return out
	}
	first := export(from, "--json")
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(path, []byte(export(from)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second import changes nothing
		if out, errs, code := to.CLI(ctx, "", "cron", "import", path); code != 0 {
			t.Fatalf("import: %s %s", out, errs)
		}
		if got := export(to, "--json"); sortedLines(got) != sortedLines(first) {
			t.Fatalf("after the import the jobs are\n%s\nwant\n%s", sortedLines(got), sortedLines(first))
		}
	}
	want, got := wireJobs(t, c), wireJobs(t, connect(t, to))
	if len(want) != 40 || len(got) != 40 {
		t.Fatalf("%d and %d jobs", len(want), len(got))
	}
	for name, job := range want {
		if a, b := asJSON(t, job), asJSON(t, got[name]); a != b {
			t.Errorf("the job %s was\n%s\nis\n%s", name, a, b)
		}
	}
}

// wireJobs reads all jobs as the protocol shows them, without what a gateway adds by itself.
func wireJobs(t *testing.T, c *Client) map[string]map[string]any {
	t.Helper()
	var list struct{ Jobs []map[string]any }
	if err := c.Into(&list, "cron.list", map[string]any{"includeDisabled": true, "extended": true}); err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, j := range list.Jobs {
		for _, own := range []string{"id", "createdAtMs", "updatedAtMs", "configRevision", "state", "nextRunAtMs", "nextScheduledForMs"} {
			delete(j, own)
		}
		out[fmt.Sprint(j["name"])] = j
	}
	return out
}

// randomJob makes a job of random members that does not fire during the test; some are paused, some
// disabled.
func randomJob(t *testing.T, c *Client, dice *rand.Rand, i int) {
	t.Helper()
	pick := func(list ...any) any { return list[dice.IntN(len(list))] }
	now := time.Now()
	m := map[string]any{"schedule": pick(
		every(time.Duration(1+dice.IntN(100))*24*time.Hour), at(now.Add(time.Duration(24+dice.IntN(1000))*time.Hour)),
		map[string]any{"kind": "every", "everyMs": 999_999_000 + dice.IntN(1000), "anchorMs": now.UnixMilli() - 5},
		map[string]any{"kind": "cron", "expr": fmt.Sprintf("%d %d 1 1 *", dice.IntN(60), dice.IntN(24)), "tz": pick("UTC", "Europe/Berlin", "Asia/Kolkata")},
	)}
	some := func(name string, values ...any) {
		if dice.IntN(2) == 0 {
			m[name] = pick(values...)
		}
	}
	some("displayName", "Ein Name: ü", "x")
	some("description", "2027-03-01", "- yes: \"no\" # 0x1F\n\tend ", "null")
	some("key", fmt.Sprintf("key %d", i), strconv.Itoa(i))
	some("enabled", true, false)
	some("overlap", "concurrent", "buffer_one", "cancel_previous")
	some("missed", map[string]any{"policy": "skip"}, map[string]any{"policy": "fire_all", "maxCatchup": 3, "windowSeconds": nil}, map[string]any{"policy": "fire_once", "windowSeconds": 77})
	some("retry", map[string]any{"maxRetries": 0}, map[string]any{"maxRetries": 5, "baseMs": 100, "maxMs": 9000})
	some("timeoutSeconds", 0, 1, 4000)
	some("jitterMs", 0, 1, 90_000)
	some("pauseAfterFailures", 0, 3)
	some("atMostOnce", true, false)
	some("endsAtMs", now.Add(20000*time.Hour).UnixMilli())
	some("startsAtMs", now.Add(time.Hour).UnixMilli())
	some("maxRuns", 1, 50)
	some("deleteAfterRun", true, false)
	some("sessionTarget", "main", "session:agent:main:notes")
	some("payload", map[string]any{"kind": "agentTurn", "message": "x", "model": "m", "thinking": "high", "toolsAllow": []string{"a"}})
	some("failureAlert", false, map[string]any{"after": 3, "cooldownMs": 60_000, "includeSkipped": true}, map[string]any{"mode": "webhook", "to": "http://127.0.0.1:9/x"})
	some("delivery", map[string]any{"mode": "webhook", "to": "http://127.0.0.1:9/x"}, map[string]any{"mode": "announce", "channel": "telegram", "to": "7", "threadId": "3", "bestEffort": true},
		map[string]any{"mode": "announce", "completionDestination": map[string]any{"mode": "webhook", "to": "http://127.0.0.1:9/y"}})
	j := addJob(t, c, fmt.Sprintf("job %d", i), m["schedule"].(map[string]any), m)
	if dice.IntN(3) > 0 {
		return
	}
	p := map[string]any{"id": j.ID, "note": pick("holidays", "ü: \"x\"\n#")}
	if dice.IntN(2) == 0 {
		p["untilMs"] = now.Add(time.Duration(1+dice.IntN(100)) * time.Hour).UnixMilli()
	}
	object(t, c, "cron.pause", p)
}

// The gateway sorts, filters, counts and pages: a client that shows a hundred jobs reads only
// these.
func TestAListOfJobsIsSortedFilteredAndCountedByTheGateway(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c := connect(t, g)
		list := func(params map[string]any) (names []string, page wire.CronListResult) {
			t.Helper()
			params["extended"] = true
			if err := c.Into(&page, "cron.list", params); err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				names = append(names, j.Name)
			}
			return names, page
		}
		is := func(what string, params map[string]any, want ...string) {
			t.Helper()
			if got, _ := list(params); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		for _, name := range []string{"delta", "alpha", "beta", "gamma"} {
			addJob(t, c, name, every(time.Hour), map[string]any{"description": "a job called " + name})
		}
		failing := addJob(t, c, "failing", every(time.Hour), map[string]any{
			"payload": map[string]any{"kind": "agentTurn", "message": "fail"}, "retry": map[string]any{"maxRetries": 0},
			"delivery": map[string]any{"mode": "announce", "channel": "web", "to": "agent:main:reports"},
		})
		runByHand(t, c, failing.ID)
		testrun.Eventually(t, "the run has failed", func() bool {
			names, _ := list(map[string]any{"condition": "failing"})
			return slices.Equal(names, []string{"failing"})
		})
		paused, _ := list(map[string]any{"query": "beta"})
		if len(paused) != 1 {
			t.Fatalf("jobs with beta: %v", paused)
		}
		_, page := list(map[string]any{"query": "beta"})
		object(t, c, "cron.pause", map[string]any{"id": page.Jobs[0].ID, "note": "holidays"})
		is("jobs that are paused", map[string]any{"condition": "paused"}, "beta")
		is("jobs by name", map[string]any{"sortBy": "name"}, "alpha", "delta", "failing", "gamma")
		is("the latest run first", map[string]any{"sortBy": "lastRunAtMs", "sortDir": "desc", "limit": 1}, "failing")
		is("the most failures first", map[string]any{"sortBy": "failing", "sortDir": "desc", "limit": 1}, "failing")
		is("jobs that answer there", map[string]any{"target": "agent:main:reports"}, "failing")
		is("jobs by id", map[string]any{"ids": []string{failing.ID, page.Jobs[0].ID}, "sortBy": "name"}, "beta", "failing")

		first, page := list(map[string]any{"sortBy": "name", "limit": 3, "includeDisabled": true, "counts": true, "outcomes": 14, "brief": true})
		if want := (wire.JobCounts{All: 5, Failing: 1, Paused: 1}); page.Counts == nil || *page.Counts != want {
			t.Errorf("counts %+v, want %+v", page.Counts, want)
		}
		for _, j := range page.Jobs {
			if j.Payload.Message != nil || j.Description != "" {
				t.Errorf("the brief job %s has the message %v and the description %q", j.Name, j.Payload.Message, j.Description)
			}
		}
		second, last := list(map[string]any{"sortBy": "name", "limit": 3, "includeDisabled": true, "cursor": page.NextCursor, "outcomes": 14})
		if all := append(first, second...); !slices.Equal(all, []string{"alpha", "beta", "delta", "failing", "gamma"}) || last.NextCursor != "" || last.HasMore || last.Total != 5 {
			t.Errorf("pages by cursor have %v, then %q, %v, total %d", all, last.NextCursor, last.HasMore, last.Total)
		}
		if o := last.Jobs[0].Outcomes; len(o) != 1 || o[0].Outcome != "error" || o[0].SlotMs == 0 {
			t.Errorf("the outcomes of the failing job are %+v", o)
		}
		if err := c.Into(nil, "cron.list", map[string]any{"sortBy": "failing", "cursor": page.NextCursor}); err == nil {
			t.Error("a cursor of another order is taken")
		}
	})
}

// Before, a second laneway cron add under a name made a second job, which also fired, and edit
// accepted only JSON.
func TestANameIdentifiesAJobOnTheCommandLine(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		ctx := withTimeout(t, 2*time.Minute)
		run := func(code int, pattern string, args ...string) string {
			t.Helper()
			out, errs, got := g.CLI(ctx, "", args...)
			if got != code || !regexp.MustCompile(pattern).MatchString(out+errs) {
				t.Fatalf("laneway %q ended with %d and printed %q %q, want %d and %s", args, got, out, errs, code, pattern)
			}
			return out
		}
		first, _, _ := strings.Cut(run(0, `tea, next`, "cron", "add", "--every", "1h", "--name", "tea", "--message", "tea"), " ")
		run(1, `a job has the name tea: `+first+` every 1h, enabled, next .*nothing was changed; --replace changes it, --new creates another one\n$`,
			"cron", "add", "--every", "2h", "--name", "tea", "--message", "tea")
		run(1, `--replace changes it`, "cron", "add", "--every", "1h", "--name", "tea", "--message", "tea")
		run(0, `^`+first+` tea, next`, "cron", "add", "--every", "2h", "--name", "tea", "--message", "green tea", "--replace")
		run(0, `(?s)"message": "green tea".*"everyMs": 7200000`, "cron", "get", "tea", "--json")
		second, _, _ := strings.Cut(run(0, `tea, next`, "cron", "add", "--every", "2h", "--name", "tea", "--message", "tea", "--new"), " ")
		if first == second {
			t.Fatal("--new made no second job")
		}
		run(1, `2 jobs have the name tea: `+first+`.*`+second, "cron", "add", "--every", "2h", "--name", "tea", "--message", "tea", "--replace")
		run(1, `2 jobs are called tea; give the id: .*`+second, "cron", "pause", "tea")
		run(0, `removed`, "cron", "rm", second)

		out := run(0, `tea changed\n$`, "cron", "edit", "tea", "--cron", "30 9 * * 1-5", "--tz", "Europe/Berlin", "--message", "black tea")
		for _, want := range []string{
			"message: green tea → black tea\n", "schedule: every 2h → weekdays at 09:30, Berlin\n",
			"next fires (Europe/Berlin):\n  ",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		run(0, `(?s)schedule: .*next fires \(Asia/Tokyo\).*tea changed`, "cron", "edit", "tea", "--tz", "Asia/Tokyo")
		run(0, `tea is as you want it already`, "cron", "edit", "tea", "--tz", "Asia/Tokyo")
		run(0, `(?s)"expr": "30 9 \* \* 1-5".*"tz": "Asia/Tokyo"`, "cron", "get", "tea", "--json")
		run(1, `--cron: `, "cron", "edit", "tea", "--cron", "99 * * * *")
		run(2, `say what to change`, "cron", "edit", "tea")
		run(2, `not both`, "cron", "edit", "tea", "{}", "--message", "x")
		if n := OpenOracle(t, g, database).Count("SELECT count(*) FROM cron_jobs WHERE owner <> 'system'"); n != 1 {
			t.Errorf("%d jobs are left, want 1", n)
		}
	})
}
