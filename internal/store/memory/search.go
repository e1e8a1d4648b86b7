package memory

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// SearchTranscripts finds entries of transcripts, see store.Search. There is no index: every text is read.
func (s *Store) SearchTranscripts(ctx context.Context, q store.SearchQuery) (out store.SearchResult, err error) {
	err = s.do(ctx, "SearchTranscripts", func(time.Time) error {
		var hits []store.Hit
		for key, se := range s.sessions {
			if !searched(se, q) {
				continue
			}
			hits = append(hits, found(se, se.SessionID, se.transcript, q)...)
			for _, a := range s.archive[key] {
				if !a.kept {
					hits = append(hits, found(se, a.id, a.entries, q)...)
				}
			}
		}
		out = q.Cut(hits)
		return nil
	})
	return out, err
}

// searched reports whether the query is about a session.
func searched(se *session, q store.SearchQuery) bool {
	return se.Principal != cron.SystemOwner && (q.Visible == "" || q.Visible == se.Principal) &&
		(q.Session.IsZero() || q.Session == se.Key) && (q.Agent == "" || q.Agent == se.Key.Agent)
}

func found(se *session, id string, entries []chat.TranscriptEntry, q store.SearchQuery) (hits []store.Hit) {
	for _, e := range entries {
		if e.Covers.To > 0 { // a summary: the rows that it stands for are found
			continue
		}
		if !q.Since.IsZero() && e.At.Before(q.Since) || !q.Until.IsZero() && e.At.After(q.Until) {
			continue
		}
		if hit, ok := q.Hit(store.Hit{Session: se.Key, SessionID: id, Principal: se.Principal, Entry: e}); ok {
			hits = append(hits, hit)
		}
	}
	return hits
}

// IndexTranscripts does nothing: there is no index.
func (s *Store) IndexTranscripts(ctx context.Context) (int, error) {
	return 0, s.do(ctx, "IndexTranscripts", func(time.Time) error { return nil })
}
