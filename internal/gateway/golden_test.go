package gateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway"
	"laneway/internal/gateway/jobs"
)

// update writes the golden file from the current answers.
var update = flag.Bool("update", false, "write the golden files")

// jobBook is a backend with one job and one run, which the test chooses. Every call succeeds.
type jobBook struct {
	jobs.Backend

	mu    sync.Mutex
	job   cron.Job
	run   cron.Run
	event func(cron.Event)
}

func (b *jobBook) put(job cron.Job, run cron.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.job, b.run = job, run
}

func (b *jobBook) now() (cron.Job, cron.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.job, b.run
}

func (b *jobBook) Subscribe(fn func(cron.Event), _ func() bool) (cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.event = fn
	return func() {}
}

func (b *jobBook) Add(context.Context, cron.Members, chat.Caller, *chat.IdempotencyKey) (cron.Put, error) {
	job, _ := b.now()
	return cron.Put{Job: job, Keyed: !job.KeyDerived, Created: job.Enabled, Updated: job.AtMostOnce}, nil
}

func (b *jobBook) Update(context.Context, string, cron.Members, string, chat.Caller) (cron.Job, error) {
	job, _ := b.now()
	return job, nil
}

func (b *jobBook) Remove(context.Context, string, bool, chat.Caller) error { return nil }

func (b *jobBook) Pause(context.Context, string, string, time.Time, chat.Caller) (cron.Job, error) {
	job, _ := b.now()
	return job, nil
}

func (b *jobBook) Moment(context.Context, string, string, bool, chat.Caller) (time.Time, error) {
	return time.UnixMilli(1), nil
}

func (b *jobBook) Resume(context.Context, string, chat.Caller) (cron.Job, error) {
	job, _ := b.now()
	return job, nil
}

func (b *jobBook) Job(context.Context, string, chat.Caller) (cron.Job, error) {
	job, _ := b.now()
	return job, nil
}

func (b *jobBook) Jobs(context.Context, cron.JobFilter, chat.Caller) (cron.JobPage, error) {
	job, _ := b.now()
	return cron.JobPage{Jobs: []cron.Job{job}, Total: 1 + int(job.JitterMs%2), Revision: job.Revision}, nil
}

func (b *jobBook) Ledger(context.Context, cron.RunFilter, chat.Caller) (cron.RunPage, error) {
	_, run := b.now()
	return cron.RunPage{Runs: []cron.Run{run}, Total: 1 + run.Attempt%2}, nil
}

func (b *jobBook) Start(context.Context, string, cron.RunMode, chat.Caller, *chat.IdempotencyKey) (runID, reason string, err error) {
	job, run := b.now()
	if job.Enabled {
		return run.ID, "", nil
	}
	return "", "not-due", nil
}

func (b *jobBook) Cancel(context.Context, cron.CancelParams, chat.Caller) ([]string, error) {
	_, run := b.now()
	return []string{run.ID}, nil
}

func (b *jobBook) Preview(_ context.Context, p cron.PreviewParams, _ chat.Caller) (cron.Preview, error) {
	s, err := schedule.Compile(schedule.Spec{Kind: schedule.KindCron, Expr: "30 2 * * *", TZ: "Europe/Berlin"})
	if err != nil {
		return cron.Preview{}, err
	}
	return cron.Timetable{Schedule: s}.Preview(p.From, p.Count), nil
}

func (b *jobBook) Explain(context.Context, cron.ExplainParams, chat.Caller) (cron.Explained, error) {
	at := time.UnixMilli(1_700_000_000_000)
	return cron.Explained{Zone: "UTC", Slots: []cron.Explanation{{
		Slot: at, Why: cron.WhyUnplanned, Text: "It is no slot.", Cure: cron.Cure{Text: "wait", Acts: []cron.Act{cron.ActRun}}, RunID: "r1", Before: at, After: at, Changes: []cron.JobChange{{At: at, Who: "ann", Verb: "cron.update"}},
	}}}, nil
}

func (b *jobBook) Backfill(context.Context, cron.BackfillParams, chat.Caller) ([]cron.BackfillFire, error) {
	_, run := b.now()
	return []cron.BackfillFire{{Slot: time.UnixMilli(1_700_000_000_000), RunID: run.ID}, {Slot: time.UnixMilli(1_700_000_060_000), RunID: "r2", Exists: true}}, nil
}

func (b *jobBook) Counts(context.Context, chat.Caller) (cron.Summary, bool) {
	job, _ := b.now()
	return cron.Summary{Jobs: 3, Running: 1, Backlog: 2, OldestDue: time.Second, NextWake: job.State.NextRunAt}, job.Enabled
}

