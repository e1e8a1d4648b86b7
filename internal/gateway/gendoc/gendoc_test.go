package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// source is the directory of package wire, as seen from this package.
const source = "../../wire"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The committed description must match the current table.
func TestCommittedDescriptionIsCurrent(t *testing.T) {
	t.Parallel()
	all, err := render(source)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"docs/protocol.json": all.machine, "internal/dashboard/types/wire.d.ts": all.types}
	for name, text := range all.pages {
		files["docs/protocol/"+name] = text
	}
	there, err := filepath.Glob("../../../docs/protocol/*")
	if err != nil || len(there) != len(all.pages) {
		t.Errorf("docs/protocol has %q, want %d pages (%v)", there, len(all.pages), err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", "..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not what the method table says; run: make generate", name)
		}
	}
}

// A member without a comment would have no meaning on the page.
func TestMembersWithoutAMeaningAreAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "wire.go"), []byte("package wire\n\ntype Tick struct {\n\tTS int64\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := render(dir); err == nil || !strings.Contains(err.Error(), "Tick.TS of package wire has no comment") || !strings.Contains(err.Error(), "\nTick of package wire") {
		t.Errorf("render: %v", err)
	}
}

func TestEveryErrorOfAMethodIsExplained(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, e := range errorNotes() {
		if e.Means == "" || known[e.Code] {
			t.Errorf("%s is there twice or is not explained", e.Code)
		}
		known[e.Code] = true
	}
	for name, n := range notes() {
		for _, code := range n.Errors {
			if !known[code] {
				t.Errorf("%s names %s, which notes.go does not explain", name, code)
			}
		}
	}
}

func TestTypesAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	all, err := render(source)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"a result by its name":           "\n    \"cron.get\": { params: {\n      id?: string;\n      jobId?: string;\n      extended?: boolean;\n    }; result: Job };\n",
		"an event":                       "\n    \"tick\": Tick;\n",
		"a list of known words":          "\n    state: \"delta\" | \"final\" | \"aborted\" | \"error\";\n",
		"a value that may be null":       "\n    nextOffset: number | null;\n",
		"a value of several types":       "\n  type FailureAlert = AlertRule | boolean;\n",
		"a member that may be absent":    "\n    message?: ChatMessage;\n",
		"a map":                          "\n    channelLabels: Record<string, string>;\n",
		"a parameter that must be given": "\n      sessionKey: string;\n",
	} {
		if !strings.Contains(string(all.types), text) {
			t.Errorf("%s: the types lack %s", what, text)
		}
	}
}

func TestBoundsAreShownAsTheGatewayChecksThem(t *testing.T) {
	t.Parallel()
	all, err := render(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| `message` | string | required; 1 to 262,144 bytes of UTF-8 | the text |",
		"| `timeoutMs` | integer | 0 to 86,400,000 | the longest time of the turn; absent = the limit of the agent, 0 = 24 hours |",
		"| `mode` | string | required; one of `now`, `next-heartbeat` | now starts a turn, next-heartbeat puts the text before the next one |",
		"| `id` | string | required, unless `jobId` is given, which means the same; both must be equal; 1 to 128 characters | the job |",
		"| `jobId` | string | the same as `id`; both must be equal; 1 to 128 characters | the job |",
		"| `client.id` | string | required; 0 to 64 characters; matches `^[a-z0-9][a-z0-9._-]*$` | the name of the program |",
		"| `state` | string | one of `delta`, `final`, `aborted`, `error` | what happened |",
		"| `updatedAt` | integer | or null | when it last changed, in Unix milliseconds; null = it does not exist yet |",
		"| `failureAlert` | [FailureAlert](job-members.md#failurealert) | optional | when failures are reported; absent = the default of the gateway |",
	} {
		if !anyPage(all.pages, line+"\n") {
			t.Errorf("the pages lack %s", line)
		}
	}
	var doc struct {
		Methods []struct {
			Name   string
			Params struct {
				Required   []string
				Properties map[string]struct {
					Type     string
					Maximum  *int64
					MaxBytes *int64 `json:"maxBytes"`
				}
				Additional *bool `json:"additionalProperties"`
			}
		}
	}
	if err := json.Unmarshal(all.machine, &doc); err != nil {
		t.Fatal(err)
	}
	for _, m := range doc.Methods {
		if m.Name != "chat.send" {
			continue
		}
		text, limit := m.Params.Properties["message"], m.Params.Properties["timeoutMs"]
		if text.MaxBytes == nil || *text.MaxBytes != 262_144 || limit.Maximum == nil || *limit.Maximum != 86_400_000 || *m.Params.Additional {
			t.Errorf("chat.send is described as %+v", m.Params)
		}
		return
	}
	t.Error("chat.send is not described")
}

