package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// runPart is what makes the outgoing messages of a run unique.
type runPart struct {
	run string
	n   int
}

// place is a chat, in which one message at a time is under way.
type place struct{ channel, chat string }

// outRow is one row of outbox. Attempt is how often it was taken.
type outRow struct {
	store.Outgoing

	state, node, lastError, providerID string
	nextAt, doneAt                     time.Time
}

func (r *outRow) place() place { return place{channel: r.Target.Channel, chat: r.Target.ChatID} }

// send adds a row unless it exists, and returns its id.
func (s *Store) send(o store.Outgoing, now time.Time) string {
	part := runPart{run: o.RunID, n: o.N}
	if have, ok := s.byRun[part]; ok && o.RunID != "" {
		return have.ID
	}
	if have, ok := s.outbox[o.ID]; ok {
		return have.ID
	}
	o.ID = cmp.Or(o.ID, newID())
	o.Count = max(o.Count, 1)
	o.Attempt, o.MaybeSent, o.Expired, o.CreatedAt = 0, false, false, now
	if !o.ExpiresAt.IsZero() {
		o.ExpiresAt = o.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	row := &outRow{Outgoing: o, state: store.OutPending, nextAt: now.Add(o.Delay)}
	s.outbox[o.ID] = row
	if o.RunID != "" {
		s.byRun[part] = row
	}
	s.open = append(s.open, row)
	return o.ID
}

// notify adds to the notice about the messages: a new row, or a higher count on a row that no attempt was made to send.
func (s *Store) notify(key chat.SessionKey, notice *store.Outgoing, about []*message, now time.Time) {
	if notice == nil || len(about) == 0 {
		return
	}
	var id string
	if row := s.joinable(key, notice); row != nil {
		row.Count += len(about)
		id = row.ID
	} else {
		o := *notice
		o.Count = len(about)
		id = s.send(o, now)
	}
	for _, m := range about {
		m.notice = id
	}
}

func (s *Store) joinable(key chat.SessionKey, notice *store.Outgoing) *outRow {
	if notice.Coalesce == "" {
		return nil
	}
	for _, row := range s.open {
		sameWord := row.Coalesce == notice.Coalesce && (row.Session == notice.Session || row.Session == key)
		if sameWord && row.state == store.OutPending && row.Attempt == 0 {
			return row
		}
	}
	return nil
}

// Enqueue adds outgoing messages outside of a run, see store.Outbox.
func (s *Store) Enqueue(ctx context.Context, rows []store.Outgoing) error {
	return s.do(ctx, "Enqueue", func(now time.Time) error {
		for _, o := range rows {
			if row := s.joinable(o.Session, &o); row != nil {
				row.Count += max(o.Count, 1)
				continue
			}
			s.send(o, now)
		}
		return nil
	})
}

// ClaimOutgoing takes what is due, see store.Outbox. A dead node gets chat.ErrFenced.
func (s *Store) ClaimOutgoing(ctx context.Context, nodeID string, channels []string, limit int) ([]store.Outgoing, error) {
	var out []store.Outgoing
	err := s.do(ctx, "ClaimOutgoing", func(now time.Time) error {
		if !s.alive(nodeID, now) {
			return chat.ErrFenced
		}
		s.giveBack(now)
		taken := s.underWay()
		for _, row := range s.open {
			if len(out) == limit {
				break
			}
			if row.state != store.OutPending || !slices.Contains(channels, row.Target.Channel) {
				continue
			}
			if claimed := row.claim(nodeID, taken, now); claimed {
				s.delivered(row)
				out = append(out, row.Outgoing)
			}
		}
		s.forgetDone()
		return nil
	})
	return out, err
}

// giveBack makes the rows that dead nodes were sending due again. Whether they arrived is unknown.
func (s *Store) giveBack(now time.Time) {
	for _, row := range s.open {
		if row.state == store.OutSending && !s.alive(row.node, now) {
			row.state, row.node, row.nextAt, row.MaybeSent = store.OutPending, "", now, true
		}
	}
}

func (s *Store) underWay() map[place]bool {
	taken := map[place]bool{}
	for _, row := range s.open {
		if row.state == store.OutSending {
			taken[row.place()] = true
		}
	}
	return taken
}

// claim leases the row to a node, or ends it when it has expired; it reports whether the caller gets the row.
func (r *outRow) claim(nodeID string, taken map[place]bool, now time.Time) bool {
	if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now) {
		r.state, r.Expired, r.doneAt = store.OutExpired, true, now
		return true
	}
	if r.nextAt.After(now) || taken[r.place()] {
		taken[r.place()] = taken[r.place()] || r.Attempt > 0 // it is due again later, and the rows after it wait for that
		return false
	}
	taken[r.place()] = true
	r.state, r.node = store.OutSending, nodeID
	r.Attempt++
	return true
}

