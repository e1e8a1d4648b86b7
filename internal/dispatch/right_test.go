package dispatch_test

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// othersKeys are sessions that the gateway makes for principals other than bob.
var othersKeys = []string{
	"main", "agent:main:telegram:direct:7", "agent:main:telegram:group:-5:topic:3", "agent:main:hook:deploy", "agent:main:api:anna:phone",
	"agent:main:api:0b6c1f7e", "agent:main:cron:job:manual-1", "agent:main:cron:nightly", "agent:main:mcp-anna",
}

var bob = chat.Caller{Principal: "bob", Own: true, Scopes: []string{"operator.admin"}}

func members(t *testing.T, fields map[string]any) cron.Members {
	t.Helper()
	m := cron.Members{}
	for name, v := range fields {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		m[name] = raw
	}
	return m
}

// bobsJob returns a job that bob may make, with additional members.
func bobsJob(t *testing.T, more map[string]any) cron.Members {
	t.Helper()
	fields := map[string]any{
		"name": "bobs", "sessionTarget": "isolated", "schedule": map[string]any{"kind": "every", "everyMs": 3_600_000},
		"payload": map[string]any{"kind": "agentTurn", "message": "hello"},
	}
	maps.Copy(fields, more)
	return members(t, fields)
}

func refusedAsAbsent(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, chat.ErrSessionNotFound) {
		t.Errorf("%s: %v", what, err)
	}
}

func TestNoCallerMakesASessionThatWillBeMadeForAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st)
		defer h.close()
		for _, key := range othersKeys {
			parsed, err := chat.ParseSessionKey(key, "main")
			if err != nil {
				t.Fatal(err)
			}
			if parsed.RightOf(bob.Principal) == chat.RightNone { // the others are refused after a query of the store
				_, err = h.d.ReceiveFrom(t.Context(), h.msg(key, "hello"), bob)
				refusedAsAbsent(t, "a message to "+key, err)
				refusedAsAbsent(t, "a later text to "+key, h.d.Defer(t.Context(), h.msg(key, "hello"), bob))
			}
			_, err = h.d.ReceiveFrom(t.Context(), h.msg(key, "/stop"), bob)
			refusedAsAbsent(t, "a command to "+key, err)
			there := map[string]any{"mode": "announce", "channel": "web", "to": key}
			for what, more := range map[string]map[string]any{
				"running in":  {"sessionTarget": "session:" + parsed.String()},
				"delivering":  {"delivery": there},
				"alerting":    {"failureAlert": map[string]any{"mode": "announce", "channel": "web", "to": key}},
				"failing to ": {"delivery": map[string]any{"mode": "announce", "channel": "web", "to": "bobs", "failureDestination": there}},
			} {
				_, err := h.d.CronAdd(t.Context(), bobsJob(t, more), bob, nil)
				refusedAsAbsent(t, "a job "+what+" "+key, err)
			}
			if _, err := st.Session(t.Context(), parsed, ""); !errors.Is(err, chat.ErrSessionNotFound) {
				t.Errorf("%s is there: %v", key, err)
			}
		}
		for _, key := range []string{"bobs", "agent:main:api:bob:phone", "agent:main:mcp-bob"} {
			if _, err := h.d.ReceiveFrom(t.Context(), h.msg(key, "hello"), bob); err != nil {
				t.Errorf("a message to %s: %v", key, err)
			}
		}
	})
}

// A session that a job names belongs to the owner of the job before it exists, and is not listed before its first entry.
func TestNamesOfAJobAreTakenBeforeItRuns(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		web := func(to string) map[string]any { return map[string]any{"mode": "announce", "channel": "web", "to": to} }
		delivery := web("reports")
		delivery["failureDestination"] = web("failures")
		all := chat.Caller{Principal: "gateway", Scopes: bob.Scopes}
		put, err := h.d.CronAdd(t.Context(), bobsJob(t, map[string]any{"sessionTarget": "session:code", "delivery": delivery, "failureAlert": web("alerts")}), all, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.d.CronUpdate(t.Context(), put.Job.ID, members(t, map[string]any{"sessionTarget": "session:later"}), "", all); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"code", "later", "reports", "failures", "alerts"} {
			_, err := h.d.ReceiveFrom(t.Context(), h.msg(key, "hello"), bob)
			refusedAsAbsent(t, "a message to "+key, err)
			_, err = h.d.CronAdd(t.Context(), bobsJob(t, map[string]any{"sessionTarget": "session:" + key}), bob, nil)
			refusedAsAbsent(t, "a job in "+key, err)
		}
		if list, total, err := h.st.ListSessions(t.Context(), store.SessionFilter{}); err != nil || total != 0 || len(list) != 0 {
			t.Errorf("%d sessions are listed before their first entry: %v (%v)", total, list, err)
		}
		if _, err := h.d.ReceiveFrom(t.Context(), h.msg("code", "hello"), all); err != nil {
			t.Errorf("the operator: %v", err)
		}
		if _, total, err := h.st.ListSessions(t.Context(), store.SessionFilter{}); err != nil || total != 1 {
			t.Errorf("%d sessions are listed after the first message (%v)", total, err)
		}
	})
}

