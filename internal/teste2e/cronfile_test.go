package teste2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"laneway/internal/testpg"
)

// Random jobs are exported, the file is imported into an empty gateway, and the result is exported again. Both files are equal, in both
// forms, and so is the state that is not in the files.
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

// randomJob makes a job of random members that does not fire during the test; some are paused, some disabled.
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

// The member paused is refused in a patch, and an add neither ends nor replaces a pause.
func TestAPauseIsBroughtAlongOnlyByAnAdd(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c := connect(t, g)
		paused := func(note string) map[string]any {
			return map[string]any{"key": "k", "paused": map[string]any{"note": note, "by": "ann", "atMs": 5, "enabled": true}}
		}
		j := addJob(t, c, "hourly", every(time.Hour), paused("first"))
		addJob(t, c, "hourly", every(time.Hour), paused("second"))
		raw, err := json.Marshal(object(t, c, "cron.get", map[string]any{"id": j.ID, "extended": true})["paused"])
		if want := `{"atMs":5,"by":"ann","enabled":true,"note":"first","untilMs":null}`; err != nil || string(raw) != want {
			t.Errorf("paused is %s (%v), want %s", raw, err, want)
		}
		if _, err := c.Call("cron.update", map[string]any{"id": j.ID, "patch": map[string]any{"paused": nil}}, 10*time.Second); err == nil {
			t.Error("a patch took the member paused")
		}
		for _, bad := range []any{map[string]any{"by": "x"}, map[string]any{"note": "x", "untilMs": -1}, map[string]any{"note": " "}, 7} {
			if _, err := c.Call("cron.add", jobParams("bad", every(time.Hour), map[string]any{"paused": bad}), 10*time.Second); err == nil {
				t.Errorf("paused %v was taken", bad)
			}
		}
		gone := addJob(t, c, "over", every(time.Hour), map[string]any{"paused": map[string]any{"note": "x", "untilMs": 5, "enabled": true}})
		if !gone.Enabled {
			t.Error("a job whose pause had ended at the import does not fire")
		}
	})
}
