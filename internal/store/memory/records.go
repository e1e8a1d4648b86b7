package memory

import (
	"context"
	"slices"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
)

var _ channel.Records = (*Store)(nil)

// records are what channels keep beside messages.
type records struct {
	open    []channel.Pairing // oldest first
	grants  []channel.Grant   // oldest first
	groups  map[groupKey]group
	buttons map[string]*buttonSet // by button id
}

type groupKey struct {
	channel string
	chat    int64
}

type group struct {
	activation string
	from       int64
}

type buttonSet struct {
	channel.ButtonSet
	usedBy  int64 // the press of the one button that is left; 0 = open
	expires time.Time
}

func newRecords() records {
	return records{groups: map[groupKey]group{}, buttons: map[string]*buttonSet{}}
}

// Paired reports whether a peer was approved.
func (s *Store) Paired(ctx context.Context, p channel.Peer) (yes bool, err error) {
	err = s.do(ctx, "Paired", func(time.Time) error {
		yes = slices.ContainsFunc(s.records.grants, func(g channel.Grant) bool { return g.Peer == p })
		return nil
	})
	return yes, err
}

// CreatePairing opens a request under a fresh code.
func (s *Store) CreatePairing(ctx context.Context, p channel.Peer, name string) (made channel.Pairing, err error) {
	err = s.do(ctx, "CreatePairing", func(now time.Time) error {
		s.records.expire(now)
		inBot, inChat := 0, 0
		for _, o := range s.records.open {
			if o.Channel == p.Channel {
				inBot++
				if o.ChatID == p.ChatID {
					inChat++
				}
			}
		}
		switch {
		case inChat >= channel.MaxPairingsPerChat:
			return channel.ErrPairingChatFull
		case inBot >= channel.MaxPairingsPerBot:
			return channel.ErrPairingBotFull
		}
		made = channel.Pairing{
			Peer: p, ID: newID(), Code: channel.NewPairingCode(), Name: name,
			CreatedAt: now, ExpiresAt: now.Add(channel.PairingLife),
		}
		s.records.open = append(s.records.open, made)
		return nil
	})
	return made, err
}

// expire drops the requests and buttons that have expired.
func (r *records) expire(now time.Time) {
	r.open = slices.DeleteFunc(r.open, func(o channel.Pairing) bool { return !now.Before(o.ExpiresAt) })
	for id, b := range r.buttons {
		if !now.Before(b.expires) {
			delete(r.buttons, id)
		}
	}
}

// OpenPairings lists the open requests.
func (s *Store) OpenPairings(ctx context.Context, of string) (list []channel.Pairing, err error) {
	err = s.do(ctx, "OpenPairings", func(now time.Time) error {
		s.records.expire(now)
		for _, o := range s.records.open {
			if of == "" || o.Channel == of {
				list = append(list, o)
			}
		}
		return nil
	})
	return list, err
}

// take removes an open request.
func (r *records) take(now time.Time, ref channel.PairingRef) (channel.Pairing, error) {
	r.expire(now)
	code := channel.CleanPairingCode(ref.Code)
	i := slices.IndexFunc(r.open, func(o channel.Pairing) bool {
		if ref.ID != "" {
			return o.ID == ref.ID
		}
		return o.Code == code
	})
	if i < 0 {
		return channel.Pairing{}, channel.ErrPairingUnknown
	}
	o := r.open[i]
	r.open = slices.Delete(r.open, i, i+1)
	return o, nil
}

// ApprovePairing lets a peer in.
func (s *Store) ApprovePairing(ctx context.Context, ref channel.PairingRef, by chat.ChangedBy) (p channel.Pairing, err error) {
	err = s.do(ctx, "ApprovePairing", func(now time.Time) error {
		if p, err = s.records.take(now, ref); err != nil {
			return err
		}
		s.records.open = slices.DeleteFunc(s.records.open, func(o channel.Pairing) bool { return o.Peer == p.Peer })
		s.records.grants = slices.DeleteFunc(s.records.grants, func(g channel.Grant) bool { return g.Peer == p.Peer })
		g := channel.Grant{Peer: p.Peer, Name: p.Name, ApprovedBy: by.Who, ApprovedAt: now}
		s.records.grants = append(s.records.grants, g)
		s.crons.write(pairChange(channel.VerbPairApprove, p.Peer, by).Between(p.State(), g.State()), now)
		return nil
	})
	return p, err
}

