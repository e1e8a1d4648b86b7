package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

var _ channel.Records = (*Store)(nil)

const (
	pairingColumns = `code, id, channel, user_id, chat_id, name, created_at, expires_at`

	// countPairingsSQL runs after the lock of [Store.onlyOne]: two concurrent requests must not both get the last place.
	countPairingsSQL = `SELECT count(*) FILTER (WHERE chat_id = $2), count(*) FROM pairings WHERE channel = $1`

	insertPairingSQL = `INSERT INTO pairings (` + pairingColumns + `)
		SELECT $2, $3, $4, $5, $6, $7, now, now + $8 FROM (SELECT ` + nowSQL + ` AS now) t RETURNING ` + pairingColumns

	takePairingSQL = `DELETE FROM pairings WHERE expires_at > ` + nowSQL + ` AND CASE WHEN $2 <> '' THEN id = $2 ELSE code = $3 END
		RETURNING ` + pairingColumns

	grantSQL = `INSERT INTO pairing_grants (channel, user_id, chat_id, name, approved_by, approved_at) VALUES ($2, $3, $4, $5, $6, ` + nowSQL + `)
		ON CONFLICT (channel, user_id, chat_id) DO UPDATE SET name = excluded.name, approved_by = excluded.approved_by, approved_at = excluded.approved_at`
)

func scanPairing(row pgx.CollectableRow) (p channel.Pairing, err error) {
	var created, expires int64
	err = row.Scan(&p.Code, &p.ID, &p.Channel, &p.UserID, &p.ChatID, &p.Name, &created, &expires)
	p.CreatedAt, p.ExpiresAt = fromMillis(created), fromMillis(expires)
	return p, err
}

// Paired reports whether a peer was approved.
func (s *Store) Paired(ctx context.Context, p channel.Peer) (yes bool, err error) {
	err = s.do(ctx, "asking for a pairing", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pairing_grants WHERE channel = $1 AND user_id = $2 AND chat_id = $3)`,
			p.Channel, p.UserID, p.ChatID).Scan(&yes)
	})
	return yes && err == nil, err
}

// onlyOne lets one transaction at a time count and add for a channel; the lock ends with the transaction.
func onlyOne(ctx context.Context, tx pgx.Tx, what, of string) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1), hashtext($2))`, what, of)
	return err
}

// CreatePairing opens a request under a fresh code.
func (s *Store) CreatePairing(ctx context.Context, p channel.Peer, name string) (made channel.Pairing, err error) {
	id, err := newID()
	if err != nil {
		return made, err
	}
	code := channel.NewPairingCode()
	err = s.within(ctx, "opening a pairing", func(ctx context.Context, tx pgx.Tx) error {
		if err := onlyOne(ctx, tx, "pairings", p.Channel); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM pairings WHERE expires_at <= `+nowSQL, s.clock()); err != nil {
			return err
		}
		var inChat, inBot int
		if err := tx.QueryRow(ctx, countPairingsSQL, p.Channel, p.ChatID).Scan(&inChat, &inBot); err != nil {
			return err
		}
		switch {
		case inChat >= channel.MaxPairingsPerChat:
			return channel.ErrPairingChatFull
		case inBot >= channel.MaxPairingsPerBot:
			return channel.ErrPairingBotFull
		}
		rows, err := tx.Query(ctx, insertPairingSQL, s.clock(), code, id, p.Channel, p.UserID, p.ChatID, clean(name), channel.PairingLife.Milliseconds())
		if err != nil {
			return err
		}
		made, err = pgx.CollectExactlyOneRow(rows, scanPairing)
		return err
	})
	return made, err
}

// OpenPairings lists the open requests.
func (s *Store) OpenPairings(ctx context.Context, of string) (list []channel.Pairing, err error) {
	err = s.do(ctx, "listing pairings", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT `+pairingColumns+` FROM pairings WHERE expires_at > `+nowSQL+`
			AND ($2 = '' OR channel = $2) ORDER BY created_at, id`, s.clock(), of)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanPairing)
		return err
	})
	return list, err
}

// takePairing removes an open request and returns it.
func (s *Store) takePairing(ctx context.Context, tx pgx.Tx, ref channel.PairingRef) (channel.Pairing, error) {
	rows, err := tx.Query(ctx, takePairingSQL, s.clock(), clean(ref.ID), clean(channel.CleanPairingCode(ref.Code)))
	if err != nil {
		return channel.Pairing{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanPairing)
	return p, orNone(err, channel.ErrPairingUnknown)
}

// ApprovePairing lets a peer in.
func (s *Store) ApprovePairing(ctx context.Context, ref channel.PairingRef, by store.ChangedBy) (p channel.Pairing, err error) {
	err = s.within(ctx, "approving a pairing", func(ctx context.Context, tx pgx.Tx) (err error) {
		if p, err = s.takePairing(ctx, tx, ref); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM pairings WHERE channel = $1 AND user_id = $2 AND chat_id = $3`, p.Channel, p.UserID, p.ChatID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, grantSQL, s.clock(), p.Channel, p.UserID, p.ChatID, p.Name, clean(by.Who)); err != nil {
			return err
		}
		return s.logChange(ctx, tx, by, pairingChange(channel.VerbPairApprove, p.Peer, p.State(), channel.Grant{Name: p.Name, ApprovedBy: clean(by.Who)}.State()))
	})
	return p, err
}

// DismissPairing ends a request.
func (s *Store) DismissPairing(ctx context.Context, ref channel.PairingRef, by store.ChangedBy) (p channel.Pairing, err error) {
	err = s.within(ctx, "dismissing a pairing", func(ctx context.Context, tx pgx.Tx) (err error) {
		if p, err = s.takePairing(ctx, tx, ref); err != nil {
			return err
		}
		return s.logChange(ctx, tx, by, pairingChange(channel.VerbPairDismiss, p.Peer, p.State(), ""))
	})
	return p, err
}

func pairingChange(verb string, p channel.Peer, before, after string) change {
	return change{verb, p.String(), chat.StateHash(before), chat.StateHash(after)}
}

// Grants lists who was approved.
func (s *Store) Grants(ctx context.Context, of string) (list []channel.Grant, err error) {
	err = s.do(ctx, "listing who may talk", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT channel, user_id, chat_id, name, approved_by, approved_at FROM pairing_grants
			WHERE $1 = '' OR channel = $1 ORDER BY approved_at, channel, user_id`, of)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g channel.Grant, err error) {
			var at int64
			err = row.Scan(&g.Channel, &g.UserID, &g.ChatID, &g.Name, &g.ApprovedBy, &at)
			g.ApprovedAt = fromMillis(at)
			return g, err
		})
		return err
	})
	return list, err
}

// RevokePairing takes a right away.
func (s *Store) RevokePairing(ctx context.Context, p channel.Peer, by store.ChangedBy) (had bool, err error) {
	err = s.within(ctx, "revoking a pairing", func(ctx context.Context, tx pgx.Tx) error {
		var g channel.Grant
		err := tx.QueryRow(ctx, `DELETE FROM pairing_grants WHERE channel = $1 AND user_id = $2 AND chat_id = $3 RETURNING name, approved_by`,
			p.Channel, p.UserID, p.ChatID).Scan(&g.Name, &g.ApprovedBy)
		if had = err == nil; !had {
			return orNone(err, nil)
		}
		return s.logChange(ctx, tx, by, pairingChange(channel.VerbPairRevoke, p, g.State(), ""))
	})
	return had, err
}