func (s *Store) forgetDone() {
	s.open = slices.DeleteFunc(s.open, func(r *outRow) bool {
		return r.state != store.OutPending && r.state != store.OutSending
	})
}

// leased finds a row that the node is sending.
func (s *Store) leased(nodeID, id string) (*outRow, error) {
	row, ok := s.outbox[id]
	if !ok || row.state != store.OutSending || row.node != nodeID {
		return nil, chat.ErrFenced
	}
	return row, nil
}

// Delivered stores the provider's id, which must not be empty.
func (s *Store) Delivered(ctx context.Context, nodeID, id, providerID string) error {
	return s.do(ctx, "Delivered", func(now time.Time) error {
		if providerID == "" {
			return chat.Errorf(chat.CodeInvalid, "a delivered message needs the provider's id")
		}
		row, err := s.leased(nodeID, id)
		if err != nil {
			return err
		}
		row.state, row.providerID, row.doneAt = store.OutDelivered, providerID, now
		s.delivered(row)
		s.forgetDone()
		return nil
	})
}

// RecordProgress stores what of a row has arrived.
func (s *Store) RecordProgress(ctx context.Context, nodeID, id, progress string) error {
	return s.do(ctx, "RecordProgress", func(time.Time) error {
		row, err := s.leased(nodeID, id)
		if err == nil {
			row.Progress = progress
		}
		return err
	})
}

// Undelivered gives the row back for a later attempt, or ends it.
func (s *Store) Undelivered(ctx context.Context, p store.UndeliveredParams) error {
	return s.do(ctx, "Undelivered", func(now time.Time) error {
		_, err := s.undelivered(p, now)
		return err
	})
}

func (s *Store) undelivered(p store.UndeliveredParams, now time.Time) (*outRow, error) {
	row, err := s.leased(p.Node, p.ID)
	if err != nil {
		return nil, err
	}
	row.lastError, row.node = p.Error, ""
	if p.Uncounted {
		row.Attempt = max(row.Attempt-1, 1)
	}
	row.state, row.nextAt, row.MaybeSent = store.OutPending, now.Add(p.RetryIn), row.MaybeSent || p.MaybeSent
	if p.Progress != "" {
		row.Progress = p.Progress
	}
	if p.Permanent {
		row.state, row.doneAt = p.State(), now
		s.delivered(row)
		s.forgetDone()
	}
	return row, nil
}

// AddressGone ends a row for good and pauses the delivery of its job, see store.Outbox.
func (s *Store) AddressGone(ctx context.Context, p store.GoneParams) (store.Gone, error) {
	var out store.Gone
	err := s.do(ctx, "AddressGone", func(now time.Time) error {
		row, err := s.undelivered(store.UndeliveredParams{Node: p.Node, ID: p.ID, Error: p.Error, Permanent: true}, now)
		if err != nil {
			return err
		}
		j := s.crons.jobs[p.JobID]
		if j == nil || j.Revision != p.Revision || j.State.DeliveryPause.Holds(row.Target) {
			return nil
		}
		j.State.DeliveryPause = cron.DeliveryPause{Since: now, Reason: p.Error, Channel: row.Target.Channel, ChatID: row.Target.ChatID}
		job := s.crons.view(j)
		out.Job = &job
		for _, o := range p.Outgoing {
			s.send(o, now)
		}
		return nil
	})
	return out, err
}

// OutboxCounts counts what is not yet delivered and what failed for good.
func (s *Store) OutboxCounts(ctx context.Context) (map[string]store.OutboxCount, error) {
	counts := map[string]store.OutboxCount{}
	err := s.do(ctx, "OutboxCounts", func(time.Time) error {
		for _, row := range s.outbox {
			c := counts[row.Target.Channel]
			switch row.state {
			case store.OutPending, store.OutSending:
				c.Waiting++
			case store.OutFailed:
				c.Failed++
			case store.OutMaybeSent:
				c.MaybeSent++
			default:
				continue
			}
			counts[row.Target.Channel] = c
		}
		return nil
	})
	return counts, err
}
