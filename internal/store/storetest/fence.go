package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func fenceTests() []test {
	return []test{
		{"StaleEpochChangesNothing", fenced(func(_ *world, c store.Claim, run string) (store.Claim, string) {
			c.Epoch--
			return c, run
		})},
		{"EpochToComeChangesNothing", fenced(func(_ *world, c store.Claim, run string) (store.Claim, string) {
			c.Epoch++
			return c, run
		})},
		{"OtherNodeChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			c.Node = w.node()
			return c, run
		})},
		{"NoNodeChangesNothing", fenced(func(_ *world, c store.Claim, run string) (store.Claim, string) {
			c.Node = ""
			return c, run
		})},
		{"OtherSessionChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			other := w.key()
			_, a := w.acceptText(c.Node, other)
			return claimOf(other, a), run
		})},
		{"UnknownSessionChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			c.Session = w.key()
			return c, run
		})},
		{"UnknownRunChangesNothing", fenced(func(w *world, c store.Claim, _ string) (store.Claim, string) {
			return c, w.id("run")
		})},
		{"ExpiredNodeChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			w.clock.advance(lease)
			return c, run
		})},
		{"UnregisteredNodeChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			w.ok(w.st.Unregister(w.ctx, c.Node))
			return c, run
		})},
		{"NodeThatCameBackChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			w.clock.advance(lease)
			w.sweepOne(w.node(), c.Session)
			return c, run
		})},
		{"StartOfAStaleClaim", startOfStaleClaim},
		{"EndStoppingOfAStaleClaim", endStoppingOfStaleClaim},
		{"EndedRunChangesNothing", endedRunChangesNothing},
	}
}

// picture is everything that a refused finish could have changed.
type picture struct {
	Session    store.Session
	Run        store.Run
	Message    store.Waiting
	Transcript store.Transcript
	Outgoing   map[string]store.OutboxCount
	Unfinished int
}

func (w *world) picture(key chat.SessionKey, run string) picture {
	w.Helper()
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key})).ok(w)
	counts := try(w.st.OutboxCounts(w.ctx)).ok(w)
	return picture{
		Session: w.session(key), Run: w.run(run), Message: w.row(run), Transcript: tr, Outgoing: counts, Unfinished: w.unfinished(),
	}
}

// fenced makes a test: spoil invalidates the claim of a run in progress, and no way to finish writes anything.
func fenced(spoil func(w *world, c store.Claim, run string) (store.Claim, string)) func(w *world) {
	return func(w *world) {
		node, key := w.node(), w.key()
		c, run, _ := w.turn(node, key)
		w.acceptText(node, key)
		wrong, wrongRun := spoil(w, c, run)
		before := w.picture(key, run)
		w.clock.advance(time.Millisecond)
		for _, p := range []store.FinishParams{answered(wrong, wrongRun), requeued(wrong, wrongRun), stopped(wrong, wrongRun)} {
			p.StillRunning = p.State == store.RunStopped
			p.Usage = chat.Usage{InputTokens: 1, OutputTokens: 1}
			p.Preview = "late"
			p.Transcript = []chat.TranscriptEntry{{RunID: wrongRun, Role: chat.RoleAssistant, Text: "late"}}
			p.Outgoing = []store.Outgoing{{Session: key, Kind: store.KindReply, Text: "late", Target: chat.Target{Channel: "web", ChatID: "1"}}}
			try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
			equal(w, "the store after a refused finish", w.picture(key, run), before)
		}
	}
}

func startOfStaleClaim(w *world) {
	node, key := w.node(), w.key()
	id, a := w.acceptText(node, key)
	c := claimOf(key, a)
	w.clock.advance(lease)
	try(w.st.Start(w.ctx, store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}})).fails(w, chat.ErrFenced)
	next := w.node()
	taken := w.sweepOne(next, key)
	for _, wrong := range []store.Claim{c, {Session: key, Node: node, Epoch: taken.Epoch}, {Session: key, Node: next, Epoch: a.Epoch}} {
		try(w.st.Start(w.ctx, store.StartParams{
			Claim: wrong, RunID: id, Lane: "main", Seqs: []int64{a.Seq}, Transcript: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "late"}},
		})).fails(w, chat.ErrFenced)
	}
	equal(w, "state", w.row(id).State, store.StateWaiting)
	try(w.st.RunByID(w.ctx, id)).fails(w, chat.ErrNotFound)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key})).ok(w)
	equal(w, "transcript", len(tr.Entries), 0)
	w.start(taken.Claim, id, a.Seq)
}

func endStoppingOfStaleClaim(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	p := stopped(c, id)
	p.StillRunning = true
	w.finish(p)
	wrong := c
	wrong.Epoch++
	w.fails(w.st.EndStopping(w.ctx, wrong, id), chat.ErrFenced)
	wrong = c
	wrong.Node = w.node()
	w.fails(w.st.EndStopping(w.ctx, wrong, id), chat.ErrFenced)
	equal(w, "state", w.run(id).State, store.RunStopping)
	w.ok(w.st.EndStopping(w.ctx, c, id))
}

func endedRunChangesNothing(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	w.acceptText(node, key)
	w.finish(stopped(c, run))
	before := w.picture(key, run)
	w.clock.advance(time.Millisecond)
	for _, p := range []store.FinishParams{answered(c, run), requeued(c, run)} {
		try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
		equal(w, "the store after a refused finish", w.picture(key, run), before)
	}
}
