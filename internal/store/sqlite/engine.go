package sqlite

import (
	"context"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// engine runs the operations of sqlstore: a View on one of the readers, an Update in the writer's transaction.
type engine struct{ *Store }

var _ sqlstore.Batcher = engine{}

// View implements sqlstore.Engine.
func (e engine) View(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.view(ctx, doing, func(ctx context.Context, t *tx) error { return see(ctx, t) })
}

// List implements sqlstore.Engine.
func (e engine) List(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	leave, err := e.lists.Enter(ctx)
	if err != nil {
		return outcome(ctx, doing, err)
	}
	defer leave()
	return e.View(ctx, doing, see)
}

// Snapshot implements sqlstore.Engine.
func (e engine) Snapshot(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.List(ctx, doing, see)
}

// Update implements sqlstore.Engine.
func (e engine) Update(ctx context.Context, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.write.do(ctx, ordinary(doing), func(ctx context.Context, t *tx) error { return change(ctx, t) })
}

// Control implements sqlstore.Engine: the operation goes to the front of the writer's queue.
func (e engine) Control(ctx context.Context, line sqlstore.Line, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.write.do(ctx, urgent(doing), func(ctx context.Context, t *tx) error {
		changed := t.changed
		err := change(ctx, t)
		if line == sqlstore.Beat {
			t.changed = changed // a longer lease makes nothing due
		}
		return err
	})
}

// Turn implements sqlstore.Engine.
func (e engine) Turn(ctx context.Context, doing string, _ sqlstore.Share, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.Update(ctx, doing, change)
}

// Poll implements sqlstore.Engine.
func (e engine) Poll(ctx context.Context, p store.Poll, see func(ctx context.Context, tx sqlstore.Tx) (sqlstore.Rest, error)) (*sqlstore.Rested, error) {
	if next, resting, err := e.resting(ctx, p); resting || err != nil {
		return &sqlstore.Rested{Now: instant(e.now().UnixMilli()), Next: next}, err
	}
	changes := e.gate.Changes()
	f, err := result(ctx, e.write, ordinary(p.Kind), func(ctx context.Context, t *tx) (f rest, err error) {
		r, err := see(ctx, t)
		f.idle, f.now = r.Idle, t.now
		if err == nil && p.Kind == sqlstore.PollSweep {
			more, shrink := t.shrink(ctx)
			f.idle, err = f.idle && !more, shrink
		}
		if err == nil && f.idle && r.Next != nil {
			f.next, err = r.Next(ctx, t)
		}
		return f, err
	})
	if err == nil && f.idle {
		e.gate.Rest(p, changes, instant(f.now), instant(f.next))
	}
	return nil, err
}

// Batch implements sqlstore.Batcher: the writer runs all waiting operations in one transaction.
func (e engine) Batch(ctx context.Context, doing string, b sqlstore.Batched) error {
	o := ordinary(doing)
	o.batched = b
	return e.write.submit(ctx, o)
}
