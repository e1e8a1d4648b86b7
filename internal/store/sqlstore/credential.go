package sqlstore

import (
	"context"
	"encoding/hex"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const selectTokens = `SELECT name, digest, scopes, visible, created_at, expires_at FROM credentials ` //nolint:gosec // a statement

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
