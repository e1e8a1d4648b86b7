package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"laneway/internal/chat"
)

// CommitUnknown reports whether an error leaves open whether the operation was committed. Every operation may be repeated as a whole.
func CommitUnknown(err error) bool {
	return errors.Is(err, chat.ErrStoreUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// EndedRun is what a store reads about a run that [Inbox].Finish finds ended.
type EndedRun struct {
	Run Run
	// Owner and Epoch are the current ones of the session; zero when the session was deleted.
	Owner string
	Epoch int64
	// Entries are the newest transcript entries of the run, oldest first, as many as the call has in FinishParams.Transcript.
	Entries []chat.TranscriptEntry
	// Merged are the messages of the run that ended merged.
	Merged []Waiting
}

// Repeats returns the result of the first call when p repeats the call that ended the run: the same claim, run, state, cause and transcript. ok is false when
// another call ended it. now is the store's clock.
func (p *FinishParams) Repeats(e EndedRun, now time.Time) (out Finished, ok bool) {
	r := e.Run
	same := r.Session == p.Session && r.Owner == p.Node && r.Epoch == p.Epoch && r.Cause == p.Cause && p.ended(r.State) &&
		slices.EqualFunc(e.Entries, p.Transcript, func(a, b chat.TranscriptEntry) bool { return a.Role == b.Role && a.Text == b.Text })
	if !same || p.Requeue && e.Epoch != p.Epoch { // a takeover interrupts a run as well
		return Finished{}, false
	}
	out = Finished{EndedAt: r.EndedAt, Released: e.Owner == "" || e.Epoch != p.Epoch, Entries: e.Entries, Merged: e.Merged}
	if out.EndedAt.IsZero() {
		out.EndedAt = now
	}
	return out, true
}

// ended reports whether p leads to this state of the run. A run that was finished with StillRunning is stopping until EndStopping.
func (p *FinishParams) ended(state string) bool {
	if p.StillRunning {
		return state == RunStopping || state == RunStopped
	}
	return state == p.State
}
