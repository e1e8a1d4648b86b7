package sqlstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// Access stores the rights to use the gateway: pairings of channels, and named tokens. It also
// stores the zone that a person chose, and the quiet hours of chats.
type Access struct{ db Engine }

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

// CreatePairing renews the open request of a peer, or creates one with a new code.
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
		found, err := one(ctx, tx, `UPDATE pairings SET expires_at = {now} + $4, name = $5 WHERE `+peerCondition+` RETURNING `+pairingColumns,
			func(r Row) (err error) { made, err = scanPairing(r); return err }, p.Channel, p.UserID, p.ChatID, channel.PairingLife.Milliseconds(), name)
		if err != nil || found {
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

const selectTokens = `SELECT name, digest, scopes, visible, created_at, expires_at FROM credentials `

func scanCredential(r Row) (c store.Credential, err error) {
	var digest, scopes string
	if err := r.Scan(&c.Name, &digest, &scopes, &c.Visible, instant{&c.CreatedAt}, instant{&c.ExpiresAt}); err != nil {
		return c, err
	}
	c.Scopes, c.Digest = strings.Fields(scopes), store.ParseDigest(digest)
	return c, nil
}

// Credentials lists the named tokens.
func (s Access) Credentials(ctx context.Context) ([]store.Credential, error) {
	return list(ctx, s.db, query{"read the tokens", selectTokens + `ORDER BY name`, nil}, scanCredential)
}

// CreateCredential adds a named token and a row of the audit log.
func (s Access) CreateCredential(ctx context.Context, c store.Credential, by store.ChangedBy) error {
	return s.db.Update(ctx, "create a token", func(ctx context.Context, tx Tx) error {
		n, err := tx.Exec(ctx, `INSERT INTO credentials (name, digest, scopes, visible, created_at, expires_at)
			VALUES ($1, $2, $3, $4, {now}, NULLIF(CAST($5 AS bigint), 0)) ON CONFLICT DO NOTHING`,
			c.Name, hex.EncodeToString(c.Digest[:]), strings.Join(c.Scopes, " "), c.Visible, millis(c.ExpiresAt))
		if err != nil {
			return err
		}
		if n == 0 {
			return chat.Errorf(chat.CodeConflict, "there is a token %s already: revoke it first, or choose another name", c.Name)
		}
		return logChange(ctx, tx, by, Change{store.VerbTokenCreate, c.Name, "", c.Hash()})
	})
}

// RevokeCredential removes a named token and adds a row to the audit log.
func (s Access) RevokeCredential(ctx context.Context, name string, by store.ChangedBy) error {
	return s.db.Update(ctx, "revoke a token", func(ctx context.Context, tx Tx) error {
		var c store.Credential
		found, err := one(ctx, tx, `DELETE FROM credentials WHERE name = $1 RETURNING name, digest, scopes, visible, created_at, expires_at`,
			func(r Row) (err error) { c, err = scanCredential(r); return err }, name)
		switch {
		case err != nil:
			return err
		case !found:
			return chat.Errorf(chat.CodeNotFound, "there is no token %s", name)
		}
		return logChange(ctx, tx, by, Change{store.VerbTokenRevoke, name, c.Hash(), ""})
	})
}

// ZoneOf is the zone that a principal chose, "" when it chose none.
func (s Access) ZoneOf(ctx context.Context, principal string) (string, error) {
	return value[string](ctx, s.db, query{"read the zone of a person", `SELECT zone FROM zones WHERE principal = $1`, []any{principal}})
}

// SetZone records the zone of a principal; "" removes it.
func (s Access) SetZone(ctx context.Context, principal, zone string) error {
	return s.db.Update(ctx, "record the zone of a person", func(ctx context.Context, tx Tx) (err error) {
		if zone == "" {
			_, err = tx.Exec(ctx, `DELETE FROM zones WHERE principal = $1`, principal)
		} else {
			_, err = tx.Exec(ctx, `INSERT INTO zones (principal, zone) VALUES ($1, $2) ON CONFLICT (principal) DO UPDATE SET zone = excluded.zone`, principal, zone)
		}
		return err
	})
}

// QuietHours are the quiet hours of a chat.
func (s Access) QuietHours(ctx context.Context, at chat.Target) (q schedule.Quiet, ok bool, err error) {
	err = s.db.View(ctx, "read the quiet hours of a chat", func(ctx context.Context, tx Tx) (err error) {
		ok, err = one(ctx, tx, `SELECT q.from_minute, q.to_minute, COALESCE(z.zone, q.zone) FROM quiet_hours q LEFT JOIN zones z ON z.principal = q.principal
			WHERE q.chat_id = $1 AND q.network = $2`, into(&q.From, &q.To, &q.Zone), at.ChatID, chat.ChannelKind(at.Channel))
		return err
	})
	return q, ok, err
}

// SetQuietHours records the quiet hours of a chat, and makes what waits there due.
func (s Access) SetQuietHours(ctx context.Context, at chat.Target, q *schedule.Quiet, principal string) error {
	network := chat.ChannelKind(at.Channel)
	return s.db.Update(ctx, "record the quiet hours of a chat", func(ctx context.Context, tx Tx) (err error) {
		if q == nil {
			_, err = tx.Exec(ctx, `DELETE FROM quiet_hours WHERE chat_id = $1 AND network = $2`, at.ChatID, network)
		} else {
			_, err = tx.Exec(ctx, `INSERT INTO quiet_hours (chat_id, network, from_minute, to_minute, zone, principal) VALUES ($1, $2, $3, $4, $5, $6)
				ON CONFLICT (chat_id, network) DO UPDATE SET from_minute = excluded.from_minute, to_minute = excluded.to_minute, zone = excluded.zone, principal = excluded.principal`,
				at.ChatID, network, q.From, q.To, q.Zone, principal)
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE outbox SET next_at = {now}, held_until = NULL WHERE `+unsent+` AND state = 'pending' AND attempt = 0
			AND held_until > {now} AND chat_id = $1 AND (channel = $2 OR channel LIKE $3)`, at.ChatID, network, network+":%")
		return err
	})
}

var _ channel.Records = Access{}

// GroupActivation is the activation chosen for a group.
func (s Access) GroupActivation(ctx context.Context, of string, chatID int64) (string, error) {
	return value[string](ctx, s.db, query{
		"read what was chosen for a group", `SELECT activation FROM channel_groups WHERE channel = $1 AND chat_id = $2`, []any{of, chatID},
	})
}

// GroupBefore is the previous number of a group.
func (s Access) GroupBefore(ctx context.Context, of string, chatID int64) (int64, error) {
	return value[int64](ctx, s.db, query{"read what a group was", `SELECT moved_from FROM channel_groups WHERE channel = $1 AND chat_id = $2`, []any{of, chatID}})
}

// SetGroupActivation stores the activation chosen for a group.
func (s Access) SetGroupActivation(ctx context.Context, of string, chatID int64, activation string) error {
	return s.db.Update(ctx, "keep what was chosen for a group", func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO channel_groups (channel, chat_id, activation) VALUES ($1, $2, $3)
			ON CONFLICT (channel, chat_id) DO UPDATE SET activation = excluded.activation`, of, chatID, activation)
		return err
	})
}

// MoveGroup stores the new number of a group. The settings of the old number also apply to the new
// one, unless it has its own.
func (s Access) MoveGroup(ctx context.Context, of string, from, to int64) error {
	return s.db.Update(ctx, "keep the new number of a group", func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO channel_groups (channel, chat_id, activation, moved_from)
			VALUES ($1, $2, COALESCE((SELECT activation FROM channel_groups WHERE channel = $1 AND chat_id = $3), ''), $3)
			ON CONFLICT (channel, chat_id) DO UPDATE SET moved_from = excluded.moved_from,
				activation = CASE WHEN channel_groups.activation = '' THEN excluded.activation ELSE channel_groups.activation END`, of, to, from)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO quiet_hours (chat_id, network, from_minute, to_minute, zone, principal)
			SELECT $1, network, from_minute, to_minute, zone, principal FROM quiet_hours WHERE chat_id = $2 AND network = $3 ON CONFLICT DO NOTHING`,
			strconv.FormatInt(to, 10), strconv.FormatInt(from, 10), chat.ChannelKind(of))
		return err
	})
}

