package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Place finds an accepted message by its id, and where it stands in its session; chat.ErrNotFound.
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

// HistoryUntil is the conversation of a session up to the end of a run: the newest entries whose texts have at most limit bytes together, oldest first,
// without chat commands, and without what ties them to their transcript. chat.ErrNotFound: the current transcript does not have the run.
func (d *Dispatcher) HistoryUntil(ctx context.Context, key chat.SessionKey, runID string, limit int) ([]chat.TranscriptEntry, error) {
	own, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: key, RunID: runID, Limit: 1, MaxChars: 1})
	if err != nil {
		return nil, fmt.Errorf("looking for a run in its transcript: %w", err)
	}
	if len(own.Entries) == 0 {
		return nil, chat.ErrNotFound
	}
	last := own.Entries[0].Seq
	var out []chat.TranscriptEntry
	for offset, more := 0, true; more; {
		tr, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: key, SessionID: own.SessionID, Limit: 200, Offset: offset, MaxBytes: historyPage})
		if err != nil {
			return nil, fmt.Errorf("reading the history: %w", err)
		}
		for _, e := range slices.Backward(tr.Entries) {
			if e.Seq > last || e.Command {
				continue
			}
			if limit -= len(e.Text); limit < 0 {
				more = false
				break
			}
			out = append(out, chat.TranscriptEntry{Role: e.Role, Text: e.Text, Sender: e.Sender, Tokens: e.Tokens, StopReason: e.StopReason})
		}
		offset += len(tr.Entries)
		more = more && len(tr.Entries) > 0 && offset < tr.Total
	}
	slices.Reverse(out)
	return out, nil
}
