package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Bench measures a store on its own clock: accepting, whole durable turns (accept, start, and finish with one outgoing
// message) with 1, 32 and 256 workers, and the sweep that finds nothing to do among 100 and 10 000 sessions.
func Bench(b *testing.B, open Opener) {
	b.Helper()
	for _, workers := range []int{1, 32} {
		b.Run(fmt.Sprintf("accept/workers=%d", workers), func(b *testing.B) { benchAccept(b, open, workers) })
	}
	for _, workers := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("turn/workers=%d", workers), func(b *testing.B) { benchTurn(b, open, workers) })
	}
	for _, sessions := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("sweep/idle_sessions=%d", sessions), func(b *testing.B) { benchSweep(b, open, sessions) })
	}
}

// bench is a store with one node that lives longer than any benchmark.
func bench(b *testing.B, open Opener) (*world, string) {
	b.Helper()
	w := &world{reporter: b, tb: b, ctx: b.Context(), clock: newClock(), ids: &atomic.Int64{}}
	w.h = open(b, nil)
	w.st = w.h.Open()
	node := w.id("node")
	w.ok(w.st.Register(w.ctx, store.Node{ID: node, Lease: 24 * time.Hour}))
	return w, node
}

// share has the operations done by several workers, each in a session of its own, and reports how many there were a second.
func (w *world) share(b *testing.B, workers int, op func(key chat.SessionKey) error) {
	b.Helper()
	var next atomic.Int64
	var group errgroup.Group
	b.ReportAllocs()
	b.ResetTimer()
	for range workers {
		key := w.key()
		group.Go(func() error {
			for next.Add(1) <= int64(b.N) {
				if err := op(key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w.ok(group.Wait())
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func benchAccept(b *testing.B, open Opener, workers int) {
	b.Helper()
	w, node := bench(b, open)
	w.share(b, workers, func(key chat.SessionKey) error {
		p := w.message(node, key)
		p.Cap, p.Drop = 10, chat.DropOld
		_, err := w.st.Accept(w.ctx, p)
		return err
	})
}

func benchTurn(b *testing.B, open Opener, workers int) {
	b.Helper()
	w, node := bench(b, open)
	w.share(b, workers, func(key chat.SessionKey) error { return w.durableTurn(node, key) })
}

// durableTurn is what one message of a person costs the store.
func (w *world) durableTurn(node string, key chat.SessionKey) error {
	return w.durableTurnOf(node, key, "", "the answer")
}

// durableTurnOf is durableTurn with a question and an answer; an empty question is a short text of its own.
func (w *world) durableTurnOf(node string, key chat.SessionKey, text, answer string) error {
	p := w.message(node, key)
	id := p.Message.ID
	if text != "" {
		p.Message.Content.Text = text
	}
	a, err := w.st.Accept(w.ctx, p)
	if err != nil {
		return err
	}
	c := claimOf(key, a)
	question := []chat.TranscriptEntry{{RunID: id, Role: chat.RoleUser, Text: p.Message.Content.Text}}
	start := store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}, Transcript: question}
	if _, err := w.st.Start(w.ctx, start); err != nil {
		return err
	}
	end := answered(c, id)
	end.Transcript = []chat.TranscriptEntry{{RunID: id, Role: chat.RoleAssistant, Text: answer}}
	end.Outgoing = []store.Outgoing{{
		Session: key, Kind: store.KindReply, Text: answer, Target: chat.Target{Channel: "web", ChatID: key.Rest},
	}}
	_, err = w.st.Finish(w.ctx, end)
	return err
}

func benchSweep(b *testing.B, open Opener, sessions int) {
	b.Helper()
	w, node := bench(b, open)
	var group errgroup.Group
	group.SetLimit(64)
	for range sessions {
		group.Go(func() error { return w.durableTurn(node, w.key()) })
	}
	w.ok(group.Wait())
	b.ResetTimer()
	for range b.N {
		equal(w, "swept", len(w.sweep(node)), 0)
	}
}