func (b *jobBook) Ticked() (time.Time, bool) { return time.UnixMilli(1_700_000_000_000), true }

// sampler generates values in which some members are complete and others zero, the same values in
// every run of the test.
type sampler struct{ r *rand.Rand }

func (s sampler) pick(words ...string) string { return words[s.r.IntN(len(words))] }

func (s sampler) fill(v reflect.Value) {
	if s.special(v) || s.r.IntN(3) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s.pick("a word", "<b> & \"c\"", "\u2028 äöü"))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(1 + s.r.IntN(5_000)))
	case reflect.Bool:
		v.SetBool(s.r.IntN(2) == 0)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		s.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), s.r.IntN(3), 3))
		for i := range v.Len() {
			s.fill(v.Index(i))
		}
	case reflect.Struct:
		for _, member := range v.Fields() {
			s.fill(member)
		}
	default: // the kinds of the members of jobs and runs
	}
}

// special sets types that need particular values.
func (s sampler) special(v reflect.Value) bool {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		if s.r.IntN(3) > 0 {
			*p = time.UnixMilli(1_700_000_000_000 + int64(s.r.IntN(1_000_000_000))).UTC()
		}
	case *time.Duration:
		*p = time.Duration(s.r.IntN(3)*s.r.IntN(100_000)) * time.Millisecond
	case *schedule.Spec:
		*p = []schedule.Spec{
			{Kind: schedule.KindAt, At: time.UnixMilli(1_800_000_000_123)},
			{Kind: schedule.KindEvery, EveryMs: 90_000, AnchorMs: 7},
			{Kind: schedule.KindEvery, EveryMs: 1_500},
			{Kind: schedule.KindCron, Expr: "30 2 * * *", TZ: "Europe/Berlin"},
			{Kind: schedule.KindCron, Expr: "@daily"},
		}[s.r.IntN(5)]
	case *cron.MissedPolicy:
		*p = cron.MissedPolicy{Rule: cron.MissedRule(s.pick("", "latest", "all")), MaxCatchup: s.r.IntN(3), Window: []time.Duration{0, cron.NoWindow, time.Hour}[s.r.IntN(3)]}
	case *cron.Payload:
		*p = cron.Payload{
			Kind: cron.PayloadKind(s.pick("agentTurn", "systemEvent", "command", "script")), Text: s.pick("", "do it"),
			Options: []byte(s.pick("", `{"model":"m","z":[1,{"b":2,"a":1.50}]}`, `{"argv":["ls"],"cwd":"/"}`)),
		}
	case *cron.DeliveryMode:
		*p = cron.DeliveryMode(s.pick("", "none", "announce", "webhook"))
	case *cron.Delivery:
		s.delivery(p)
	case *cron.RunState:
		*p = cron.RunState(s.pick("ok", "skipped", "missed", "error", "cancelled", "interrupted", "queued", "running", "retrying"))
	case *cron.AttemptState:
		*p = cron.AttemptState(s.pick("", "ok", "error", "timeout", "cancelled", "interrupted"))
	case *cron.DeliveryStatus:
		*p = cron.DeliveryStatus(s.pick("", "not-requested", "delivered", "not-delivered", "unknown"))
	case *cron.Trigger:
		*p = cron.Trigger(s.pick("schedule", "manual", "catchup", "backfill:2"))
	default:
		return false
	}
	return true
}

func (s sampler) delivery(d *cron.Delivery) {
	for _, member := range []any{&d.Mode, &d.Channel, &d.To, &d.Thread, &d.Account, &d.BestEffort} {
		s.fill(reflect.ValueOf(member).Elem())
	}
	d.Options = []byte(s.pick("", `{"failureDestination":{"mode":"webhook","to":"https://example.org"},"completionDestination":{"mode":"announce","channel":"web"}}`))
}