const putButtonsSQL = `{set id text, body text}
	INSERT INTO buttons (id, set_id, channel, chat_id, user_id, text, expires_at)
	SELECT v.id, $1, $2, CAST($3 AS bigint), CAST($4 AS bigint), v.body, {now} + $5 {from} WHERE true`

// PutButtons stores the buttons of one message.
func (s Access) PutButtons(ctx context.Context, set channel.ButtonSet) error {
	setID, err := newID()
	if err != nil {
		return err
	}
	rows := make(Set, 0, len(set.Texts))
	for id, text := range set.Texts {
		rows = append(rows, []any{id, text})
	}
	return s.db.Update(ctx, "keep buttons", func(ctx context.Context, tx Tx) error {
		if err := lockName(ctx, tx, "buttons", set.Channel); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM buttons WHERE expires_at <= {now}`); err != nil {
			return err
		}
		var open int
		if _, err := one(ctx, tx, `SELECT count(*) FROM buttons WHERE channel = $1`, into(&open), set.Channel); err != nil {
			return err
		}
		if open+len(set.Texts) > channel.MaxButtons {
			return channel.ErrButtonsFull
		}
		_, err := tx.Exec(ctx, putButtonsSQL, setID, set.Channel, set.ChatID, set.UserID, channel.ButtonLife.Milliseconds(), rows)
		return err
	})
}

// TakeButton reads a button, marks it as used and removes the other buttons of its set. Presses of
// one account's buttons are serialized, so that the second of two concurrent ones finds the result
// of the first.
func (s Access) TakeButton(ctx context.Context, id string, by channel.Peer, press int64) (string, error) {
	return result(ctx, s.db.Update, "take a button", func(ctx context.Context, tx Tx) (text string, err error) {
		var (
			owner  channel.Peer
			setID  string
			usedBy int64
		)
		if err := lockName(ctx, tx, "buttons", by.Channel); err != nil {
			return "", err
		}
		found, err := one(ctx, tx, `SELECT set_id, channel, chat_id, user_id, text, COALESCE(used_by, 0) FROM buttons WHERE id = $1 AND expires_at > {now}`,
			into(&setID, &owner.Channel, &owner.ChatID, &owner.UserID, &text, &usedBy), id)
		switch {
		case err != nil:
			return "", err
		case !found:
			return "", channel.ErrButtonUnknown
		}
		if again, err := channel.CheckPress(owner, by, usedBy, press); again || err != nil {
			return text, err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM buttons WHERE set_id = $1 AND id <> $2`, setID, id); err != nil {
			return "", err
		}
		_, err = tx.Exec(ctx, `UPDATE buttons SET used_by = $2 WHERE id = $1`, id, press)
		return text, err
	})
}

