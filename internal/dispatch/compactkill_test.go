package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/testpg"
)

// stores returns the stores of a test in virtual time, each empty. Their goroutines end within the bubble.
func stores(t *testing.T) map[string]modelStore {
	t.Helper()
	list := map[string]modelStore{"sqlite": sqliteModel}
	postgres := postgresModel(testpg.DB(t))
	list["postgres"] = func(t *testing.T) cronStore { return unwoken{postgres(t)} }
	return list
}

// unwoken is a store on PostgreSQL without notifications: a connection that listens would keep the clock of a bubble from advancing.
type unwoken struct{ cronStore }

// The test kills the process before and after each store operation of a compaction.
func TestAKillInAnyStepOfACompactionLeavesOneSummary(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for kind, open := range stores(t) {
		for _, step := range []string{"Accept", "Start", "Yield", "Transcript", "AppendSummary", "Finish"} {
			for _, done := range []bool{false, true} { // killed before or after the operation
				t.Run(fmt.Sprintf("%s/%s/%t", kind, step, done), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						st := open(t)
						killInCompaction(t, st, step, done)
						if err := st.Close(); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

func killInCompaction(t *testing.T, plain cronStore, step string, done bool) {
	t.Helper()
	first := newDoomed(plain, step, done)
	model := &scripted{window: 4000, takes: 10 * time.Millisecond, sums: time.Second}
	h := open(t, first, compacting(model))
	for i := range 30 {
		h.end(h.send("agent:main:long", fmt.Sprintf("fact-%d ", i)+strings.Repeat("words ", 4)))
	}
	list, rows := summaries(t, plain, "agent:main:long")
	if len(list) != 0 {
		t.Fatalf("there are %d summaries already", len(list))
	}
	first.armed.Store(true)
	m := h.msg("agent:main:long", "/compact")
	m.Content.Options.Typed = true
	if _, err := h.d.Receive(t.Context(), m); err != nil {
		t.Logf("the command was answered with %v", err)
	}
	time.Sleep(5 * time.Second)
	if !first.off.Load() {
		t.Fatalf("a compaction does not call %s", step)
	}
	next := open(t, plain, compacting(model))
	next.n.Store(1000)
	time.Sleep(time.Minute)
	synctest.Wait()
	want(t, "the outcome of the next turn", next.end(next.send("agent:main:long", "hello")).Outcome, chat.OutcomeAnswered)
	if list, _ = summaries(t, plain, "agent:main:long"); len(list) == 0 && (step == "Accept" || step == "Transcript") { // the command was not executed
		next.send("agent:main:long", "/compact", typed)
	}
	time.Sleep(time.Minute)
	list, now := summaries(t, plain, "agent:main:long")
	if len(list) != 1 || now < rows+3 {
		t.Errorf("%d summaries in %d rows (%d before): %+v", len(list), now, rows, list)
	}
	next.close()
	h.abandon()
}

// doomed is a store whose process is killed before or after one operation, once it is armed.
type doomed struct {
	*power

	step  string
	done  bool
	armed atomic.Bool
}

func newDoomed(st cronStore, step string, done bool) *doomed {
	return &doomed{power: &power{cronStore: st, off: &atomic.Bool{}}, step: step, done: done}
}

// at runs an operation, and ends the process before or after it.
func (d *doomed) at(ctx context.Context, step string, run func() error) error {
	mine := d.armed.Load() && step == d.step
	if mine && !d.done {
		d.off.Store(true)
	}
	if err := d.dead(ctx); err != nil {
		return err
	}
	err := run()
	if mine {
		d.off.Store(true)
		return d.dead(ctx)
	}
	return err
}

func (d *doomed) Accept(ctx context.Context, p store.AcceptParams) (out store.Accepted, err error) {
	err = d.at(ctx, "Accept", func() (err error) { out, err = d.power.Accept(ctx, p); return err })
	return out, err
}

func (d *doomed) Start(ctx context.Context, p store.StartParams) (out store.Started, err error) {
	err = d.at(ctx, "Start", func() (err error) { out, err = d.power.Start(ctx, p); return err })
	return out, err
}

func (d *doomed) Yield(ctx context.Context, c store.Claim, runID string, away bool) error {
	return d.at(ctx, "Yield", func() error { return d.power.Yield(ctx, c, runID, away) })
}

func (d *doomed) Transcript(ctx context.Context, q store.TranscriptQuery) (out store.Transcript, err error) {
	err = d.at(ctx, "Transcript", func() (err error) { out, err = d.power.Transcript(ctx, q); return err })
	return out, err
}

func (d *doomed) AppendSummary(ctx context.Context, p store.SummaryParams) (e chat.TranscriptEntry, added bool, err error) {
	err = d.at(ctx, "AppendSummary", func() (err error) { e, added, err = d.power.AppendSummary(ctx, p); return err })
	return e, added, err
}

func (d *doomed) Finish(ctx context.Context, p store.FinishParams) (out store.Finished, err error) {
	err = d.at(ctx, "Finish", func() (err error) { out, err = d.power.Finish(ctx, p); return err })
	return out, err
}

func (d *doomed) Record(ctx context.Context, c store.Claim, runID string, row store.JournalRow) error {
	return d.at(ctx, "Record "+row.Kind, func() error { return d.power.Record(ctx, c, runID, row) })
}
