package teste2e

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"laneway/internal/testrun"
)

// forged must not begin a line of the log.
const forged = "level=FATAL"

// hostile are strings, as JSON, that have broken programs: they end a string in C or SQL, forge a line, are invalid text, or are too large.
func hostile() map[string]json.RawMessage {
	long := strings.Repeat("x", 20_000) // all values of a method fit into one message
	texts := map[string]string{
		"quotes": `'"` + "`" + `\`, "SQL": `x'); DROP TABLE cron_jobs; --`, "placeholders": `$1 ? :name %s {} %_*[^a]\`, "JSON": `{"a":[1,null]}`,
		"lines": "a\r\n" + forged + " b", "bidi": "a\u202eb\u2066c", "blank": " \u00a0\u200b", "private": "\ufffe\U0010ffff\ue000", "empty": "", "long": long,
	}
	out := map[string]json.RawMessage{
		"NUL": json.RawMessage(`"a\u0000b"`), "half a pair": json.RawMessage(`"a\ud800b"`), "halves in the wrong order": json.RawMessage(`"\udc00\ud800"`),
	}
	for name, text := range texts {
		raw, err := json.Marshal(text)
		if err != nil {
			panic(err)
		}
		out[name] = raw
	}
	return out
}

// publishedMethod is a method in docs/protocol.json.
type publishedMethod struct {
	Name, Scope string
	// IgnoredParams are accepted and ignored.
	IgnoredParams []string
	Params        struct {
		Properties map[string]struct {
			Type  string
			Items struct{ Type string }
		}
	}
}

func publishedMethods(t *testing.T) []publishedMethod {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Methods []publishedMethod }
	if err := json.Unmarshal(raw, &doc); err != nil || len(doc.Methods) < 30 {
		t.Fatalf("%d methods, %v", len(doc.Methods), err)
	}
	return doc.Methods
}

// honest are params with which a method has an effect; n makes them new.
func honest(method, job string, n int) map[string]any {
	year := map[string]any{"kind": "cron", "expr": "0 0 1 1 *", "tz": "UTC"}
	name := "n" + strconv.Itoa(n)
	switch method {
	case "agent", "chat.send":
		return map[string]any{"sessionKey": "agent:main:hostile", "message": "hello", "idempotencyKey": method + name}
	case "wake":
		return map[string]any{"mode": "next-heartbeat", "text": "hello", "sessionKey": "agent:main:hostile"}
	case "chat.abort", "chat.history":
		return map[string]any{"sessionKey": "agent:main:other"}
	case "sessions.delete", "sessions.describe", "sessions.reset":
		return map[string]any{"key": "agent:main:other"}
	case "cron.add":
		return jobParams(name, year, nil)
	case "cron.create":
		return map[string]any{"name": name, "schedule": year, "message": "work"}
	case "cron.update":
		return map[string]any{"id": job, "patch": map[string]any{}}
	case "cron.backfill":
		return map[string]any{"id": job, "fromMs": 1, "toMs": 2}
	case "cron.pause":
		return map[string]any{"id": job, "note": "because"}
	case "cron.toggle":
		return map[string]any{"jobId": job, "enabled": true}
	case "cron.delete", "cron.remove": // the job of the test is kept
		return map[string]any{"jobId": "none"}
	case "questions.answer":
		return map[string]any{"id": "none", "option": 1}
	case "runs.get", "tasks.get", "tasks.stop":
		return map[string]any{"id": "none"}
	case "cron.get", "cron.resume", "cron.run":
		return map[string]any{"id": job}
	case "channels.pairing.dismiss", "channels.pairing.revoke", "channels.pairing.approve":
		return map[string]any{"channel": "telegram", "accountId": "default", "requestId": "none", "senderId": "7"}
	default:
		return map[string]any{}
	}
}

// inside returns the members of params that are objects which the handler parses.
func inside(param string) []map[string]any {
	member := func(base map[string]any, names ...string) (out []map[string]any) {
		for _, name := range names {
			m := maps.Clone(base)
			m[name] = nil
			out = append(out, m)
		}
		return out
	}
	switch param {
	case "schedule":
		return slices.Concat(
			member(map[string]any{"kind": "cron", "expr": "0 0 1 1 *"}, "kind", "expr", "tz"),
			member(map[string]any{"kind": "at"}, "at"), member(map[string]any{"kind": "every", "everyMs": 86_400_000}, "kind"))
	case "payload":
		return slices.Concat(member(map[string]any{"kind": "agentTurn", "message": "work"}, "kind", "message", "model", "thinking"),
			member(map[string]any{"kind": "systemEvent"}, "text"))
	case "delivery", "failureAlert":
		return slices.Concat(member(map[string]any{"mode": "announce", "channel": "telegram", "to": "7"}, "mode", "channel", "to", "threadId", "accountId"),
			member(map[string]any{"mode": "webhook"}, "to"), member(map[string]any{"mode": "announce", "channel": "web"}, "to"))
	case "owner":
		return member(map[string]any{}, "agentId", "sessionKey", "accountId")
	case "dst":
		return member(map[string]any{}, "gap", "overlap")
	case "missed":
		return member(map[string]any{}, "policy")
	}
	return nil
}