func TestACredentialThatSeesItsOwnSpeaksInNoChatOfAChannel(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		chatOf := func(more ...string) map[string]any {
			at := map[string]any{"mode": "announce", "channel": "telegram", "to": "4711"}
			for i := 0; i < len(more); i += 2 {
				at[more[i]] = more[i+1]
			}
			return at
		}
		var job cron.Job
		for what, more := range map[string]map[string]any{
			"delivering": {"delivery": chatOf()}, "alerting": {"failureAlert": chatOf()}, "of an account": {"delivery": chatOf("accountId", "work")},
			"failing": {"delivery": map[string]any{"mode": "announce", "channel": "web", "to": "bobs", "failureDestination": chatOf()}},
		} {
			_, err := h.d.CronAdd(t.Context(), bobsJob(t, more), bob, nil)
			refusedAsAbsent(t, what, err)
		}
		put, err := h.d.CronAdd(t.Context(), bobsJob(t, nil), bob, nil)
		if job = put.Job; err != nil {
			t.Fatal(err)
		}
		_, err = h.d.CronUpdate(t.Context(), job.ID, members(t, map[string]any{"delivery": chatOf()}), "", bob)
		refusedAsAbsent(t, "a change", err)
		all := chat.Caller{Principal: "gateway", Scopes: bob.Scopes}
		if _, err := h.d.CronAdd(t.Context(), bobsJob(t, map[string]any{"delivery": chatOf()}), all, nil); err != nil {
			t.Errorf("the operator: %v", err)
		}
	})
}

// A session may have been created by another principal than the one in its key: by an operator, or by a version that did not check this.
func TestASessionThatAnotherMadeBelongsToTheOneWhomItsKeyNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st)
		defer h.close()
		for key, principal := range map[string]string{
			"agent:main:telegram:direct:7": "telegram:7", "agent:main:telegram:group:-5": "telegram:work:7", "agent:main:hook:deploy": "hook:deploy",
			"agent:main:api:anna:phone": "anna",
		} {
			for _, text := range []string{"hello", "/status"} {
				key := key + map[string]string{"hello": "", "/status": "2"}[text]
				if key == "agent:main:hook:deploy2" {
					continue // hooks run no commands
				}
				h.end(h.send(key, "I was here first", func(m *chat.Message) { m.Principal = "bob" }))
				id := h.send(key, text, func(m *chat.Message) { m.Principal = principal })
				h.end(id)
				for _, next := range []string{principal, "gateway"} {
					parsed, _ := chat.ParseSessionKey(key, "main")
					s, err := st.Session(t.Context(), parsed, "")
					if err != nil || s.Principal != principal {
						t.Errorf("after %q of %s, %s belongs to %q, %v", text, next, key, s.Principal, err)
					}
					h.end(h.send(key, "once more", func(m *chat.Message) { m.Principal = "gateway" })) // this does not change the owner again
				}
				h.mu.Lock()
				for _, e := range h.events {
					if e.RunID == id && e.Principal == "bob" {
						t.Errorf("an event of %s in %s is bob's: %v", principal, key, e.Kind)
					}
				}
				h.mu.Unlock()
			}
		}
		// The first sender in a group remains its owner.
		group := "agent:main:telegram:group:-9"
		for _, who := range []string{"telegram:7", "telegram:8"} {
			h.end(h.send(group, "hello", func(m *chat.Message) { m.Principal = who }))
		}
		parsed, _ := chat.ParseSessionKey(group, "main")
		if s, err := st.Session(t.Context(), parsed, ""); err != nil || s.Principal != "telegram:7" {
			t.Errorf("the group belongs to %q, %v", s.Principal, err)
		}
		time.Sleep(time.Second)
	})
}
