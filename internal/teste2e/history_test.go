package teste2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/wire"
)

const (
	talkWindow  = 8000
	talkReserve = 500
	countSums   = "SELECT count(*) FROM transcript WHERE to_seq > 0"
)

// The conversation with one agent has 120 turns, 2,000 in a long run. No request is larger than the
// window, no turn waits for a summary, nothing is deleted, and the content of the first turn is
// found.
func TestAConversationOfThousandsOfTurnsFitsAWindowOfEightThousandTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	turns := testrun.Size(120, 2000)
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			if ofSummary(call) {
				return testmodel.Reply{Delay: 300 * time.Millisecond, Pieces: []string{"They spoke of codes, the first of which was zanzibar0. " + strings.Repeat("And more. ", 30)}}
			}
			return testmodel.Reply{Pieces: []string{"Noted. " + strings.Repeat("yes ", 30)}}
		})
		g := Install(t, database, fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%s/v1", context_window: %d, max_tokens: %d, tools: "off"}
limits: {chat: 0, requests: 0}
`, model.URL(), talkWindow, talkReserve))
		g.Start()
		o, w, c := OpenOracle(t, g, database), watch(t, g), mustDial(t, g, nil)
		began, slowest := time.Now(), time.Duration(0)
		for i := range turns {
			text := fmt.Sprintf("message %d ", i) + strings.Repeat("of a long conversation ", 6)
			if i%100 == 0 {
				text += fmt.Sprintf("code zanzibar%d", i/100)
			}
			id, sent := fmt.Sprintf("t%d", i), time.Now()
			say(t, c, "agent:main:long", id, text)
			if end := w.await(t, id); end.state != "final" {
				t.Fatalf("%s ended %s", id, end)
			}
			slowest = max(slowest, time.Since(sent))
		}
		took := time.Since(began)
		testrun.Eventually(t, "nothing is left to do", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 })

		sums := o.Count(countSums)
		if rows := o.Count("SELECT count(*) FROM transcript WHERE session_key = 'agent:main:long'"); rows != 2*turns+sums || sums == 0 { // their number depends on the speed of the turns, which continue meanwhile
			t.Errorf("%d rows in the transcript with %d summaries, want a message and an answer for each of %d turns besides", rows, sums, turns)
		}
		largest, input := 0, 0
		calls := model.Calls()
		for _, call := range calls {
			n := agent.EstimateTokens(call.System)
			for _, m := range call.Messages {
				n += agent.EstimateTokens(m.Content) + 6
			}
			input += n
			if largest = max(largest, n+talkReserve); n+talkReserve > talkWindow {
				t.Errorf("a request of %d tokens with its answer, the window has %d", n+talkReserve, talkWindow)
			}
		}
		if asked := len(calls) - turns; asked != sums {
			t.Errorf("the model has written %d summaries, %d are kept", asked, sums)
		}
		for _, query := range []string{"zanzibar0", fmt.Sprintf("zanzibar%d", (turns-1)/100)} {
			out, errs, code := g.CLI(withTimeout(t, time.Minute), "", "sessions", "search", query, "--session", "long")
			if code != 0 || strings.Count(out, query) != 1 || !strings.Contains(out, "agent:main:long  user") {
				t.Errorf("the search for %s ended with %d, %s\n%s", query, code, errs, out)
			}
		}
		t.Logf("%d turns in %s, the slowest %s; %d compactions, %d requests with %d tokens of input by estimate, the largest with its answer %d",
			turns, took.Round(time.Millisecond), slowest.Round(time.Millisecond), sums, len(calls), input, largest)
	})
}

func ofSummary(call testmodel.Call) bool { return strings.HasPrefix(call.System, "You keep the notes") }

// asked sends a GET with a token; "" = no token.
func (g *Gateway) asked(t *testing.T, token, path string) (status int, header http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(content)
}

// The files of a conversation can be read by those who may read the conversation, by no other
// principal, and under no other name. Before, a history had only their names.
func TestFilesOfAHistoryAreReadWithIt(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\n")
		g.Start()
		ann, bob := g.makeToken(t, "ann", "write", "own"), g.makeToken(t, "bob", "write", "own")
		contents := map[string]string{"one.txt": "the first", "two.txt": "the second"}
		args := []string{"send", "look", "--token", ann, "--session", "agent:main:api:ann:files"}
		for _, name := range []string{"one.txt", "two.txt"} {
			path := filepath.Join(g.Dir, name)
			if err := os.WriteFile(path, []byte(contents[name]), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--file", path)
		}
		for range 2 { // the same files again, in another message
			if out, errs, code := g.CLI(t.Context(), "", args...); code != 0 {
				t.Fatalf("laneway send: %d %s %s", code, out, errs)
			}
		}
		history := func(token string) (files []wire.MessageFile) {
			t.Helper()
			c, err := Dial(g.URL(), token, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var page struct{ Messages []wire.HistoryMessage }
			if err := c.Into(&page, "chat.history", map[string]any{"sessionKey": "agent:main:api:ann:files"}); err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Messages {
				files = append(files, m.Files...)
			}
			return files
		}
		if files := history(bob); files != nil {
			t.Errorf("another principal sees %v", files)
		}
		files := history(ann)
		if len(files) != 4 || files[0].URL == files[2].URL {
			t.Fatalf("the history has %+v", files)
		}
		for i, f := range files {
			name := []string{"one.txt", "two.txt"}[i%2]
			for who, token := range map[string]string{"the owner": ann, "the operator": g.Token()} {
				status, h, body := g.asked(t, token, f.URL)
				if f.Name != name || f.Size != int64(len(contents[name])) || status != http.StatusOK || body != contents[name] {
					t.Errorf("%s reads %+v: %d %q", who, f, status, body)
				}
				if !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
					t.Errorf("the headers are %v", h)
				}
			}
			if status, _, body := g.asked(t, bob, f.URL); status != http.StatusNotFound {
				t.Errorf("another principal reads %s: %d %s", f.URL, status, body)
			}
			if status, _, _ := g.asked(t, "", f.URL); status != http.StatusUnauthorized {
				t.Errorf("without a token: %d", status)
			}
		}
		one := files[0].URL
		for path, want := range map[string]int{
			strings.Replace(one, "n=0", "n=2", 1): 404, strings.Replace(one, "n=0", "n=-1", 1): 400, strings.Replace(one, "n=0", "n=x", 1): 400,
			strings.Replace(one, "seq=1", "seq=2", 1): 404, strings.Replace(one, "seq=1", "seq=999", 1): 404, strings.Replace(one, "seq=1", "seq=0", 1): 400,
			strings.Replace(one, "%3Afiles", "%3Aother", 1): 404, "/v1/message-file": 400, "/v1/message-file?sessionKey=../../etc&seq=1&n=0": 404,
		} {
			if status, _, body := g.asked(t, g.Token(), path); status != want || !json.Valid([]byte(body)) {
				t.Errorf("%s: %d %s, want %d", path, status, body, want)
			}
		}
		if out, errs, code := g.CLI(t.Context(), "", "sessions", "reset", "agent:main:api:ann:files"); code != 0 {
			t.Fatalf("laneway sessions reset: %s %s", out, errs)
		}
		if status, _, body := g.asked(t, g.Token(), one); status != http.StatusOK || body != contents["one.txt"] {
			t.Errorf("a file of the transcript before the reset: %d %s", status, body)
		}
		if files := history(ann); files != nil {
			t.Errorf("the new transcript has %s", fmt.Sprint(files))
		}
	})
}

var tocFact = regexp.MustCompile(`fact\d`)

func ofToc(call testmodel.Call) bool {
	return strings.HasPrefix(call.System, "You keep the table of contents")
}

// The built-in job summarises old conversations; the gateway is killed in the middle, and one
// conversation is deleted.
func TestWhatWasSaidIsSummarisedThroughAKill(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		var hang atomic.Bool
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			if !ofToc(call) {
				return testmodel.Reply{Pieces: []string{"Noted."}}
			}
			var all strings.Builder
			for _, m := range call.Messages {
				all.WriteString(m.Content)
			}
			facts := slices.Compact(tocFact.FindAllString(all.String(), -1))
			if hang.Load() && slices.Contains(facts, "fact2") {
				return testmodel.Reply{HangFirst: true}
			}
			return testmodel.Reply{Pieces: []string{"They spoke of " + strings.Join(facts, " ") + "."}}
		})
		g := Install(t, database, fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%s/v1", tools: "off"}
history: {summary_agent: main}
cron: {timezone: Europe/Berlin}
cluster: {lease: 3s, heartbeat: 500ms}
`, model.URL()))
		g.Start()
		w, c := watch(t, g), mustDial(t, g, nil)
		o, db := OpenOracle(t, g, database), writable(t, g, database)
		monday := time.Now().UTC().AddDate(0, 0, -(int(time.Now().UTC().Weekday())+6)%7-70).Truncate(24 * time.Hour).Add(12 * time.Hour)
		for i, days := range []int{0, 1, 8} { // two of one week, one of the next
			id := fmt.Sprintf("old%d", i+1)
			say(t, c, "agent:main:"+id, id, fmt.Sprintf("Remember fact%d.", i+1))
			w.await(t, id)
			execute(t, db, fmt.Sprintf("UPDATE transcript SET at = %d + seq WHERE session_key = 'agent:main:%s'", monday.AddDate(0, 0, days).UnixMilli(), id))
		}
		say(t, c, "agent:main:today", "today", "fact9 is of today.")
		w.await(t, "today")
		cli := func(args ...string) string {
			t.Helper()
			out, errs, code := g.CLI(withTimeout(t, time.Minute), "", args...)
			if code != 0 {
				t.Fatalf("%v ended with %d: %s", args, code, errs)
			}
			return out
		}

		hang.Store(true)
		cli("scheduler", "run", "system:rollup-month")
		testrun.Eventually(t, "the model summarises the second day", func() bool {
			return slices.ContainsFunc(model.Calls(), ofToc) && o.Count("SELECT count(*) FROM toc_parts") == 1
		})
		g.Kill()
		hang.Store(false)
		g.Start()
		testrun.Eventually(t, "the run has ended", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_name = 'summaries of each month' AND state = 'ok'") == 1
		})
		if twice := o.Rows("SELECT day, made FROM toc_parts WHERE made <> 1 UNION ALL SELECT period, made FROM toc_nodes WHERE made <> 1"); len(twice) > 0 {
			t.Errorf("made more than once, or not: %v", twice)
		}
		if days, weeks := o.Count("SELECT count(*) FROM toc_parts"), o.Count("SELECT count(*) FROM toc_nodes WHERE level = 'week'"); days != 3 || weeks != 2 {
			t.Errorf("%d days and %d weeks, want 3 and 2", days, weeks)
		}
		if out := cli("toc"); strings.Count(out, "They spoke of") != 3 || !strings.Contains(out, "agent:main:old1\n    They spoke of fact1.") || strings.Contains(out, "fact9") {
			t.Errorf("laneway toc shows\n%s", out)
		}
		if out := cli("toc", "week", "--json"); !strings.Contains(out, "They spoke of fact1 fact2.") || !strings.Contains(out, "They spoke of fact3.") {
			t.Errorf("laneway toc week shows\n%s", out)
		}
		if out := cli("toc", "month"); !strings.Contains(out, "fact1") {
			t.Errorf("laneway toc month shows\n%s", out)
		}
		cli("sessions", "delete", "old1", "--yes")
		for _, level := range []string{"day", "week", "month"} {
			if out := cli("toc", level); strings.Contains(out, "fact1") {
				t.Errorf("after the deletion laneway toc %s shows\n%s", level, out)
			}
		}
		cli("scheduler", "run", "system:rollup-month", "--wait")
		if out := cli("toc", "week"); strings.Contains(out, "fact1") || !strings.Contains(out, "fact2") || !strings.Contains(out, "fact3") {
			t.Errorf("after the next run laneway toc week shows\n%s", out)
		}
		if _, errs, code := g.CLI(withTimeout(t, time.Minute), "", "toc", "--from", "yesterday"); code == 0 || !strings.Contains(errs, "a day is named as 2026-03-14") {
			t.Errorf("a wrong day ended with %d: %s", code, errs)
		}
		o.Check(3 * time.Second)
	})
}
