package sqlstore

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	// fenceSQL locks the session of a claim that holds. The lock orders the operation after every earlier change of the session, which the following statements
	// therefore see.
	fenceSQL = `SELECT 1 FROM sessions WHERE key = $1 AND owner = $2 AND epoch = $3
		AND EXISTS (SELECT 1 FROM nodes WHERE id = $2 AND lease_until > {now}) {lock}`

	// underClaim selects a run that runs under a claim. $1 run, $2 session, $3 node, $4 epoch.
	underClaim = `id = $1 AND (session_key = $2) IS TRUE AND owner = $3 AND epoch = $4 AND state IN ('running', 'yielded')`
)

// fenceRun is the fence for writes of a run: the claim holds, and the run runs under it. chat.ErrFenced otherwise.
func fenceRun(ctx context.Context, tx Tx, c store.Claim, runID string) error {
	holds := false
	err := tx.Later(ctx, fenceSQL, func(Row) error { holds = true; return nil }, c.Session.String(), c.Node, c.Epoch)
	if err != nil {
		return err
	}
	runs, err := one(ctx, tx, `SELECT 1 FROM runs WHERE `+underClaim, func(Row) error { return nil }, runID, c.Session.String(), c.Node, c.Epoch)
	if err == nil && (!holds || !runs) {
		err = chat.ErrFenced
	}
	return err
}
