package memory

import (
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Accept makes a message durable for as long as the process lives, see store.Inbox.
func (s *Store) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	var out store.Accepted
	err := s.do(ctx, "Accept", func(now time.Time) (err error) {
		out, err = s.accept(p, now)
		return err
	})
	return out, err
}

func (s *Store) accept(p store.AcceptParams, now time.Time) (store.Accepted, error) {
	if p.Message.ID == "" || p.Message.Session.IsZero() {
		return store.Accepted{}, chat.Errorf(chat.CodeInvalid, "a message needs an id and a session")
	}
	if err := s.checkLease(p.Offset, now); err != nil {
		return store.Accepted{}, err
	}
	old, err := s.findDuplicate(p.Message)
	if err != nil {
		return store.Accepted{}, err
	}
	if old != nil {
		s.moveOffset(p.Offset)
		return s.duplicate(old, p.Node), nil
	}
	if se := s.sessions[p.Message.Session]; p.Own && se != nil && se.Principal != p.Message.Principal {
		return store.Accepted{}, chat.ErrSessionNotFound
	}
	if err := s.checkRoom(p); err != nil {
		return store.Accepted{}, err
	}
	s.moveOffset(p.Offset)
	return s.insert(p, now), nil
}

// findDuplicate finds the message with the same key, or returns chat.ErrKeyReused when the key names another one.
func (s *Store) findDuplicate(m chat.Message) (*message, error) {
	old := s.messages[m.ID]
	if m.Dedupe != "" && s.dedupe[m.Dedupe] != nil {
		old = s.dedupe[m.Dedupe]
	}
	switch {
	case old == nil:
		return nil, nil //nolint:nilnil // not known is no error and has no message
	case old.dedupe != m.Dedupe, old.hash != "" && m.ParamsHash != "" && old.hash != m.ParamsHash:
		return nil, chat.ErrKeyReused
	default:
		return old, nil
	}
}

func (s *Store) duplicate(old *message, node string) store.Accepted {
	out := store.Accepted{Seq: old.Seq, AcceptedAt: old.AcceptedAt, Duplicate: true, Existing: old.row()}
	if se, ok := s.sessions[old.Session]; ok {
		describe(&out, se, node)
	}
	return out
}

func (s *Store) checkRoom(p store.AcceptParams) error {
	se := s.sessions[p.Message.Session]
	if se != nil && !p.Unqueued && p.Drop == chat.DropNew && !p.Interrupts(se.Mode) && len(se.tooMany(p)) > 0 {
		return chat.ErrQueueFull
	}
	return nil
}

func (s *Store) insert(p store.AcceptParams, now time.Time) store.Accepted {
	se, created := s.session(p.Message.Session, p.Message.Principal, now)
	out := store.Accepted{AcceptedAt: now, Created: created, Behind: se.Waiting}
	if !p.Unqueued {
		s.endExcess(se, p, &out, now)
		s.takeIdle(se, p, now)
		se.RunLimit = max(p.RunLimit, 1)
	}
	se.LastSeq++
	out.Seq = se.LastSeq
	se.LastMessageAt, se.Lane = now, p.Message.Lane
	s.add(se, p, now)
	s.settle(se, now)
	describe(&out, se, p.Node)
	return out
}

// takeIdle makes the accepting node the owner of a session that no live node owns. A session with older unfinished messages is left to the
// sweep: only the sweep moves all of them to the new owner, with the runs that had begun.
func (s *Store) takeIdle(se *session, p store.AcceptParams, now time.Time) {
	if !p.Take || s.alive(se.Owner, now) || !s.mayOwn(p.Node, now) || len(se.unfinished) > 0 {
		return
	}
	s.endStopping(now)
	se.Owner = p.Node
	se.Epoch++
}

func (s *Store) add(se *session, p store.AcceptParams, now time.Time) {
	in := p.Message
	m := &message{
		Waiting: store.Waiting{
			Session: in.Session, Seq: se.LastSeq, MessageID: in.ID, State: store.StateWaiting,
			Lane: in.Lane, Principal: in.Principal, Channel: in.Channel, ExternalID: in.ExternalID,
			Content: cloneContent(in.Content), AcceptedAt: now,
		},
		dedupe: in.Dedupe, hash: in.ParamsHash, node: p.Node,
	}
	s.messages[in.ID] = m
	if in.Dedupe != "" {
		s.dedupe[in.Dedupe] = m
	}
	if p.Unqueued {
		m.State, m.Outcome, m.Reason, m.endedAt = store.StateDone, chat.OutcomeAnswered, store.ReasonCommand, now
		return
	}
	if p.Joins {
		m.State = store.StateHeld
	}
	if p.Hold > 0 {
		if until := now.Add(p.Hold); until.After(se.debounceUntil) {
			se.debounceUntil = until
		}
	}
	se.Waiting++
	se.unfinished = append(se.unfinished, m)
}

// endExcess ends waiting messages when there is no place for the new one: the oldest ones, or all of them when it interrupts.
func (s *Store) endExcess(se *session, p store.AcceptParams, out *store.Accepted, now time.Time) {
	victims := se.tooMany(p)
	if len(victims) == 0 {
		return
	}
	if p.Interrupts(se.Mode) {
		all := slices.DeleteFunc(se.queued(), func(m *message) bool { return slices.Contains(p.Starting, m.Seq) })
		for _, m := range all {
			s.end(se, m, chat.OutcomeSuperseded, store.ReasonSuperseded, now)
		}
		out.Superseded = rows(all)
		return
	}
	for _, m := range victims {
		s.end(se, m, chat.OutcomeDropped, string(chat.FailQueueFull), now)
	}
	s.notify(se.Key, p.DropNotice, victims, now)
	out.Dropped = rows(victims)
}

// tooMany are the messages that the new one displaces, oldest first. Only messages that wait for a turn of their own count: neither those
// that join another message nor those that have a slot already.
func (se *session) tooMany(p store.AcceptParams) []*message {
	if p.Cap <= 0 || p.Joins {
		return nil
	}
	list := slices.DeleteFunc(se.queued(), func(m *message) bool {
		return m.State == store.StateHeld || slices.Contains(p.Starting, m.Seq)
	})
	return list[:max(0, len(list)+1-p.Cap)]
}

func describe(out *store.Accepted, se *session, node string) {
	out.Owner, out.Epoch, out.Mine = se.Owner, se.Epoch, se.Owner != "" && se.Owner == node
	out.SessionID, out.Principal, out.Mode = se.SessionID, se.Principal, se.Mode
}
