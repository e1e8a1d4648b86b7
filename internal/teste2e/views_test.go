package teste2e

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// jobExtras are the members of a job that exist only in the extended view, for a job with a cron expression.
const jobExtras = "atMostOnce dst errorCount jitterMs key keyDerived lane missed nextScheduledForMs overlap pauseAfterFailures principal queuedRuns retry runCount timeoutSeconds"

// more compares the views of one object: the members of the standard view must be in the extended one with the same value. It returns the
// additional members; of lists, it compares the first elements.
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

// Everything with views is requested in both of them: by request on one connection, and as events on two.
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
		both("cron.runs", map[string]any{"id": id}, below("entries.", "attempts lane outcome scheduledForMs slotCount trigger"))
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

// endsOfRun are the kinds of events at the end of a run of a job. The one of cron may overtake the others, which wait for paced text.
var endsOfRun = []string{"cron finished", "agent end", "chat final"}

// runAndWatch runs a job by hand and reads until all ends of the run have arrived; it returns the last event of each kind. Events of a run
// may precede the answer to the call that requested it, so all frames from the request on count.
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