// jobCalls returns the answers of all methods of jobs for one job and its run, and its events, in
// both views.
func jobCalls(t *testing.T, b *bench, book *jobBook, views []*socket) (lines []string) {
	t.Helper()
	volatile := regexp.MustCompile(`"(ts|processInstanceId|bootId)":("[^"]*"|\d+)`)
	job, run := book.now()
	for i, s := range views {
		for _, c := range []struct {
			method string
			p      params
		}{
			{"cron.get", params{"id": "x"}},
			{"cron.update", params{"id": "x", "patch": params{}}},
			{"cron.pause", params{"id": "x", "note": "n"}},
			{"cron.resume", params{"id": "x"}},
			{"cron.list", params{}},
			{"cron.runs", params{"id": "x", "limit": 7}},
			{"cron.run", params{"id": "x"}},
			{"cron.cancel", params{"id": "x"}},
			{"cron.backfill", params{"id": "x", "fromMs": 1, "toMs": 2}},
			{"cron.backfill", params{"id": "x", "fromMs": 1, "toMs": 2, "dryRun": true}},
			{"cron.toggle", params{"id": "x", "enabled": true}},
			{"cron.remove", params{"id": "x"}},
			{"cron.delete", params{"id": "x"}},
			{"cron.preview", params{"id": "x", "fromMs": 1_774_000_000_000, "count": 3}},
			{"cron.preview", params{"schedule": params{}, "fromMs": 1_774_000_000_000, "count": 1, "jitterMs": 5}},
			{"cron.status", params{}},
			{"scheduler.status", params{}},
			{"cron.add", params{"name": "n", "schedule": 1, "sessionTarget": 1, "payload": 1}},
			{"cron.create", params{"name": "n", "schedule": 1, "message": "m"}},
		} {
			f := s.call(c.method, c.p)
			if !f.OK {
				t.Fatalf("%s: %+v", c.method, f.Error)
			}
			lines = append(lines, fmt.Sprintf("%d %s %s", i, c.method, volatile.ReplaceAll(bytes.ReplaceAll(f.Payload, []byte(b.core.NodeID()), []byte("gw-1")), []byte(`"$1":0`))))
		}
	}
	for _, ev := range []cron.Event{
		{Action: cron.ActionAdded, Job: job},
		{Action: cron.ActionStarted, Job: job, Run: &run},
		{Action: cron.ActionFinished, Job: job, Run: &run},
		{Action: cron.ActionFinished, Run: &run},
	} {
		book.event(ev)
		for i, s := range views {
			lines = append(lines, fmt.Sprintf("%d event %s", i, s.next(func(f frame) bool { return f.Event == "cron" }).Payload))
		}
	}
	return append(lines, "body "+string(jobs.WebhookBody(job, run)))
}

// The answers and events about jobs must not change in any byte: those of three jobs are in the
// file, those of three hundred in its digest.
func TestAnswersAboutJobsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	book := &jobBook{}
	b := start(t, withBook(book), func(c *gateway.Config) { c.CronWritesPerMinute, c.RequestsPerSecond = -1, -1 })
	views := []*socket{b.login(adminToken), b.login(adminToken, "laneway-ext")}
	s := sampler{rand.New(rand.NewPCG(1, 2))}
	digest := sha256.New()
	var lines []string
	for i := range 300 {
		var job cron.Job
		var run cron.Run
		for _, v := range []any{&job, &run} {
			e := reflect.ValueOf(v).Elem()
			for _, member := range e.Fields() {
				s.fill(member)
			}
		}
		job.Key, run.ID, run.ScheduledFor = "key-"+job.Key, "run", time.UnixMilli(1_700_000_000_000+int64(i))
		book.put(job, run)
		made := jobCalls(t, b, book, views)
		for _, line := range made {
			fmt.Fprintln(digest, line)
		}
		if i < 3 {
			lines = append(lines, made...)
		}
	}
	golden(t, "jobs.golden", append(lines, "digest "+hex.EncodeToString(digest.Sum(nil))))
}

// The answers about pairings must not change in any byte.
func TestAnswersAboutPairingsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	l, b := openLobby(t)
	l.asks(t, family, annasNumber, "Anna")
	l.asks(t, work, 8, "")
	s := b.login(adminToken, "laneway-ext")
	volatile := regexp.MustCompile(`"(\w+At|requestId)":"[^"]*"`)
	var lines []string
	call := func(method string, p params) json.RawMessage {
		f := s.call(method, p)
		if !f.OK {
			t.Fatalf("%s: %+v", method, f.Error)
		}
		lines = append(lines, method+" "+string(volatile.ReplaceAll(f.Payload, []byte(`"$1":""`))))
		return f.Payload
	}
	list := decode[struct{ Requests []struct{ RequestID string } }](t, call("channels.pairing.list", nil))
	call("channels.pairing.approve", params{"requestId": list.Requests[0].RequestID})
	call("channels.pairing.dismiss", params{"channel": "telegram", "accountId": "work", "requestId": list.Requests[1].RequestID})
	call("channels.pairing.list", params{"extended": false})
	call("channels.pairing.revoke", params{"senderId": "7"})
	golden(t, "pairings.golden", lines)
}

// golden compares lines with a file.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	old := strings.Split(string(want), "\n")
	for i, line := range lines {
		if i >= len(old) || line != old[i] {
			t.Fatalf("%s, line %d:\n got %s\nwant %s", name, i+1, line, old[min(i, len(old)-1)])
		}
	}
	t.Fatalf("%s: %d lines, want %d", name, len(lines), len(old)-1)
}
