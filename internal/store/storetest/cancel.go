package storetest

import (
	"context"
	"errors"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func cancelTests() []test {
	return []test{
		{"EndedBeforeTheStart", endedBeforeTheStart},
		{"EndedAtAnyPoint", endedAtAnyPoint},
	}
}

// endedBeforeTheStart calls every writing operation with a context that has ended: it returns the context's error and writes nothing.
func endedBeforeTheStart(w *world) {
	node, key := w.node(), w.key()
	l := w.hold(node)
	c, run, _ := w.turn(node, key)
	waiting, a := w.acceptText(node, key)
	out := w.outgoing("web", "1")
	w.enqueue(out)
	w.claimOne(node)
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	before := w.picture(key, run)
	todo := leftOver{lease: l, claim: c, run: run, waiting: waiting, seq: a.Seq, out: out.ID}
	for name, call := range w.writes(ctx, todo) {
		if err := call(); err == nil {
			w.Errorf("%s returns no error although its context has ended", name)
		} else if errors.Is(err, chat.ErrFenced) || errors.Is(err, chat.ErrConflict) {
			w.Errorf("%s was refused (%v) although its context has ended", name, err)
		}
	}
	equal(w, "the store", w.picture(key, run), before)
	equal(w, "lease", w.hold(node), l)
	equal(w, "waiting message", w.row(waiting).State, store.StateWaiting)
	w.beat(node)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: out.ID, ProviderID: "p"})).ok(w)
	w.finish(answered(c, run))
}

// leftOver are the objects of the writes: a run in progress, a waiting message, an outgoing one and a lease.
type leftOver struct {
	lease        store.Lease
	claim        store.Claim
	run, waiting string
	seq          int64
	out          string
}

func (w *world) writes(ctx context.Context, todo leftOver) map[string]func() error {
	l, c, run, waiting, seq, out := todo.lease, todo.claim, todo.run, todo.waiting, todo.seq, todo.out
	key, node := c.Session, c.Node
	end := store.EndParams{Session: key, Seqs: []int64{seq}, Outcome: chat.OutcomeDropped}
	stop := store.StopParams{Session: key, Scope: store.StopAll, By: "bob"}
	start := store.StartParams{Claim: c, RunID: waiting, Lane: "main", Seqs: []int64{seq}}
	return map[string]func() error{
		"Register":     func() error { return w.st.Register(ctx, store.Node{ID: "late", Exclusive: true}) },
		"Unregister":   func() error { return w.st.Unregister(ctx, node) },
		"ReleaseLease": func() error { return w.st.ReleaseLease(ctx, l) },
		"EndStopping":  func() error { return w.st.EndStopping(ctx, c, run) },
		"Heartbeat":    func() error { _, err := w.st.Heartbeat(ctx, node, false); return err },
		"Accept":       func() error { _, err := w.st.Accept(ctx, w.message(node, key)); return err },
		"Start":        func() error { _, err := w.st.Start(ctx, start); return err },
		"Join":         func() error { start.RunID = run; _, err := w.st.Join(ctx, start); return err },
		"Finish":       func() error { _, err := w.st.Finish(ctx, answered(c, run)); return err },
		"EndWaiting":   func() error { _, err := w.st.EndWaiting(ctx, end); return err },
		"Stop":         func() error { _, err := w.st.Stop(ctx, stop); return err },
		"Sweep":        func() error { _, err := w.st.Sweep(ctx, store.SweepParams{Node: node, Limit: many}); return err },
		"ResetSession": func() error {
			_, err := w.st.ResetSession(ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "late"})
			return err
		},
		"DeleteSession": func() error { _, err := w.st.DeleteSession(ctx, store.DeleteParams{Session: key}); return err },
		"SetSession": func() error {
			return w.st.SetSession(ctx, key, "ann", store.SessionSettings{Mode: new(chat.ModeCollect)})
		},
		"GiveSession": func() error { return w.st.GiveSession(ctx, key, "ann", "late") },
		"Enqueue":     func() error { return w.st.Enqueue(ctx, []store.Outgoing{w.outgoing("web", "9")}) },
		"Delivered": func() error {
			_, err := w.st.Delivered(ctx, store.DeliveredParams{Node: node, ID: out, ProviderID: "late"})
			return err
		},
		"Undelivered": func() error {
			_, err := w.st.Undelivered(ctx, store.UndeliveredParams{Node: node, ID: out})
			return err
		},
		"address gone": func() error {
			_, err := w.st.Undelivered(ctx, store.UndeliveredParams{Node: node, ID: out, Permanent: true, Gone: &store.GoneAddress{}})
			return err
		},
		"AppendTranscript": func() error { _, err := w.st.AppendTranscript(ctx, key, "ann", nil); return err },
		"ClaimOutgoing": func() error {
			_, err := w.st.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: node, Channels: []string{"web"}, Limit: many})
			return err
		},
	}
}

// endedAtAnyPoint cancels an operation in progress. Whatever it returns, repeating the operation leads to the same state as running it once.
func endedAtAnyPoint(w *world) {
	node, key := w.node(), w.key()
	for i := range 25 {
		p := w.message(node, key)
		var first store.Accepted
		err := w.cancelled(func(ctx context.Context) (err error) {
			first, err = w.st.Accept(ctx, p)
			return err
		})
		a := w.accept(p)
		if err == nil && (!a.Duplicate || first.Seq != a.Seq) {
			w.Fatalf("acknowledged as %+v, and then %+v", first, a)
		}
		equal(w, "sequence number", a.Seq, int64(i+1))
		w.cancelledTurn(store.Claim{Session: key, Node: node, Epoch: w.session(key).Epoch}, p.Message.ID, a.Seq)
	}
}

func (w *world) cancelledTurn(c store.Claim, run string, seq int64) {
	w.Helper()
	start := store.StartParams{Claim: c, RunID: run, Lane: "main", Seqs: []int64{seq}}
	_ = w.cancelled(func(ctx context.Context) error { //nolint:errcheck // both ends are legal, the repetition decides
		_, err := w.st.Start(ctx, start)
		return err
	})
	try(w.st.Start(w.ctx, start)).ok(w)
	r := w.run(run)
	equal(w, "state and attempt", []any{r.State, r.Attempt}, []any{store.RunRunning, 1})
	_ = w.cancelled(func(ctx context.Context) error { //nolint:errcheck // both ends are legal, the repetition decides
		_, err := w.st.Finish(ctx, answered(c, run))
		return err
	})
	try(w.st.Finish(w.ctx, answered(c, run))).ok(w)
	w.ended(run, chat.OutcomeAnswered)
	equal(w, "done_seq", w.session(c.Session).DoneSeq, seq)
}

// cancelled runs op while another goroutine cancels its context, and waits for both.
func (w *world) cancelled(op func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		cancel()
	}()
	err := op(ctx)
	<-done
	return err
}
