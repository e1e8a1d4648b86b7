package teste2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
	"laneway/internal/wire"
	"laneway/internal/wire/wiretest"
)

// jobExtras are the members of a job that exist only in the extended view, for a job with a cron
// expression.
const jobExtras = "atMostOnce dst errorCount jitterMs key keyDerived lane missed nextScheduledForMs overlap pauseAfterFailures principal queuedRuns retry runCount scheduleWords timeoutSeconds"

// more compares the views of one object: the members of the standard view must be in the extended
// one with the same value. It returns the additional members; of lists, it compares the first
// elements.
func more(t *testing.T, at string, standard, extended any) []string {
	t.Helper()
	switch s := standard.(type) {
	case map[string]any:
		e, ok := extended.(map[string]any)
		if !ok {
			t.Errorf("%s is an object in the standard view and %T in the extended one", at, extended)
			return nil
		}
		var found []string
		for _, name := range slices.Sorted(maps.Keys(e)) {
			if value, both := s[name]; both {
				found = append(found, more(t, at+"."+name, value, e[name])...)
			} else {
				found = append(found, strings.TrimPrefix(at+"."+name, "."))
			}
		}
		for name := range s {
			if _, both := e[name]; !both {
				t.Errorf("the extended view lacks %s.%s", at, name)
			}
		}
		return found
	case []any:
		if e, ok := extended.([]any); ok && len(s) > 0 && len(e) == len(s) {
			return more(t, at, s[0], e[0])
		}
	}
	volatile := strings.HasSuffix(at, ".ts") || strings.HasSuffix(at, ".durationMs") || strings.HasSuffix(at, ".snapshotRevision")
	if !volatile && !reflect.DeepEqual(standard, extended) {
		t.Errorf("%s is %v in the standard view and %v in the extended one", at, standard, extended)
	}
	return nil
}

// below puts a path before names.
func below(path, names string) []string {
	var list []string
	for name := range strings.FieldsSeq(names) {
		list = append(list, path+name)
	}
	return list
}

func decoded(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Everything with views is requested in both of them: by request on one connection, and as events
// on two.
func TestTheExtendedViewIsTheStandardOneAndMore(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, chunk: 3}}\n")
		g.Start()
		heard := &eventsByView{extended: map[string]json.RawMessage{}}
		c, err := Dial(g.URL(), g.Token(), func(e Event) { heard.note(e) })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		plain, err := login(g.addr(), g.Token())
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		both := func(method string, params map[string]any, want []string) (standard map[string]any) {
			t.Helper()
			standard = ask(t, plain, method, params)
			params = maps.Clone(params)
			params["extended"] = true
			got := more(t, "", standard, ask(t, plain, method, params))
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: the extended view has besides\n%q, want\n%q", method, got, want)
			}
			return standard
		}

		both("health", map[string]any{}, below("", "database nodeId problems scheduler"))
		job := map[string]any{
			"name": "digest", "schedule": map[string]any{"kind": "cron", "expr": "0 9 1 1 *", "tz": "Europe/Berlin"}, "sessionTarget": "isolated",
			"payload": map[string]any{"kind": "agentTurn", "message": "write it"},
		}
		ask(t, plain, "cron.add", job) // from now on it changes nothing
		id, _ := both("cron.add", job, below("", jobExtras+" created"))["id"].(string)
		ask(t, plain, "sessions.subscribe", map[string]any{})
		if _, err := c.Call("sessions.subscribe", map[string]any{}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		standard := runAndWatch(t, plain, id)
		testrun.Eventually(t, "the extended connection gets the ends", func() bool {
			return !slices.ContainsFunc(endsOfRun, func(kind string) bool { return heard.get(kind) == nil })
		})
		for name, want := range map[string][]string{
			"cron finished": append(below("job.", jobExtras), below("", "attempt outcome scheduledForMs trigger")...),
			"agent end":     below("", "agentId lane sessionKey"),
			"chat final":    nil,
		} {
			if standard[name] == nil || heard.get(name) == nil {
				t.Errorf("event %s: standard %s, extended %s", name, standard[name], heard.get(name))
				continue
			}
			got := more(t, "", decoded(t, standard[name]), decoded(t, heard.get(name)))
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("event %s: the extended view has besides\n%q, want\n%q", name, got, want)
			}
		}
		both("cron.get", map[string]any{"id": id}, below("", jobExtras))
		both("cron.update", map[string]any{"id": id, "patch": map[string]any{"description": "same"}}, below("", jobExtras))
		both("cron.list", map[string]any{}, below("jobs.", jobExtras))
		both("cron.runs", map[string]any{"id": id}, below("entries.", "attempts lane outcome scheduledForMs slotCount timezone trigger"))
	})
}

