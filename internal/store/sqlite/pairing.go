package sqlite

import (
	"context"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

var _ channel.Records = (*Store)(nil)

// Paired reports whether a peer was approved.
func (s *Store) Paired(ctx context.Context, p channel.Peer) (yes bool, err error) {
	err = s.view(ctx, "ask for a pairing", func(ctx context.Context, q querier) error {
		return q.one(ctx, `SELECT EXISTS (SELECT 1 FROM pairing_grants WHERE channel = ? AND user_id = ? AND chat_id = ?)`,
			p.Channel, p.UserID, p.ChatID).Scan(&yes)
	})
	return yes && err == nil, err
}

// CreatePairing opens a request under a fresh code.
func (s *Store) CreatePairing(ctx context.Context, p channel.Peer, name string) (channel.Pairing, error) {
	return result(ctx, s.write, ordinary("open a pairing"), func(ctx context.Context, t *tx) (channel.Pairing, error) {
		return t.createPairing(ctx, p, name)
	})
}

func (t *tx) createPairing(ctx context.Context, p channel.Peer, name string) (made channel.Pairing, err error) {
	if _, err := t.exec(ctx, `DELETE FROM pairings WHERE expires_at <= ?`, t.now); err != nil {
		return made, err
	}
	var inChat, inBot int
	err = t.one(ctx, `SELECT coalesce(sum(chat_id = ?), 0), count(*) FROM pairings WHERE channel = ?`, p.ChatID, p.Channel).Scan(&inChat, &inBot)
	switch {
	case err != nil:
		return made, err
	case inChat >= channel.MaxPairingsPerChat:
		return made, channel.ErrPairingChatFull
	case inBot >= channel.MaxPairingsPerBot:
		return made, channel.ErrPairingBotFull
	}
	made = channel.Pairing{
		Peer: p, ID: newID(), Code: channel.NewPairingCode(), Name: name,
		CreatedAt: instant(t.now), ExpiresAt: instant(t.now).Add(channel.PairingLife),
	}
	_, err = t.exec(ctx, `INSERT INTO pairings (code, id, channel, user_id, chat_id, name, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		made.Code, made.ID, p.Channel, p.UserID, p.ChatID, name, t.now, millis(made.ExpiresAt))
	return made, err
}

const selectPairings = `SELECT code, id, channel, user_id, chat_id, name, created_at, expires_at FROM pairings `

func scanPairing(row scanner) (p channel.Pairing, err error) {
	err = row.Scan(&p.Code, &p.ID, &p.Channel, &p.UserID, &p.ChatID, &p.Name, timeColumn{&p.CreatedAt}, timeColumn{&p.ExpiresAt})
	return p, err
}

// OpenPairings lists the open requests.
func (s *Store) OpenPairings(ctx context.Context, of string) (list []channel.Pairing, err error) {
	err = s.view(ctx, "list pairings", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, selectPairings+`WHERE expires_at > ? AND (? = '' OR channel = ?) ORDER BY created_at, id`, s.now().UnixMilli(), of, of)
		list, err = collect(rows, err, scanPairing)
		return err
	})
	return list, err
}

// ApprovePairing lets a peer in.
func (s *Store) ApprovePairing(ctx context.Context, ref channel.PairingRef, by store.ChangedBy) (channel.Pairing, error) {
	return result(ctx, s.write, ordinary("approve a pairing"), func(ctx context.Context, t *tx) (channel.Pairing, error) {
		p, err := t.takePairing(ctx, ref)
		if err != nil {
			return p, err
		}
		if _, err := t.exec(ctx, `DELETE FROM pairings WHERE channel = ? AND user_id = ? AND chat_id = ?`, p.Channel, p.UserID, p.ChatID); err != nil {
			return p, err
		}
		_, err = t.exec(ctx, `INSERT INTO pairing_grants (channel, user_id, chat_id, name, approved_by, approved_at) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (channel, user_id, chat_id) DO UPDATE SET name = excluded.name, approved_by = excluded.approved_by, approved_at = excluded.approved_at`,
			p.Channel, p.UserID, p.ChatID, p.Name, by.Who, t.now)
		if err != nil {
			return p, err
		}
		return p, t.log(ctx, by, pairingChange(channel.VerbPairApprove, p.Peer, p.State(), channel.Grant{Name: p.Name, ApprovedBy: by.Who}.State()))
	})
}

// takePairing reads and removes an open request.
func (t *tx) takePairing(ctx context.Context, ref channel.PairingRef) (channel.Pairing, error) {
	where, key := `WHERE code = ? AND expires_at > ?`, channel.CleanPairingCode(ref.Code)
	if ref.ID != "" {
		where, key = `WHERE id = ? AND expires_at > ?`, ref.ID
	}
	p, err := scanPairing(t.one(ctx, selectPairings+where, key, t.now))
	switch {
	case none(err):
		return p, channel.ErrPairingUnknown
	case err != nil:
		return p, err
	}
	_, err = t.exec(ctx, `DELETE FROM pairings WHERE code = ?`, p.Code)
	return p, err
}

// DismissPairing ends a request.
func (s *Store) DismissPairing(ctx context.Context, ref channel.PairingRef, by store.ChangedBy) (channel.Pairing, error) {
	return result(ctx, s.write, ordinary("dismiss a pairing"), func(ctx context.Context, t *tx) (channel.Pairing, error) {
		p, err := t.takePairing(ctx, ref)
		if err != nil {
			return p, err
		}
		return p, t.log(ctx, by, pairingChange(channel.VerbPairDismiss, p.Peer, p.State(), ""))
	})
}

func pairingChange(verb string, p channel.Peer, before, after string) logged {
	return logged{verb, p.String(), chat.StateHash(before), chat.StateHash(after)}
}

// Grants lists who was approved.
func (s *Store) Grants(ctx context.Context, of string) (list []channel.Grant, err error) {
	err = s.view(ctx, "list who may talk", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, `SELECT channel, user_id, chat_id, name, approved_by, approved_at FROM pairing_grants
			WHERE (? = '' OR channel = ?) ORDER BY approved_at, channel, user_id`, of, of)
		list, err = collect(rows, err, func(row scanner) (g channel.Grant, err error) {
			err = row.Scan(&g.Channel, &g.UserID, &g.ChatID, &g.Name, &g.ApprovedBy, timeColumn{&g.ApprovedAt})
			return g, err
		})
		return err
	})
	return list, err
}

// RevokePairing takes a right away.
func (s *Store) RevokePairing(ctx context.Context, p channel.Peer, by store.ChangedBy) (bool, error) {
	return result(ctx, s.write, ordinary("revoke a pairing"), func(ctx context.Context, t *tx) (bool, error) {
		var g channel.Grant
		err := t.one(ctx, `SELECT name, approved_by FROM pairing_grants WHERE channel = ? AND user_id = ? AND chat_id = ?`,
			p.Channel, p.UserID, p.ChatID).Scan(&g.Name, &g.ApprovedBy)
		switch {
		case none(err):
			return false, nil
		case err != nil:
			return false, err
		}
		if _, err := t.exec(ctx, `DELETE FROM pairing_grants WHERE channel = ? AND user_id = ? AND chat_id = ?`, p.Channel, p.UserID, p.ChatID); err != nil {
			return false, err
		}
		return true, t.log(ctx, by, pairingChange(channel.VerbPairRevoke, p, g.State(), ""))
	})
}
