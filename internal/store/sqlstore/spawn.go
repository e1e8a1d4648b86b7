package sqlstore

import (
	"context"

	"laneway/internal/store"
)

const (
	// lockRootSQL serializes the counting of the sub-turns of one tree across the replicas on which their parents run.
	lockRootSQL = `SELECT 1 FROM runs WHERE id = $1 FOR NO KEY UPDATE`

	treeSQL = `SELECT COALESCE((SELECT COALESCE(stop_by, '') <> '' FROM runs WHERE id = $1), false),
		(SELECT count(*) FROM inbox WHERE parent = $1), (SELECT count(*) FROM inbox WHERE root = $2), EXISTS (SELECT 1 FROM inbox WHERE message_id = $3)`

	markTaskSQL = `UPDATE inbox SET parent = $2, root = $3, announce = $4 WHERE message_id = $1`
)

// Spawn accepts the message of a sub-turn; see store.Tasks.
func (s Inbox) Spawn(ctx context.Context, p store.SpawnParams) (store.Accepted, error) {
	return result(ctx, func(ctx context.Context, doing string, change func(ctx context.Context, tx Tx) error) error {
		return s.db.Turn(ctx, doing, Alone, change)
	}, "accept a sub-turn", func(ctx context.Context, tx Tx) (out store.Accepted, err error) {
		if err := fenceRun(ctx, tx, p.Claim, p.RunID); err != nil {
			return out, err
		}
		if text := tx.PerEngine(lockRootSQL, ""); text != "" {
			if err := tx.Later(ctx, text, nil, p.Root); err != nil {
				return out, err
			}
		}
		var (
			stops, known   bool
			children, tree int
		)
		_, err = one(ctx, tx, treeSQL, into(&stops, &children, &tree, &known), p.RunID, p.Root, p.Accept.Message.ID)
		switch {
		case err != nil:
			return out, err
		case known:
			return s.AcceptOn(ctx, tx, p.Accept)
		case stops:
			return out, store.ErrRunStops
		case children >= p.MaxChildren:
			return out, store.ErrManyChildren
		case tree >= p.MaxTree:
			return out, store.ErrManyInTree
		}
		if out, err = s.AcceptOn(ctx, tx, p.Accept); err != nil || out.Duplicate {
			return out, err
		}
		return out, tx.Later(ctx, markTaskSQL, nil, p.Accept.Message.ID, p.RunID, p.Root, number(p.Announce))
	})
}
