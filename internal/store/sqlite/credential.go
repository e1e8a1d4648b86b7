package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/store"
)

var _ store.Credentials = (*Store)(nil)

// Credentials lists the named tokens.
func (s *Store) Credentials(ctx context.Context) (list []store.Credential, err error) {
	err = s.view(ctx, "read the tokens", func(ctx context.Context, q querier) error {
		list, err = listCredentials(ctx, q)
		return err
	})
	return list, err
}

// CreateCredential adds a named token and the row of the log.
func (s *Store) CreateCredential(ctx context.Context, c store.Credential, by store.ChangedBy) error {
	return s.write.do(ctx, ordinary("create a token"), func(ctx context.Context, t *tx) error { return t.createCredential(ctx, c, by) })
}

// RevokeCredential removes a named token and adds the row of the log.
func (s *Store) RevokeCredential(ctx context.Context, name string, by store.ChangedBy) error {
	return s.write.do(ctx, ordinary("revoke a token"), func(ctx context.Context, t *tx) error { return t.revokeCredential(ctx, name, by) })
}

const selectTokens = `SELECT name, digest, scopes, visible, created_at, expires_at FROM credentials ` //nolint:gosec // a statement

func scanCredential(row scanner) (c store.Credential, err error) {
	var digest, scopes string
	if err := row.Scan(&c.Name, &digest, &scopes, &c.Visible, timeColumn{&c.CreatedAt}, timeColumn{&c.ExpiresAt}); err != nil {
		return c, err
	}
	c.Scopes = strings.Fields(scopes)
	c.Digest = store.ParseDigest(digest)
	return c, nil
}

func listCredentials(ctx context.Context, q querier) ([]store.Credential, error) {
	rows, err := q.query(ctx, selectTokens+`ORDER BY name`)
	return collect(rows, err, scanCredential)
}

func (t *tx) createCredential(ctx context.Context, c store.Credential, by store.ChangedBy) error {
	var expires any
	if !c.ExpiresAt.IsZero() {
		expires = c.ExpiresAt.UnixMilli()
	}
	n, err := t.exec(ctx, `INSERT INTO credentials (name, digest, scopes, visible, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, c.Name, hex.EncodeToString(c.Digest[:]), strings.Join(c.Scopes, " "), c.Visible, t.now, expires)
	if err != nil {
		return err
	}
	if n == 0 {
		return chat.Errorf(chat.CodeConflict, "there is a token %s already: revoke it first, or choose another name", c.Name)
	}
	return t.log(ctx, by, logged{store.VerbTokenCreate, c.Name, "", c.Hash()})
}

func (t *tx) revokeCredential(ctx context.Context, name string, by store.ChangedBy) error {
	c, err := scanCredential(t.one(ctx, selectTokens+`WHERE name = ?`, name))
	switch {
	case none(err):
		return chat.Errorf(chat.CodeNotFound, "there is no token %s", name)
	case err != nil:
		return err
	}
	if _, err := t.exec(ctx, `DELETE FROM credentials WHERE name = ?`, name); err != nil {
		return err
	}
	return t.log(ctx, by, logged{store.VerbTokenRevoke, name, c.Hash(), ""})
}

// logged is one row of the log of changes, without who and when.
type logged struct{ verb, object, before, after string }

// log adds one row to the log of changes. Nothing ever changes or removes one.
func (t *tx) log(ctx context.Context, by store.ChangedBy, c logged) error {
	id, err := uuid.NewV7()
	if err != nil {
		return errors.Join(errors.New("make the id of a change"), err)
	}
	_, err = t.exec(ctx, `INSERT INTO audit_log (id, who, verb, object, before_hash, after_hash, peer, request_id, at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, id.String(), by.Who, c.verb, c.object, c.before, c.after, by.Peer, by.RequestID, t.now)
	return err
}