// ask makes a call on a connection with the standard view.
func ask(t *testing.T, b *bare, method string, params map[string]any) map[string]any {
	t.Helper()
	_ = b.SetReadDeadline(time.Now().Add(30 * time.Second))
	if err := b.request("ask", method, params); err != nil {
		t.Fatal(err)
	}
	raw, err := b.answer("ask")
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	object, ok := decoded(t, raw).(map[string]any)
	if !ok {
		t.Fatalf("%s answered %s", method, raw)
	}
	return object
}

// eventsByView has the last event of each kind that an extended connection received.
type eventsByView struct {
	mu       sync.Mutex
	extended map[string]json.RawMessage
}

func (e *eventsByView) note(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.extended[kindOf(ev.Name, ev.Payload)] = ev.Payload
}

func (e *eventsByView) get(kind string) json.RawMessage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.extended[kind]
}

// kindOf returns an event's name with its subject.
func kindOf(name string, payload json.RawMessage) string {
	var p struct {
		Action, State string
		Data          struct{ Phase string }
	}
	_ = json.Unmarshal(payload, &p) // other events have no such members
	return name + " " + p.Action + p.State + p.Data.Phase
}

// endsOfRun are the kinds of events at the end of a run of a job. The one of cron may overtake the
// others, which wait for paced text.
var endsOfRun = []string{"cron finished", "agent end", "chat final"}

// runAndWatch runs a job by hand and reads until all ends of the run have arrived; it returns the
// last event of each kind. Events of a run may precede the answer to the call that requested it, so
// all frames from the request on count.
func runAndWatch(t *testing.T, b *bare, job string) map[string]json.RawMessage {
	t.Helper()
	_ = b.SetReadDeadline(time.Now().Add(30 * time.Second))
	if err := b.request("run", "cron.run", map[string]any{"id": job}); err != nil {
		t.Fatal(err)
	}
	events := map[string]json.RawMessage{}
	for run := ""; run == "" || slices.ContainsFunc(endsOfRun, func(kind string) bool { return !strings.Contains(string(events[kind]), run) }); {
		data, err := b.next()
		if err != nil {
			t.Fatalf("waiting for the end of a run of %s: %v", job, err)
		}
		var f struct {
			Event

			ID string
		}
		if err := json.Unmarshal(data, &f); err != nil {
			t.Fatalf("a frame that is no object: %s", data)
		}
		switch {
		case f.ID == "run":
			var started struct{ RunID string }
			if err := json.Unmarshal(f.Payload, &started); err != nil || started.RunID == "" {
				t.Fatalf("cron.run: %s", data)
			}
			run = started.RunID
		case f.Name != "":
			events[kindOf(f.Name, f.Payload)] = f.Payload
		}
	}
	return events
}

// The program's answers to every method, with its own store and job service, and the events that
// follow, are compared with the published description of the protocol.
func TestAnswersAndEventsOfTheProgramAreAsDescribed(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		described, err := wiretest.Load("../../docs/protocol.json")
		if err != nil {
			t.Fatal(err)
		}
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0, cron_writes: 0}\n")
		g.Start()
		events := make(chan Event, 1000)
		c, err := Dial(g.URL(), g.Token(), func(ev Event) { events <- ev })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := described.Answer("connect", c.hello); err != nil {
			t.Error(err)
		}
		if _, err := c.Call("sessions.subscribe", map[string]any{"limit": 10}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		job := addJob(t, c, "described", map[string]any{"kind": "every", "everyMs": 3_600_000}, map[string]any{"retry": map[string]any{"maxRetries": 1}})
		var run struct{ RunID string }
		if err := c.Into(&run, "cron.run", map[string]any{"id": job.ID}); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		finished := func(ev Event) bool {
			return ev.Name == "cron" && strings.Contains(string(ev.Payload), `"action":"finished"`)
		}
		for done := false; !done; {
			select {
			case ev := <-events:
				seen[ev.Name], done = true, finished(ev)
				if ev.Name == wire.EventChallenge {
					continue
				}
				if err := described.Event(ev.Name, ev.Payload); err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("the run did not end; events: %v", seen)
			}
		}
		answered := 0
		for n, m := range publishedMethods(t) {
			payload, err := c.Call(m.Name, honest(m.Name, job.ID, n), 30*time.Second)
			if err != nil { // jobs, questions and pairings that do not exist
				continue
			}
			answered++
			if err := described.Answer(m.Name, payload); err != nil {
				t.Error(err)
			}
		}
		if all := len(publishedMethods(t)); answered < all-10 {
			t.Errorf("%d of %d methods answered", answered, all)
		}
		for _, name := range []string{"chat", "agent", "sessions.changed", "cron"} {
			if !seen[name] {
				t.Errorf("no event %s", name)
			}
		}
	})
}