// anyPage reports whether a page has the text.
func anyPage(pages map[string][]byte, text string) bool {
	for _, page := range pages {
		if strings.Contains(string(page), text) {
			return true
		}
	}
	return false
}

func TestPagesHaveEachTypeTheyLinkTo(t *testing.T) {
	t.Parallel()
	all, err := render(source)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for name, page := range all.pages {
		for at, n := range places(string(page)) {
			if n > 1 {
				t.Errorf("%s has %d headings #%s", name, n, at)
			}
		}
		for _, l := range regexp.MustCompile(`\]\(([a-z.A-Z-]*)#([^)]+)\)`).FindAllStringSubmatch(string(page), -1) {
			count++
			if places(string(all.pages[cmp.Or(l[1], name)]))[l[2]] == 0 {
				t.Errorf("%s links %s#%s, which is not there", name, l[1], l[2])
			}
		}
	}
	if count < 200 {
		t.Errorf("the pages have %d links to each other", count)
	}
	for page, row := range map[string]string{
		"jobs.md": "| `schedule` | [JobSchedule](job-members.md#jobschedule) | required |",
		"job.md":  "skip, concurrent, buffer_one or cancel_previous",
	} {
		if !strings.Contains(string(all.pages[page]), row) {
			t.Errorf("%s lacks %s", page, row)
		}
	}
}

// places counts the anchors of a page: those of its headings, and of events.
func places(page string) map[string]int {
	found := map[string]int{}
	for _, m := range regexp.MustCompile("(?m)^#+ (.*)$|<a id=\"([^\"]+)\">").FindAllStringSubmatch(page, -1) {
		found[m[2]+anchor(strings.NewReplacer(" ", "-", "`", "").Replace(m[1]))]++
	}
	return found
}

// An answer that no other method has stands with its method, and an example takes few lines.
func TestAnswersAndExamplesAreShort(t *testing.T) {
	t.Parallel()
	all, err := render(source)
	if err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		"lanes.md":        "\nAnswer: LanesStatusResult. The lanes of the process that answers. A credential that",
		"jobs-run.md":     "\nAnswer: CronRemoveResult.\n\n| member | type | rule | meaning |\n",
		"jobs-read.md":    "\nAnswer: [Job](job.md#job).\n",
		"jobs-runs.md":    "\n  \"type\": \"req\", \"id\": \"9\", \"method\": \"cron.runs\",",
		"chat-history.md": "\nOne of: [HistoryPage](#historypage) or ",
	} {
		if !strings.Contains(string(all.pages[page]), want) {
			t.Errorf("%s lacks %q", page, want)
		}
	}
	for text, want := range map[string]string{
		`{"a":1,"b":[]}`: `{"a": 1, "b": []}`,
		`{"long":"` + strings.Repeat("x", foldAt) + `","list":[{"a":1},{"b":2}],"c":3}`: "{\n  \"long\": \"" + strings.Repeat("x", foldAt) + "\",\n  \"list\": [{\"a\": 1}, {\"b\": 2}], \"c\": 3\n}",
	} {
		if got, err := folded(json.RawMessage(text)); err != nil || got != want {
			t.Errorf("%s is folded to\n%s (%v), want\n%s", text, got, err, want)
		}
	}
}