// pairChange is the row of the log about a change of a peer's right.
func pairChange(verb string, p channel.Peer, by chat.ChangedBy) *cron.Audit {
	return &cron.Audit{Who: by.Who, Verb: verb, Object: p.String(), Peer: by.Peer, RequestID: by.RequestID}
}

// DismissPairing ends a request.
func (s *Store) DismissPairing(ctx context.Context, ref channel.PairingRef, by chat.ChangedBy) (p channel.Pairing, err error) {
	err = s.do(ctx, "DismissPairing", func(now time.Time) error {
		if p, err = s.records.take(now, ref); err == nil {
			s.crons.write(pairChange(channel.VerbPairDismiss, p.Peer, by).Between(p.State(), ""), now)
		}
		return err
	})
	return p, err
}

// Grants lists who was approved.
func (s *Store) Grants(ctx context.Context, of string) (list []channel.Grant, err error) {
	err = s.do(ctx, "Grants", func(time.Time) error {
		for _, g := range s.records.grants {
			if of == "" || g.Channel == of {
				list = append(list, g)
			}
		}
		return nil
	})
	return list, err
}

// RevokePairing takes a right away.
func (s *Store) RevokePairing(ctx context.Context, p channel.Peer, by chat.ChangedBy) (had bool, err error) {
	err = s.do(ctx, "RevokePairing", func(now time.Time) error {
		i := slices.IndexFunc(s.records.grants, func(g channel.Grant) bool { return g.Peer == p })
		if had = i >= 0; had {
			s.crons.write(pairChange(channel.VerbPairRevoke, p, by).Between(s.records.grants[i].State(), ""), now)
			s.records.grants = slices.Delete(s.records.grants, i, i+1)
		}
		return nil
	})
	return had, err
}

// GroupActivation is what was chosen for a group.
func (s *Store) GroupActivation(ctx context.Context, of string, chatID int64) (activation string, err error) {
	err = s.do(ctx, "GroupActivation", func(time.Time) error {
		activation = s.records.groups[groupKey{of, chatID}].activation
		return nil
	})
	return activation, err
}

// SetGroupActivation keeps what was chosen for a group.
func (s *Store) SetGroupActivation(ctx context.Context, of string, chatID int64, activation string) error {
	return s.do(ctx, "SetGroupActivation", func(time.Time) error {
		key := groupKey{of, chatID}
		s.records.groups[key] = group{activation: activation, from: s.records.groups[key].from}
		return nil
	})
}

// GroupBefore is the number that a group had before.
func (s *Store) GroupBefore(ctx context.Context, of string, chatID int64) (from int64, err error) {
	err = s.do(ctx, "GroupBefore", func(time.Time) error {
		from = s.records.groups[groupKey{of, chatID}].from
		return nil
	})
	return from, err
}

// MoveGroup keeps the new number of a group.
func (s *Store) MoveGroup(ctx context.Context, of string, from, to int64) error {
	return s.do(ctx, "MoveGroup", func(time.Time) error {
		moved := s.records.groups[groupKey{of, to}]
		if moved.activation == "" {
			moved.activation = s.records.groups[groupKey{of, from}].activation
		}
		moved.from = from
		s.records.groups[groupKey{of, to}] = moved
		return nil
	})
}

// PutButtons keeps the buttons of one message.
func (s *Store) PutButtons(ctx context.Context, set channel.ButtonSet) error {
	return s.do(ctx, "PutButtons", func(now time.Time) error {
		s.records.expire(now)
		open := len(set.Texts)
		for _, b := range s.records.buttons {
			if b.Channel == set.Channel {
				open++
			}
		}
		if open > channel.MaxButtons {
			return channel.ErrButtonsFull
		}
		kept := &buttonSet{ButtonSet: set, expires: now.Add(channel.ButtonLife)}
		for id := range set.Texts {
			s.records.buttons[id] = kept
		}
		return nil
	})
}

// TakeButton reads a button, marks it as used and removes the others of its set.
func (s *Store) TakeButton(ctx context.Context, id string, by channel.Peer, press int64) (text string, err error) {
	err = s.do(ctx, "TakeButton", func(now time.Time) error {
		s.records.expire(now)
		set := s.records.buttons[id]
		if set == nil {
			return channel.ErrButtonUnknown
		}
		again, err := channel.CheckPress(set.Peer, by, set.usedBy, press)
		if err != nil {
			return err
		}
		text = set.Texts[id]
		if again {
			return nil
		}
		set.usedBy = press
		for other := range set.Texts {
			if other != id {
				delete(s.records.buttons, other)
			}
		}
		return nil
	})
	return text, err
}