// protocolExamples are the calls whose requests and answers docs/protocol shows, in an order in
// which one prepares the next. JOB and RUN stand for the ids of the job and of its run.
var protocolExamples = []struct{ method, params string }{
	{"chat.send", `{"sessionKey":"main","message":"Is the refund of order 1041 out?","idempotencyKey":"f2a0c7"}`},
	{"chat.history", `{"sessionKey":"main","limit":2}`},
	{"sessions.list", `{"limit":1}`},
	{"sessions.search", `{"query":"refund"}`},
	{"cron.preview", `{"schedule":{"kind":"cron","expr":"0 9 * * 1-5","tz":"Europe/Berlin"},"count":2}`},
	{"cron.add", `{"name":"digest","schedule":{"kind":"cron","expr":"0 9 * * 1-5","tz":"Europe/Berlin"},"sessionTarget":"isolated","payload":{"kind":"agentTurn","message":"Write the daily digest"}}`},
	{"cron.run", `{"id":"JOB"}`},
	{"cron.runs", `{"id":"JOB","limit":1}`},
	{"cron.list", `{"limit":1}`},
	{"runs.list", `{"limit":1}`},
	{"runs.get", `{"id":"RUN"}`},
	{"lanes.status", `{}`},
	{"questions.list", `{}`},
	{"channels.pairing.list", `{}`},
	{"agents.list", `{}`},
	{"needs.list", `{}`},
	{"health", `{}`},
	{"status", `{}`},
}

// exampleJob stands for the id of the job.
const exampleJob = "01a22345-0000-7000-8000-000000000001"

// recordedExamples is the file of the examples, by method.
const recordedExamples = "../gateway/gendoc/examples.json"

// The pages of the protocol show what the program has answered. UPDATE=1 records it again; each
// recorded answer must be as the protocol describes it now.
func TestExamplesOfTheProtocolAreWhatIsAnswered(t *testing.T) {
	if os.Getenv("UPDATE") != "" {
		recordExamples(t)
	}
	described, err := wiretest.Load("../../docs/protocol.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(recordedExamples)
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string]struct {
		Answer struct{ Payload json.RawMessage }
	}
	if err := json.Unmarshal(text, &recorded); err != nil || len(recorded) != len(protocolExamples) {
		t.Fatalf("%d examples are recorded, want %d (%v)", len(recorded), len(protocolExamples), err)
	}
	for _, e := range protocolExamples {
		if err := described.Answer(e.method, recorded[e.method].Answer.Payload); err != nil {
			t.Errorf("%v; run this test with UPDATE=1, then make generate", err)
		}
	}
}

