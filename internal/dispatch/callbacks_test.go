package dispatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// deciding is a store that detects calls from inside a function that was passed to one of its
// operations, and refuses them: such a function is called while a connection of the store is held.
type deciding struct {
	cronStore

	mu     sync.Mutex
	inside map[string]string // goroutine → operation
	ran    map[string]int    // operation → number of calls of its function
	nested []string
}

func newDeciding(t *testing.T) *deciding {
	t.Helper()
	d := &deciding{inside: map[string]string{}, ran: map[string]int{}}
	d.cronStore = sqlitetest.Open(t, sqlite.Config{Before: d.enter})
	return d
}

// goroutine returns the name of the calling goroutine.
func goroutine() string {
	name, _, _ := bytes.Cut(debugStack(), []byte(" ["))
	return string(name)
}

func debugStack() []byte {
	buf := make([]byte, 64)
	return buf[:runtime.Stack(buf, false)]
}

func (d *deciding) enter(_ context.Context, op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if outer := d.inside[goroutine()]; outer != "" {
		d.nested = append(d.nested, op+" inside of "+outer)
		return fmt.Errorf("%s is called by the function that %s was given", op, outer)
	}
	return nil
}

// mark records that the function of an operation begins; the result ends it.
func (d *deciding) mark(op string) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := goroutine()
	d.inside[name] = op
	d.ran[op]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.inside, name)
	}
}

func (d *deciding) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	decide := p.Change
	p.Change = func(old *cron.Job, now time.Time) (*cron.Job, error) {
		defer d.mark("PutJob")()
		return decide(old, now)
	}
	return d.cronStore.PutJob(ctx, p)
}

func (d *deciding) ChangeJob(ctx context.Context, p cron.ChangeParams) (cron.Changed, error) {
	decide := p.Change
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		defer d.mark("ChangeJob")()
		return decide(old, now)
	}
	return d.cronStore.ChangeJob(ctx, p)
}

func (d *deciding) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	decide := p.Decide
	p.Decide = func(now time.Time, due []cron.DueJob) []cron.Verdict {
		defer d.mark("Claim")()
		return decide(now, due)
	}
	return d.cronStore.Claim(ctx, p)
}

// Replan makes the rules of this process the newest ones, so that the plan of each job in a zone is
// older.
func (d *deciding) Replan(ctx context.Context, p cron.ReplanParams) (cron.Replanned, error) {
	p.Release = "9999z"
	decide := p.Replan
	p.Replan = func(j cron.Job, now time.Time) (cron.Plan, bool) {
		defer d.mark("Replan")()
		return decide(j, now)
	}
	return d.cronStore.Replan(ctx, p)
}

func (d *deciding) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	decide := p.Make
	p.Make = func(due cron.DueJob, now time.Time) ([]cron.Launch, error) {
		defer d.mark("EnqueueRuns")()
		return decide(due, now)
	}
	return d.cronStore.EnqueueRuns(ctx, p)
}

func (d *deciding) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if p.Cron != nil {
		end := *p.Cron
		p.Cron = &end
		decide := end.Job
		end.Job = func(old cron.Job, r cron.Run, now time.Time) *cron.Job {
			defer d.mark("Finish")()
			return decide(old, r, now)
		}
	}
	return d.cronStore.Finish(ctx, p)
}

func (d *deciding) Begin(ctx context.Context, p store.BeginParams) (store.Begun, error) {
	settings, plan := p.Settings, p.Plan
	p.Settings = func(newest *store.Waiting) scheduler.Settings {
		defer d.mark("Begin")()
		return settings(newest)
	}
	p.Plan = func(c store.Claim, batch []store.Waiting) (store.StartParams, bool) {
		defer d.mark("Begin")()
		return plan(c, batch)
	}
	return d.cronStore.Begin(ctx, p)
}

// takesFunction reports whether a parameter is or contains a function.
func takesFunction(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Func:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return takesFunction(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if takesFunction(field.Type, seen) {
				return true
			}
		}
	default: // the others hold no function
	}
	return false
}