// Calls are the results of calls with an idempotency key, and the audit log.
type Calls struct{ db Engine }

const (
	// reserveSQL inserts the record of a call. It changes no row when an unexpired record exists.
	// On PostgreSQL it waits for a transaction that inserts the same key. $5 is how long records
	// are kept.
	reserveSQL = `INSERT INTO answers AS a (owner, method, key, hash, answer, at) VALUES ($1, $2, $3, $4, '', {now})
		ON CONFLICT (owner, method, key) DO UPDATE SET hash = excluded.hash, answer = '', at = excluded.at WHERE a.at <= excluded.at - $5`

	findRecordSQL = `SELECT hash, answer FROM answers WHERE owner = $1 AND method = $2 AND key = $3 AND at > {now} - $4`
)

// idempotent runs do and writes its result in the same transaction. When a record of this key
// exists, it returns the recorded result and does not run do. Without a key it only runs do.
func idempotent[T any](ctx context.Context, tx Tx, o *chat.IdempotencyKey, do func() (T, error)) (out T, err error) {
	if o == nil {
		return do()
	}
	n, err := tx.Exec(ctx, reserveSQL, o.Owner, o.Method, o.Key, o.Hash, store.IdempotencyTTL.Milliseconds())
	if err != nil {
		return out, err
	}
	if n == 0 {
		raw, err := findRecord(ctx, tx, *o)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			return out, fmt.Errorf("read the answer to %s: %w", o.Method, err)
		}
		return out, nil
	}
	if out, err = do(); err != nil {
		return out, err
	}
	answer, err := encode(out)
	if err != nil {
		return out, err
	}
	_, err = tx.Exec(ctx, `UPDATE answers SET answer = $4 WHERE owner = $1 AND method = $2 AND key = $3`, o.Owner, o.Method, o.Key, answer)
	return out, err
}

// findRecord reads the unexpired record of a call; nil when none exists.
func findRecord(ctx context.Context, tx Tx, o chat.IdempotencyKey) (json.RawMessage, error) {
	var hash, answer string
	found, err := one(ctx, tx, findRecordSQL, into(&hash, &answer), o.Owner, o.Method, o.Key, store.IdempotencyTTL.Milliseconds())
	switch {
	case err != nil || !found:
		return nil, err
	case hash != o.Hash:
		return nil, chat.ErrKeyReused
	}
	return json.RawMessage(answer), nil
}

// IdempotencyRecord reads the result of the first call with a key; see store.Store.
func (s Calls) IdempotencyRecord(ctx context.Context, o chat.IdempotencyKey) (answer json.RawMessage, err error) {
	err = s.db.View(ctx, "read an answer", func(ctx context.Context, tx Tx) error {
		answer, err = findRecord(ctx, tx, o)
		return err
	})
	return answer, err
}

// Audit adds one row to the audit log.
func (s Calls) Audit(ctx context.Context, a chat.Audit) error {
	return s.db.Update(ctx, "write the log of changes", func(ctx context.Context, tx Tx) error { return audit(ctx, tx, &a, "") })
}

// audit adds a row to the audit log, unless a is nil. The row's object is the object of a, or the
// given one when that is empty.
func audit(ctx context.Context, tx Tx, a *chat.Audit, object string) error {
	if a == nil {
		return nil
	}
	if a.Object != "" {
		object = a.Object
	}
	return logChange(ctx, tx, store.ChangedBy{Who: a.Who, Peer: a.Peer, RequestID: a.RequestID}, Change{a.Verb, object, a.Before, a.After})
}
