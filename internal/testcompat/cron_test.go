//go:build compat

package testcompat

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/teste2e"
)

// cronCommands returns what the command line can do with jobs: every kind of schedule and payload, and every way to show a job, to change it
// and to run it, with exit codes.
func cronCommands(t *testing.T, o *openClaw, version string) {
	t.Helper()
	later := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	turn := []string{"--session", "isolated", "--message", "a job for the echo", "--no-deliver"}
	add := func(name string, args ...string) string {
		t.Helper()
		out := o.check(t, wants{name, append([]string{"cron", "add", "--json", "--name", version + " " + name}, args...), false, 0, name})
		return jobID(t, out)
	}
	every := add("every", append([]string{"--every", "1h"}, turn...)...)
	broken := add("broken", append([]string{"--every", "1h", "--agent", "broken"}, turn...)...)
	add("at", append([]string{"--at", later}, turn...)...)
	add("staggered", append([]string{"--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--stagger", "30s"}, turn...)...)
	add("exact", append([]string{"--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--exact"}, turn...)...)
	add("event", "--every", "2h", "--session", "main", "--system-event", "an hour has passed")
	add("announced", "--every", "3h", "--session", "isolated", "--message", "hi", "--announce")
	add("webhook", "--every", "3h", "--session", "isolated", "--message", "hi", "--webhook", "https://example.org/hook")
	if version != "2026.8.2" {
		first := add("declared", append([]string{"--declaration-key", "declared-" + version, "--every", "4h"}, turn...)...)
		if second := add("declared", append([]string{"--declaration-key", "declared-" + version, "--every", "4h"}, turn...)...); second != first {
			t.Errorf("the same declaration made two jobs, %s and %s", first, second)
		}
	}
	jobCalls(t, o, add("called", append([]string{"--every", "1h"}, turn...)...), add("called too", append([]string{"--every", "1h"}, turn...)...))
	for _, w := range []wants{
		{"list", []string{"cron", "list"}, false, 0, version + " every"},
		{"list all", []string{"cron", "list", "--all", "--json"}, false, 0, every},
		{"get", []string{"cron", "get", every}, false, 0, every},
		{"show by id", []string{"cron", "show", every}, false, 0, "every"},
		{"show by name", []string{"cron", "show", version + " every"}, false, 0, every},
		{"edit", []string{"cron", "edit", every, "--description", "edited from outside"}, false, 0, "edited from outside"},
		{"disable", []string{"cron", "disable", every}, false, 0, ""},
		{"enable", []string{"cron", "enable", every}, false, 0, ""},
		{"run", []string{"cron", "run", every}, false, 0, "manual:" + every},
		{"run when due", []string{"cron", "run", every, "--due"}, false, 1, "not-due"},
		{"run and wait", []string{"cron", "run", every, "--wait"}, false, 0, "succeeded"},
		{"runs", runsOf(version, every), false, 0, "succeeded"},
		{"status", []string{"cron", "status"}, false, 0, "jobs"},
		{"unknown job", []string{"cron", "get", "no-such-job"}, false, 1, "no-such-job"},
		{"run that fails, and wait", []string{"cron", "run", broken, "--wait"}, false, 1, ""},
		{"remove", []string{"cron", "rm", every}, false, 0, ""},
		{"remove again", []string{"cron", "rm", every}, false, 1, "not found"},
		{"system event", []string{"system", "event", "--text", "something happened", "--mode", "now"}, false, 0, ""},
	} {
		o.check(t, w)
	}
}

// jobCalls returns the calls about a job for gateway call, with either name of its id. The last ones remove the job.
func jobCalls(t *testing.T, o *openClaw, job, other string) {
	t.Helper()
	from := time.Now().Add(-3 * time.Hour).UnixMilli()
	for _, c := range []struct{ method, params, says string }{
		{"cron.get", `{"id":%q}`, job},
		{"cron.get", `{"jobId":%q}`, job},
		{"cron.update", `{"id":%q,"patch":{"description":"called"}}`, "called"},
		{"cron.pause", `{"id":%q,"note":"called"}`, job},
		{"cron.resume", `{"jobId":%q}`, job},
		{"cron.toggle", `{"jobId":%q,"enabled":false}`, job},
		{"cron.toggle", `{"id":%q,"enabled":true}`, job},
		{"cron.backfill", `{"id":%q,"dryRun":true,"fromMs":` + strconv.FormatInt(from, 10) + `,"toMs":` + strconv.FormatInt(from+7_200_000, 10) + `}`, ""},
		{"cron.run", `{"jobId":%q,"mode":"force"}`, "manual:" + job},
		{"cron.cancel", `{"id":%q}`, ""},
		{"cron.remove", `{"id":%q}`, ""},
		{"cron.delete", `{"jobId":%q}`, ""},
	} {
		id := job
		if c.method == "cron.delete" {
			id = other
		}
		w := wants{"call of " + c.method, []string{"gateway", "call", c.method, "--json", "--params", fmt.Sprintf(c.params, id)}, false, 0, c.says}
		if out := o.check(t, w); !json.Valid([]byte(out)) {
			t.Errorf("gateway call %s --json printed no JSON:\n%s", c.method, out)
		}
	}
}

// A list with more jobs than one page holds is complete, however the command line requests the pages.
func TestOpenClawListsMoreJobsThanAPage(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const jobs = 230
		dir := clients(t)
		g := begin(t, database, "limits: {cron_writes: 0}\n")
		c, err := teste2e.Dial(g.URL(), adminToken, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		want := map[string]bool{}
		for i := range jobs {
			var made struct{ ID string }
			err := c.Into(&made, "cron.add", map[string]any{
				"name": fmt.Sprintf("job %d", i), "schedule": map[string]any{"kind": "every", "everyMs": 3_600_000 + 1000*i}, "enabled": i%10 != 0,
				"sessionTarget": "isolated", "payload": map[string]any{"kind": "agentTurn", "message": "hi"},
			})
			if err != nil {
				t.Fatal(err)
			}
			want[made.ID] = true
		}
		for version, pkg := range versions() {
			o := commandLine(t, g, dir, pkg)
			out := o.check(t, wants{"list of all", []string{"cron", "list", "--all", "--json"}, false, 0, ""})
			var listed struct{ Jobs []struct{ ID string } }
			if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &listed); err != nil {
				t.Fatalf("%s: %v\n%.500s", version, err, out)
			}
			seen := map[string]bool{}
			for _, j := range listed.Jobs {
				seen[j.ID] = want[j.ID]
			}
			if len(listed.Jobs) != jobs || len(seen) != jobs {
				t.Errorf("%s lists %d jobs, %d different ones, of %d", version, len(listed.Jobs), len(seen), jobs)
			}
		}
	})
}

func runsOf(version, id string) []string {
	if version == "2026.8.2" {
		return []string{"cron", "runs", "--id", id}
	}
	return []string{"cron", "runs", id}
}

// jobID returns the id from the output of `cron add --json`, whether or not the job is wrapped.
func jobID(t *testing.T, out string) string {
	t.Helper()
	var printed struct {
		ID  string
		Job struct{ ID string }
	}
	if start := strings.Index(out, "{"); start >= 0 {
		out = out[start:]
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil || printed.ID+printed.Job.ID == "" {
		t.Errorf("cron add printed no job: %v\n%s", err, out)
	}
	if printed.ID == "" {
		return printed.Job.ID
	}
	return printed.ID
}
