package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// treeSQL reads what decides about a further sub-turn of a run; the fence of the run's session comes before it. It locks the row of the root, so that
// sub-turns of one tree are counted one after the other, on whatever replica their parents run. It returns no row when the run does not run under the
// claim. $1 run, $2 session, $3 node, $4 epoch, $5 root.
const (
	lockRootSQL = `SELECT 1 FROM runs WHERE id = $1 FOR NO KEY UPDATE`
	treeSQL     = `
SELECT stop_by <> '', (SELECT count(*) FROM inbox WHERE parent = $1), (SELECT count(*) FROM inbox WHERE root = $5)
FROM runs WHERE id = $1 AND (session_key = $2) IS TRUE AND owner = $3 AND epoch = $4 AND state IN ('running', 'yielded')`
	markTaskSQL = `UPDATE inbox SET parent = $2, root = $3, announce = $4 WHERE message_id = $1`
)

// Spawn accepts the message of a sub-turn, see store.Tasks. A new one takes four round trips.
func (s *Store) Spawn(ctx context.Context, p store.SpawnParams) (store.Accepted, error) {
	a, err := s.newAcceptOp(p.Accept)
	if err != nil {
		return store.Accepted{}, err
	}
	repeated := false
	err = s.do(ctx, "accepting a sub-turn", func(ctx context.Context) error {
		a.out = store.Accepted{}
		err := pgx.BeginFunc(ctx, s.turns, func(tx pgx.Tx) error { return s.spawn(ctx, tx, p, a) })
		if errors.Is(err, errKnown) || isUnique(err) {
			err = a.findDuplicate(ctx, repeated)
		}
		repeated = true
		return err
	})
	return a.out, err
}

// errKnown undoes a transaction that finds its message accepted. It never leaves the package.
var errKnown = errors.New("the message is there")

func (s *Store) spawn(ctx context.Context, tx pgx.Tx, p store.SpawnParams, a *acceptOp) error {
	var (
		stops, known   bool
		children, tree int
	)
	b := &pgx.Batch{}
	s.fence(b, p.Claim)
	b.Queue(lockRootSQL, p.Root)
	b.Queue(`SELECT EXISTS (SELECT 1 FROM inbox WHERE message_id = $1)`, p.Accept.Message.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&known) })
	b.Queue(treeSQL, p.RunID, p.Session.String(), p.Node, p.Epoch, p.Root).QueryRow(func(row pgx.Row) error { return row.Scan(&stops, &children, &tree) })
	err := send(ctx, tx, b)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return chat.ErrFenced
	case err != nil:
		return err
	case known:
		return errKnown
	case stops:
		return store.ErrRunStops
	case children >= p.MaxChildren:
		return store.ErrManyChildren
	case tree >= p.MaxTree:
		return store.ErrManyInTree
	}
	if err := a.insert(ctx, tx, &pgx.Batch{}, 0); err != nil {
		return err
	}
	announce := 0
	if p.Announce {
		announce = 1
	}
	_, err = tx.Exec(ctx, markTaskSQL, p.Accept.Message.ID, p.RunID, p.Root, announce)
	return err
}
