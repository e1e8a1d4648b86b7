package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Place finds an accepted message by its id, and its position in its session; chat.ErrNotFound.
func (d *Dispatcher) Place(ctx context.Context, messageID string) (chat.Place, error) {
	m, err := d.store.MessageByID(ctx, messageID)
	if err != nil {
		return chat.Place{}, fmt.Errorf("looking for a message: %w", err)
	}
	s, err := d.store.Session(ctx, m.Session, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return chat.Place{}, chat.ErrNotFound
	}
	if err != nil {
		return chat.Place{}, fmt.Errorf("looking for the session of a message: %w", err)
	}
	return chat.Place{
		Session: m.Session, RunID: cmp.Or(m.RunID, m.MessageID), Newest: s.LastSeq == m.Seq, Ended: m.State == store.StateDone,
	}, nil
}

// BranchAt returns the end of a run in the current transcript of its session, from which a new session may branch. chat.ErrNotFound: the
// transcript does not have the run. [chat.CodeLimit]: the conversation has reached the limit of branches.
func (d *Dispatcher) BranchAt(ctx context.Context, key chat.SessionKey, runID string) (chat.Branch, error) {
	own, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: key, RunID: runID, Limit: 1, MaxChars: 1})
	switch {
	case err != nil:
		return chat.Branch{}, fmt.Errorf("looking for a run in its transcript: %w", err)
	case len(own.Entries) == 0:
		return chat.Branch{}, chat.ErrNotFound
	case own.Branches >= chat.MaxBranches:
		return chat.Branch{}, chat.Errorf(chat.CodeLimit, "this conversation has branched %d times, one branch off the other; begin a new one", chat.MaxBranches)
	}
	return chat.Branch{Session: key, SessionID: own.SessionID, Seq: own.Entries[0].Seq}, nil
}
