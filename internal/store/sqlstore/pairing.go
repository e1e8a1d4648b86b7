package sqlstore

import (
	"context"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// Access stores the rights to use the gateway: pairings of channels, and named tokens. It also stores the zone that a person chose.
type Access struct{ db Engine }

var _ store.Credentials = Access{}

const (
	pairingColumns = `code, id, channel, user_id, chat_id, name, created_at, expires_at`
	peerCondition  = `channel = $1 AND user_id = $2 AND chat_id = $3`
)

func scanPairing(r Row) (p channel.Pairing, err error) {
	err = r.Scan(&p.Code, &p.ID, &p.Channel, &p.UserID, &p.ChatID, &p.Name, instant{&p.CreatedAt}, instant{&p.ExpiresAt})
	return p, err
}

// Paired reports whether a peer was approved.
func (s Access) Paired(ctx context.Context, p channel.Peer) (bool, error) {
	return value[bool](ctx, s.db, query{"read a pairing", `SELECT EXISTS (SELECT 1 FROM pairing_grants WHERE ` + peerCondition + `)`, []any{p.Channel, p.UserID, p.ChatID}})
}

// CreatePairing creates a request with a new code.
func (s Access) CreatePairing(ctx context.Context, p channel.Peer, name string) (channel.Pairing, error) {
	id, err := newID()
	if err != nil {
		return channel.Pairing{}, err
	}
	code := channel.NewPairingCode()
	return result(ctx, s.db.Update, "open a pairing", func(ctx context.Context, tx Tx) (made channel.Pairing, err error) {
		if err := lockName(ctx, tx, "pairings", p.Channel); err != nil {
			return made, err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM pairings WHERE expires_at <= {now}`); err != nil {
			return made, err
		}
		var inChat, inBot int
		_, err = one(ctx, tx, `SELECT count(*) FILTER (WHERE chat_id = $2), count(*) FROM pairings WHERE channel = $1`, into(&inChat, &inBot), p.Channel, p.ChatID)
		switch {
		case err != nil:
			return made, err
		case inChat >= channel.MaxPairingsPerChat:
			return made, channel.ErrPairingChatFull
		case inBot >= channel.MaxPairingsPerBot:
			return made, channel.ErrPairingBotFull
		}
		_, err = one(ctx, tx, `INSERT INTO pairings (`+pairingColumns+`) VALUES ($1, $2, $3, $4, $5, $6, {now}, {now} + $7) RETURNING `+pairingColumns,
			func(r Row) (err error) { made, err = scanPairing(r); return err },
			code, id, p.Channel, p.UserID, p.ChatID, name, channel.PairingLife.Milliseconds())
		return made, err
	})
}

// OpenPairings lists the open requests.
func (s Access) OpenPairings(ctx context.Context, of string) ([]channel.Pairing, error) {
	return list(ctx, s.db, query{"list pairings", `SELECT ` + pairingColumns + ` FROM pairings WHERE expires_at > {now} AND ($1 = '' OR channel = $1)
		ORDER BY created_at, id`, []any{of}}, scanPairing)
}

// takePairing removes an open request and returns it.
func takePairing(ctx context.Context, tx Tx, ref channel.PairingRef) (p channel.Pairing, err error) {
	found, err := one(ctx, tx, `DELETE FROM pairings WHERE expires_at > {now} AND CASE WHEN $1 <> '' THEN id = $1 ELSE code = $2 END RETURNING `+pairingColumns,
		func(r Row) (err error) { p, err = scanPairing(r); return err }, ref.ID, channel.CleanPairingCode(ref.Code))
	if err == nil && !found {
		err = channel.ErrPairingUnknown
	}
	return p, err
}

// ApprovePairing approves a peer.
func (s Access) ApprovePairing(ctx context.Context, ref channel.PairingRef, by store.ChangedBy) (channel.Pairing, error) {
	return result(ctx, s.db.Update, "approve a pairing", func(ctx context.Context, tx Tx) (p channel.Pairing, err error) {
		if p, err = takePairing(ctx, tx, ref); err != nil {
			return p, err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM pairings WHERE `+peerCondition, p.Channel, p.UserID, p.ChatID); err != nil {
			return p, err
		}
		_, err = tx.Exec(ctx, `INSERT INTO pairing_grants (channel, user_id, chat_id, name, approved_by, approved_at) VALUES ($1, $2, $3, $4, $5, {now})
			ON CONFLICT (channel, user_id, chat_id) DO UPDATE SET name = excluded.name, approved_by = excluded.approved_by, approved_at = excluded.approved_at`,
			p.Channel, p.UserID, p.ChatID, p.Name, by.Who)
		if err != nil {
			return p, err
		}
		return p, logChange(ctx, tx, by, pairingChange(channel.VerbPairApprove, p.Peer, p.State(), channel.Grant{Name: p.Name, ApprovedBy: by.Who}.State()))
	})
}

// DismissPairing ends a request.
func (s Access) DismissPairing(ctx context.Context, ref channel.PairingRef, by store.ChangedBy) (channel.Pairing, error) {
	return result(ctx, s.db.Update, "dismiss a pairing", func(ctx context.Context, tx Tx) (p channel.Pairing, err error) {
		if p, err = takePairing(ctx, tx, ref); err != nil {
			return p, err
		}
		return p, logChange(ctx, tx, by, pairingChange(channel.VerbPairDismiss, p.Peer, p.State(), ""))
	})
}

func pairingChange(verb string, p channel.Peer, before, after string) Change {
	return Change{verb, p.String(), chat.StateHash(before), chat.StateHash(after)}
}

// Grants lists the approved peers.
func (s Access) Grants(ctx context.Context, of string) ([]channel.Grant, error) {
	return list(ctx, s.db, query{"list who may talk", `SELECT channel, user_id, chat_id, name, approved_by, approved_at FROM pairing_grants
		WHERE $1 = '' OR channel = $1 ORDER BY approved_at, channel, user_id`, []any{of}}, func(r Row) (g channel.Grant, err error) {
		err = r.Scan(&g.Channel, &g.UserID, &g.ChatID, &g.Name, &g.ApprovedBy, instant{&g.ApprovedAt})
		return g, err
	})
}

// RevokePairing removes an approval.
func (s Access) RevokePairing(ctx context.Context, p channel.Peer, by store.ChangedBy) (bool, error) {
	return result(ctx, s.db.Update, "revoke a pairing", func(ctx context.Context, tx Tx) (had bool, err error) {
		var g channel.Grant
		had, err = one(ctx, tx, `DELETE FROM pairing_grants WHERE `+peerCondition+` RETURNING name, approved_by`, into(&g.Name, &g.ApprovedBy), p.Channel, p.UserID, p.ChatID)
		if err != nil || !had {
			return had, err
		}
		return true, logChange(ctx, tx, by, pairingChange(channel.VerbPairRevoke, p, g.State(), ""))
	})
}