// plant puts a value into the placeholder of inside.
func plant(in map[string]any, value any) map[string]any {
	out := maps.Clone(in)
	for name, v := range out {
		if v == nil {
			out[name] = value
		}
	}
	return out
}

// Hostile strings are put into every field of every published method. Each call is answered, or refused with its reason; none causes a
// defect, and none reaches the database as anything but a value. On PostgreSQL a normal run makes one call in four, with a different
// selection each time, because the code before the store is the same.
func TestNoStringInAnyFieldOfAnyMethodBreaksAnything(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0, cron_writes: 0}\n")
		g.Start()
		c := connect(t, g)
		job := addJob(t, c, `Robert'); DROP TABLE cron_jobs; --`, map[string]any{"kind": "cron", "expr": "0 0 1 1 *", "tz": "UTC"}, nil)
		every := 1
		if database != "" {
			every = testrun.Size(4, 1)
		}
		offered, calls := 0, 0
		try := func(method, field, kind string, params map[string]any) {
			if offered++; offered%every != 0 { // maps have no order, so every run selects different calls
				return
			}
			calls++
			_, err := c.Call(method, params, 30*time.Second)
			refusal, refused := errors.AsType[*WireError](err)
			switch {
			case err == nil:
			case !refused:
				t.Fatalf("%s with %s in %s: %v", method, kind, field, err)
			case refusal.Code != "INVALID_REQUEST" || refusal.Retryable || strings.ContainsFunc(refusal.Message, unprintable) || len(refusal.Message) > 2000:
				t.Errorf("%s with %s in %s: %.300v", method, kind, field, refusal)
			}
		}
		for _, m := range publishedMethods(t) {
			for kind, value := range hostile() {
				hostileCalls(m, job.ID, value, func() int { return offered }, func(method, field string, params map[string]any) { try(method, field, kind, params) })
			}
		}
		t.Logf("%d of %d calls", calls, offered)
		if offered < 1500 || calls < 1500/every {
			t.Errorf("only %d calls were made", calls)
		}
		var list struct{ Jobs []map[string]any }
		if err := c.Into(&list, "cron.list", map[string]any{"includeDisabled": true, "query": "Robert');"}); err != nil {
			t.Errorf("listing the jobs: %v", err)
		}
		if lines := suspicious(g.Output()); lines != "" {
			t.Errorf("the log:\n%s", lines)
		}
		o := OpenOracle(t, g, database)
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE id = '" + job.ID + "'"); n != 1 {
			t.Errorf("the first job is there %d times", n)
		}
		o.Check(15 * time.Second)
	})
}

// unprintable reports characters that make a sentence look different from its content.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

// hostileCalls makes the calls of a method with a value in each of its fields; ignored fields are all set in one call.
func hostileCalls(m publishedMethod, job string, value any, next func() int, try func(method, field string, params map[string]any)) {
	together := map[string]any{}
	for field, shape := range m.Params.Properties {
		planted := value
		switch {
		case shape.Type == "array" && shape.Items.Type == "string":
			planted = []any{value}
		case shape.Type != "" && shape.Type != "string":
			continue
		}
		if slices.Contains(m.IgnoredParams, field) && !strings.HasPrefix(m.Name, "cron.") {
			together[field] = planted
			continue
		}
		p := honest(m.Name, job, next())
		p[field] = planted
		try(m.Name, field, p)
		for _, in := range inside(field) {
			p := honest(m.Name, job, next())
			p[field] = plant(in, value)
			try(m.Name, field+" inside", p)
		}
		if m.Name == "cron.add" {
			try("cron.update", "patch."+field, map[string]any{"id": job, "patch": map[string]any{field: planted}})
			for _, in := range inside(field) {
				try("cron.update", "patch."+field+" inside", map[string]any{"id": job, "patch": map[string]any{field: plant(in, value)}})
			}
		}
	}
	if len(together) > 0 {
		p := honest(m.Name, job, next())
		maps.Copy(p, together)
		try(m.Name, "all fields without an effect", p)
	}
}

// suspicious returns the lines of a log that show a defect, or that a client forged.
func suspicious(log string) string {
	var out []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "panic") || strings.Contains(line, " level=ERROR ") || strings.HasPrefix(line, forged) || strings.Contains(line, "\u202e") {
			out = append(out, line[:min(len(line), 500)])
		}
	}
	return strings.Join(out, "")
}