// operationsWithFunctions returns the operations of the ports that take a function.
func operationsWithFunctions() []string {
	names := map[string]bool{}
	for _, port := range []reflect.Type{reflect.TypeFor[store.Store](), reflect.TypeFor[cron.JobStore]()} {
		for m := range port.Methods() {
			for in := range m.Type.Ins() {
				if takesFunction(in, map[reflect.Type]bool{}) {
					names[m.Name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// A function that the dispatcher passes to the store must not call the store: with the last
// connection held, it would deadlock. The operations are found by their types, so the test fails
// for a new one until its function is called here.
func TestNoFunctionGivenToTheStoreCallsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newDeciding(t)
		h := openCron(t, st)
		by := chat.Caller{Principal: "token:ann", Own: true}
		members := func(name string) cron.Members {
			return cron.Members{
				"name": raw(name), "sessionTarget": raw("session:agent:main:ann:notes"), "payload": json.RawMessage(`{"kind":"agentTurn","message":"hi"}`),
				"schedule": json.RawMessage(`{"kind":"every","everyMs":60000}`), "delivery": json.RawMessage(`{"mode":"none"}`), "key": raw(name),
			}
		}
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		put, err := h.d.Jobs.Add(t.Context(), members("one"), by, nil)
		must("CronAdd", err)
		changed := members("one")
		changed["description"] = raw("again")
		_, err = h.d.Jobs.Add(t.Context(), changed, by, nil)
		must("CronAdd again", err)
		id := put.Job.ID
		daily := members("daily")
		daily["schedule"] = json.RawMessage(`{"kind":"cron","expr":"0 9 * * *","tz":"Europe/Berlin"}`)
		_, err = h.d.Jobs.Add(t.Context(), daily, by, nil)
		must("CronAdd of a job in a zone", err)
		for _, patch := range []cron.Members{
			{"description": raw("changed")},
			{"sessionTarget": raw("session:agent:main:ann:other")},
			{"delivery": json.RawMessage(`{"mode":"announce","channel":"web","to":"agent:main:ann:notes"}`)},
			{"schedule": json.RawMessage(`{"kind":"every","everyMs":120000}`)},
			{"enabled": json.RawMessage("false")},
			{"enabled": json.RawMessage("true")},
		} {
			_, err = h.d.Jobs.Update(t.Context(), id, patch, "", by)
			must(fmt.Sprintf("CronUpdate %s", patch), err)
		}
		_, err = h.d.Jobs.Pause(t.Context(), id, "", time.Time{}, by)
		must("CronPause", err)
		time.Sleep(5 * time.Minute)
		_, err = h.d.Jobs.Resume(t.Context(), id, by)
		must("CronResume", err)
		_, _, err = h.d.Jobs.Start(t.Context(), id, cron.RunForce, by, nil)
		must("CronRun", err)
		h.send("busy", "sleep 10s")
		h.send("busy", "waits")
		_, err = h.d.Jobs.Backfill(t.Context(), cron.BackfillParams{ID: id, From: time.Now().Add(-4 * time.Minute), To: time.Now(), MaxRuns: 10}, by)
		must("CronBackfill", err)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		must("CronRemove", h.d.Jobs.Remove(t.Context(), id, true, by))
		h.close()
		wantList(t, "operations whose function was called", slices.Sorted(maps.Keys(st.ran)), operationsWithFunctions())
		wantList(t, "operations that were called by a function", st.nested, nil)
	})
}

func raw(text string) json.RawMessage {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return b
}

// mute is a store that commits some ends of waiting messages and loses the response.
type mute struct {
	cronStore

	ends, stops, starts atomic.Int64 // responses to lose
}

func (m *mute) Begin(ctx context.Context, p store.BeginParams) (store.Begun, error) {
	s, err := m.cronStore.Begin(ctx, p)
	if m.starts.Add(-1) >= 0 {
		return store.Begun{}, chat.ErrStoreUnavailable
	}
	return s, err
}

func (m *mute) EndWaiting(ctx context.Context, p store.EndParams) ([]store.Waiting, error) {
	ended, err := m.cronStore.EndWaiting(ctx, p)
	if m.ends.Add(-1) >= 0 {
		return nil, chat.ErrStoreUnavailable
	}
	return ended, err
}

func (m *mute) Stop(ctx context.Context, p store.StopParams) (store.Stopped, error) {
	s, err := m.cronStore.Stop(ctx, p)
	if m.stops.Add(-1) >= 0 {
		return store.Stopped{}, chat.ErrStoreUnavailable
	}
	return s, err
}

// ends counts the final events of a message.
func (h *harness) ends(id string) int {
	n := 0
	for _, k := range h.kinds(id) {
		if slices.Contains([]string{string(chat.EventFinal), string(chat.EventAborted), string(chat.EventFailed)}, k) {
			n++
		}
	}
	return n
}

// Responses of the store are lost after the commits of ends. Subscribers still receive each end
// exactly once.
func TestAMessageWhoseEndWasNotAnsweredHasOneFinalEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command     string
		ends, stops int64
	}{
		"cleared, two answers lost": {"/queue clear", 2, 0},
		"stopped":                   {"/stopall", 0, 1},
		"both":                      {"/stopall", 1, 2},
	} {
		for _, kind := range []string{"memory", "sqlite"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					st := &mute{cronStore: newStore(t)}
					if kind == "sqlite" {
						db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "lost.db")})
						if err != nil {
							t.Fatal(err)
						}
						defer func() { _ = db.Close() }()
						st.cronStore = db
					}
					h := open(t, st)
					defer h.close()
					running := h.send("main", "sleep 10m")
					synctest.Wait()
					ids := []string{h.send("main", "one"), h.send("main", "two")}
					synctest.Wait()
					st.ends.Store(c.ends)
					st.stops.Store(c.stops)
					h.end(h.send("main", c.command))
					synctest.Wait()
					h.end(h.send("main", "/stop"))
					h.end(running)
					synctest.Wait()
					for _, id := range append(ids, running) {
						want(t, "final events of "+id, h.ends(id), 1)
					}
				})
			})
		}
	}
}

// The replies to the start are lost until the turn was stopped. It would stay running in the store
// without a turn in this process.
func TestStoppedTurnWhoseStartWasLostEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := &mute{cronStore: newStore(t)}
		h := open(t, st)
		defer h.close()
		st.starts.Store(5) // with the pauses between them, more than half a second
		id := h.send("main", "hello")
		time.Sleep(300 * time.Millisecond)
		h.end(h.send("main", "/stop"))
		h.end(id)
		synctest.Wait()
		want(t, "final events", h.ends(id), 1)
		if run, err := st.RunByID(t.Context(), id); err == nil && (run.State == store.RunRunning || run.State == store.RunStopping) {
			t.Errorf("the run is %s", run.State)
		}
		h.end(h.send("main", "the next"))
	})
}
