package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

var _ store.Credentials = (*Store)(nil)

const (
	selectTokens = `SELECT name, digest, scopes, visible, created_at, COALESCE(expires_at, 0) FROM credentials ` //nolint:gosec // a statement

	insertCredentialSQL = `INSERT INTO credentials (name, digest, scopes, visible, created_at, expires_at)
		VALUES ($2, $3, $4, $5, ` + nowSQL + `, NULLIF($6::bigint, 0)) ON CONFLICT DO NOTHING`

	// No statement ever changes or removes a row of the log.
	logSQL = `INSERT INTO audit_log (id, who, verb, object, before_hash, after_hash, peer, request_id, at)
		VALUES ($2, $3, $4, $5, $6, $7, $8, $9, ` + nowSQL + `)`
)

func scanCredential(row pgx.CollectableRow) (store.Credential, error) {
	var (
		c                store.Credential
		digest, scopes   string
		created, expires int64
	)
	if err := row.Scan(&c.Name, &digest, &scopes, &c.Visible, &created, &expires); err != nil {
		return c, err
	}
	c.Scopes, c.CreatedAt = strings.Fields(scopes), fromMillis(created)
	if expires > 0 {
		c.ExpiresAt = fromMillis(expires)
	}
	c.Digest = store.ParseDigest(digest)
	return c, nil
}

// Credentials lists the named tokens.
func (s *Store) Credentials(ctx context.Context) ([]store.Credential, error) {
	var list []store.Credential
	err := s.do(ctx, "reading the tokens", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, selectTokens+`ORDER BY name`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanCredential)
		return err
	})
	return list, err
}

// CreateCredential adds a named token and the row of the log.
func (s *Store) CreateCredential(ctx context.Context, c store.Credential, by store.ChangedBy) error {
	var expires int64
	if !c.ExpiresAt.IsZero() {
		expires = c.ExpiresAt.UnixMilli()
	}
	return s.within(ctx, "creating a token", func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, insertCredentialSQL, s.clock(), c.Name, hex.EncodeToString(c.Digest[:]), strings.Join(c.Scopes, " "), c.Visible, expires)
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return chat.Errorf(chat.CodeConflict, "there is a token %s already: revoke it first, or choose another name", c.Name)
		}
		return s.logChange(ctx, tx, by, change{store.VerbTokenCreate, c.Name, "", c.Hash()})
	})
}

// RevokeCredential removes a named token and adds the row of the log.
func (s *Store) RevokeCredential(ctx context.Context, name string, by store.ChangedBy) error {
	return s.within(ctx, "revoking a token", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectTokens+`WHERE name = $1 FOR UPDATE`, name)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, scanCredential)
		switch {
		case err != nil:
			return err
		case len(list) == 0:
			return chat.Errorf(chat.CodeNotFound, "there is no token %s", name)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM credentials WHERE name = $1`, name); err != nil {
			return err
		}
		return s.logChange(ctx, tx, by, change{store.VerbTokenRevoke, name, list[0].Hash(), ""})
	})
}

// within runs one transaction; it may run again after a conflict.
func (s *Store) within(ctx context.Context, doing string, run func(ctx context.Context, tx pgx.Tx) error) error {
	return s.do(ctx, doing, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return run(ctx, tx) })
	})
}

// change is one row of the log of changes, without who and when.
type change struct{ verb, object, before, after string }

func (s *Store) logChange(ctx context.Context, tx pgx.Tx, by store.ChangedBy, c change) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("making the id of a change: %w", err)
	}
	_, err = tx.Exec(ctx, logSQL, s.clock(), id.String(), by.Who, c.verb, c.object, c.before, c.after, by.Peer, by.RequestID)
	return err
}
