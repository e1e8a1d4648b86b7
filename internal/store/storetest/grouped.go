package storetest

import (
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// sessionsAtOnce is how many sessions act concurrently: enough to make a store that supports it share transactions between operations.
const sessionsAtOnce = 48

func togetherTests() []test {
	return []test{
		{"RunsThatRunAreNotBegunAgainInACrowd", runningNotBegunAgain},
		{"RunsThatStopAreNotEndedAgainInACrowd", stoppingNotEndedAgain},
	}
}

// place is a session with a run and a message after it.
type place struct {
	claim      store.Claim
	run, later string
	seqs       []int64 // of both messages
}

// places are sessions that each have a running run and a second message that waits.
func (w *world) places(n int) []place {
	w.Helper()
	node := w.node()
	list := make([]place, n)
	for i := range list {
		key := w.key()
		c, run, seq := w.turn(node, key)
		later, a := w.acceptText(node, key)
		list[i] = place{claim: c, run: run, later: later, seqs: []int64{seq, a.Seq}}
	}
	return list
}

// atOnce runs do for all places concurrently.
func (w *world) atOnce(list []place, do func(p place) error) {
	w.Helper()
	var all errgroup.Group
	for _, p := range list {
		all.Go(func() error { return do(p) })
	}
	w.ok(all.Wait())
}

// runningNotBegunAgain: starting a running run creates no second attempt, and does not take messages that have arrived meanwhile.
func runningNotBegunAgain(w *world) {
	list := w.places(sessionsAtOnce)
	w.atOnce(list, func(p place) error {
		s, err := w.st.Start(w.ctx, store.StartParams{
			Claim: p.claim, RunID: p.run, Lane: "main", Seqs: p.seqs,
			Transcript: []chat.TranscriptEntry{{RunID: p.run, Role: chat.RoleUser, Text: "again"}},
		})
		switch {
		case errors.Is(err, chat.ErrFenced):
		case err != nil:
			return err
		case s.Attempt != 1 || len(s.Seqs) != 1:
			return fmt.Errorf("a run that runs was begun again: %+v", s)
		}
		return nil
	})
	for _, p := range list {
		equal(w, "attempt", w.run(p.run).Attempt, 1)
		equal(w, "the message after it", w.row(p.later).State, store.StateWaiting)
		tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: p.claim.Session})).ok(w)
		equal(w, "transcript", len(tr.Entries), 0)
	}
}

// stoppingNotEndedAgain: a run that was ended before its goroutine cannot end a second time, although its claim still holds.
func stoppingNotEndedAgain(w *world) {
	list := w.places(sessionsAtOnce)
	for _, p := range list {
		end := stopped(p.claim, p.run)
		end.StillRunning = true
		w.finish(end)
	}
	w.atOnce(list, func(p place) error {
		if _, err := w.st.Finish(w.ctx, answered(p.claim, p.run)); !errors.Is(err, chat.ErrFenced) {
			return fmt.Errorf("the second end of a run: got %w, want it fenced", err)
		}
		return nil
	})
	for _, p := range list {
		w.ended(p.run, chat.OutcomeStopped)
		equal(w, "state", w.run(p.run).State, store.RunStopping)
		w.ok(w.st.EndStopping(w.ctx, p.claim, p.run))
	}
}
