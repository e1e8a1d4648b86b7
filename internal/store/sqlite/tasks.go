package sqlite

import (
	"context"

	"laneway/internal/store"
)

// Spawn accepts the message of a sub-turn; see the port.
func (s *Store) Spawn(ctx context.Context, p store.SpawnParams) (store.Accepted, error) {
	in := incoming{AcceptParams: p.Accept}
	if err := in.encode(); err != nil {
		return store.Accepted{}, err
	}
	return result(ctx, s.write, ordinary("accept a sub-turn"), func(ctx context.Context, t *tx) (store.Accepted, error) {
		return t.spawn(ctx, &p, &in)
	})
}

func (t *tx) spawn(ctx context.Context, p *store.SpawnParams, in *incoming) (out store.Accepted, err error) {
	if _, _, err := t.holdRun(ctx, p.Claim, p.RunID); err != nil {
		return out, err
	}
	if old, known, err := t.findDuplicate(ctx, &in.Message); err != nil || known {
		return t.duplicate(ctx, in.Node, old, err)
	}
	var (
		stops          bool
		children, tree int
	)
	err = t.one(ctx, `SELECT (SELECT stop_by IS NOT NULL FROM runs WHERE id = ?1),
		(SELECT count(*) FROM inbox WHERE parent = ?1), (SELECT count(*) FROM inbox WHERE root = ?2)`, p.RunID, p.Root).Scan(&stops, &children, &tree)
	switch {
	case err != nil:
		return out, err
	case stops:
		return out, store.ErrRunStops
	case children >= p.MaxChildren:
		return out, store.ErrManyChildren
	case tree >= p.MaxTree:
		return out, store.ErrManyInTree
	}
	if out, err = t.accept(ctx, in); err != nil {
		return out, err
	}
	_, err = t.exec(ctx, `UPDATE inbox SET parent = ?, root = ?, announce = ? WHERE message_id = ?`, p.RunID, p.Root, p.Announce, in.Message.ID)
	return out, err
}