// recordExamples writes the requests of protocolExamples and what a gateway answers.
func recordExamples(t *testing.T) {
	t.Helper()
	type example struct {
		Request json.RawMessage `json:"request"`
		Answer  json.RawMessage `json:"answer"`
	}
	now := map[string]example{}
	g := Install(t, "", "agents: {main: {runner: echo}}\n")
	g.Start()
	c, err := Dial(g.URL(), g.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	call := func(method, params string) json.RawMessage {
		t.Helper()
		payload, err := c.Call(method, json.RawMessage(params), 30*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return payload
	}
	job, run := "", ""
	for i, e := range protocolExamples {
		params := strings.NewReplacer("JOB", job, "RUN", run).Replace(e.params)
		payload := call(e.method, params)
		switch e.method {
		case "chat.send":
			testrun.Eventually(t, "the answer", func() bool {
				return strings.Contains(string(call("chat.history", `{"sessionKey":"main"}`)), `"assistant"`)
			})
		case "cron.add":
			job = idIn(t, payload, "id")
		case "cron.run":
			run = idIn(t, payload, "runId")
			testrun.Eventually(t, "the run", func() bool { return strings.Contains(string(call("cron.runs", `{"id":"`+job+`"}`)), `"status":"ok"`) })
		}
		request := fmt.Sprintf(`{"type":"req","id":"%d","method":%q,"params":%s}`, i+2, e.method, params)
		answer := fmt.Sprintf(`{"type":"res","id":"%d","ok":true,"payload":%s}`, i+2, payload)
		if job != "" { // the id is a name in one answer
			request, answer = strings.ReplaceAll(request, job, exampleJob), strings.ReplaceAll(answer, job, exampleJob)
		}
		short, err := json.Marshal(shortened(decoded(t, json.RawMessage(answer))))
		if err != nil {
			t.Fatal(err)
		}
		now[e.method] = example{json.RawMessage(request), short}
	}
	text, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordedExamples, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// idIn returns a member of an answer that is a string.
func idIn(t *testing.T, payload json.RawMessage, member string) string {
	t.Helper()
	object, ok := decoded(t, payload).(map[string]any)
	id, isText := object[member].(string)
	if !ok || !isText {
		t.Fatalf("no %s in %s", member, payload)
	}
	return id
}

// shortened returns a value whose lists have at most one element.
func shortened(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = shortened(v[name])
		}
	case []any:
		if len(v) > 0 {
			return []any{shortened(v[0])}
		}
	}
	return v
}

// onePixel is a picture.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// A picture and a table are sent with `laneway send --file` to every kind of agent: models see the
// picture, a program opens both by their paths, and the next turn reads their names.
func TestFilesReachAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			return testmodel.Reply{Pieces: []string{"re:" + call.Last()}}
		})
		program := filepath.Join(t.TempDir(), "agent.sh")
		script := "#!/bin/sh\ntr ',' '\\n' | sed -n 's/.*\"path\":\"\\([^\"]*\\)\".*/\\1/p' | while read -r f; do wc -c < \"$f\"; done\n"
		if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		config := strings.Replace(providersConfig(model), "agents:\n", fmt.Sprintf("agents:\n  shell: {runner: command, command: [%q], input: json}\n", program), 1)
		g := Install(t, database, config+"default_agent: main\n")
		g.Start()
		picture, table := filepath.Join(g.Dir, "pixel.png"), filepath.Join(g.Dir, "table.csv")
		raw, err := base64.StdEncoding.DecodeString(onePixel)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{picture: raw, table: []byte("a,b\n")} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		send := func(agent, text string, more ...string) string {
			t.Helper()
			out, errs, code := g.CLI(t.Context(), "", append([]string{"send", text, "--agent", agent, "--session", "agent:" + agent + ":files"}, more...)...)
			if code != 0 {
				t.Fatalf("%s: %d %s %s", agent, code, out, errs)
			}
			return out
		}
		last := func() string {
			calls := model.Calls()
			return string(calls[len(calls)-1].Body)
		}
		for _, agent := range []string{"main", "sister"} {
			send(agent, "what is it?", "--file", picture, "--file", table)
			if body := last(); !strings.Contains(body, onePixel) || !strings.Contains(body, "image/png") || !strings.Contains(body, "table.csv, text/") {
				t.Errorf("%s was asked %s", agent, body)
			}
			send(agent, "and now?")
			if body := last(); strings.Contains(body, onePixel) || !strings.Contains(body, "[attachment: pixel.png, image/png") {
				t.Errorf("%s was asked in the next turn %s", agent, body)
			}
		}
		if out := send("shell", "count", "--file", picture, "--file", table); strings.Join(strings.Fields(out), " ") != fmt.Sprintf("%d 4", len(raw)) {
			t.Errorf("the program counted %q", out)
		}
		out, errs, code := g.CLI(t.Context(), "", "send", "x", "--file", filepath.Join(g.Dir, "gone.png"))
		if code != 2 || !strings.Contains(errs, "cannot be read") {
			t.Errorf("a file that is not there: %d %s %s", code, out, errs)
		}
	})
}

// The model reaches its limit before the first word.
func TestAnEmptyAnswerIsShownAsEmptyToPeopleAndIsEmptyForPrograms(t *testing.T) {
	const sentence = "(empty answer: the model stopped at its length limit)"
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "", testtelegram.Config{})
		c.Model.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Finish: "length"} })
		c.Start()
		c.LetIn(anna)
		c.Telegram.Say(anna, anna, "write a novel")
		c.Says(anna, sentence)

		out, errs, code := c.CLI(t.Context(), "", "send", "write a novel")
		if out != "" || errs != "laneway: "+sentence+"\n" || code != 0 {
			t.Errorf("laneway send: %q, %q, %d", out, errs, code)
		}

		a := c.post("/v1/chat/completions", []byte(`{"model":"laneway","messages":[{"role":"user","content":"write a novel"}]}`), map[string]string{"Authorization": "Bearer " + c.Token()})
		var answer struct {
			Choices []struct {
				Message      struct{ Content *string }
				FinishReason string `json:"finish_reason"` //nolint:tagliatelle // OpenAI's name
			}
		}
		if err := json.Unmarshal([]byte(a.Body), &answer); err != nil || a.Status != http.StatusOK || len(answer.Choices) != 1 {
			t.Fatalf("%d %s (%v)", a.Status, a.Body, a.Err)
		}
		if got := answer.Choices[0]; got.Message.Content == nil || *got.Message.Content != "" || got.FinishReason != "length" {
			t.Errorf("/v1/chat/completions: %s", a.Body)
		}
	})
}
