package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/pressly/goose/v3"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// engine runs the operations of sqlstore: a View on one of the readers, an Update in the writer's
// transaction.
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

// tx is a transaction from the view of one operation.
type tx struct {
	*conn
	now   int64 // the store's clock at this operation, milliseconds
	wrote bool  // the operation may have changed something
	// changed: an operation of the transaction has changed rows that a poll may look at.
	changed bool
}

var _ sqlstore.Tx = (*tx)(nil)

// Now implements sqlstore.Tx.
func (t *tx) Now(context.Context) (int64, error) { return t.now, nil }

// Repeated implements sqlstore.Tx: a failed transaction was never committed.
func (t *tx) Repeated() bool { return false }

// PerEngine implements sqlstore.Tx.
func (t *tx) PerEngine(_, sqlite string) string { return sqlite }

// Exec implements sqlstore.Tx.
func (t *tx) Exec(_ context.Context, text string, args ...any) (int64, error) {
	return t.run(text, nil, args)
}

// Query implements sqlstore.Tx.
func (t *tx) Query(_ context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	if _, err := t.run(text, scan, args); !errors.Is(err, sqlstore.ErrEnough) {
		return err
	}
	return nil
}

// Later implements sqlstore.Tx.
func (t *tx) Later(_ context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	_, err := t.run(text, scan, args)
	return err
}

// run executes a statement, once for each row of its set, and returns how many rows it has changed.
func (t *tx) run(text string, scan func(sqlstore.Row) error, args []any) (changed int64, err error) {
	s := t.dialect.Of(text)
	t.wrote = t.wrote || s.Writes
	plain, rows, err := s.Split(args)
	if err != nil {
		return 0, err
	}
	stmt, err := t.prepare(s.SQL, plain)
	if err != nil {
		return 0, err
	}
	if s.Now > 0 {
		stmt.BindInt64(s.Now, t.now)
	}
	if !s.HasSet() {
		rows = sqlstore.Set{nil}
	}
	for _, row := range rows {
		if err = s.Parameters(row, func(n int, v any) error { return bind(stmt, n, v) }); err == nil {
			err = t.step(stmt, scan)
		}
		if s.Writes {
			changed += int64(t.db.Changes()) // also when scan ends the rows of a RETURNING early
		}
		if err != nil {
			break
		}
	}
	t.changed = t.changed || changed > 0
	return changed, t.finish(stmt, err)
}

// reader is the pool of read-only connections. They never wait for the writer: each sees the last
// commit before its read began. A token of the channel is the right to one connection; nil is a
// connection that is not open yet.
type reader struct {
	path   string
	now    func() time.Time
	slots  chan *conn
	once   sync.Once
	closed chan struct{}
}

func newReader(cfg Config) *reader {
	r := &reader{path: cfg.Path, now: cfg.Now, slots: make(chan *conn, cfg.Readers), closed: make(chan struct{})}
	for range cfg.Readers {
		r.slots <- nil
	}
	return r
}

// close waits for the reads in progress.
func (r *reader) close() (err error) {
	r.once.Do(func() { close(r.closed) })
	for range cap(r.slots) {
		if c := <-r.slots; c != nil {
			err = errors.Join(err, c.close())
		}
	}
	return err
}

// view runs see on one state of the database: all statements see one snapshot. It waits for a free
// connection, and ends with ctx.
func (s *Store) view(ctx context.Context, doing string, see func(ctx context.Context, t *tx) error) error {
	err := s.before(ctx, doing)
	if err == nil {
		err = s.read.view(ctx, see)
	}
	return outcome(ctx, doing, err)
}

func (r *reader) view(ctx context.Context, see func(ctx context.Context, t *tx) error) error {
	c, err := r.take(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		if c, err = openReading(r.path); err != nil {
			r.slots <- nil
			return err
		}
	}
	err = c.within(ctx, `BEGIN`, false, func() error { return see(ctx, &tx{conn: c, now: r.now().UnixMilli()}) })
	if _, world := unavailable(err); world || c.inTransaction() { // a result for the caller, such as not found or cancelled, leaves the connection usable
		err, c = errors.Join(err, c.close()), nil
	}
	r.slots <- c
	return err
}

// take gets the right to one connection.
func (r *reader) take(ctx context.Context) (*conn, error) {
	select {
	case <-r.closed:
		return nil, errClosed
	default:
	}
	select {
	case c := <-r.slots:
		return c, nil
	case <-r.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// rest is the result of a poll at now: when idle, it found nothing, and before next (0 = never)
// only a change can make it find something.
type rest struct {
	idle      bool
	next, now int64
}

// resting reports whether a poll needs no read. The poll still counts as an operation for
// Config.Before.
func (s *Store) resting(ctx context.Context, p store.Poll) (next time.Time, yes bool, err error) {
	if ctx.Err() == nil { // otherwise the operation returns the error
		next, yes = s.gate.Resting(p, s.now())
	}
	if yes {
		err = s.before(ctx, p.Kind)
	}
	return next, yes, err
}

// Visitor opens the database of a data directory that may belong to a running gateway, to read the
// tables and to change the named tokens. It holds no lock between operations. A write waits at most
// some seconds for a write of the gateway, and delays the gateway only for the write of one row. It
// does not change the schema. Safe for concurrent use.
type Visitor struct {
	sqlstore.Access
	sqlstore.Holds
	sqlstore.Inspection

	now  func() time.Time
	mu   sync.Mutex
	conn *conn
}

var _ store.Admin = (*Visitor)(nil)

// Visit opens the database without locking the data directory. It wraps fs.ErrNotExist when no
// database exists; [ErrForeign] and [ErrNewerSchema] as in [Open]; [ErrOldSchema] when it must be
// migrated first, [migrations.ErrUnreleased] when that is impossible.
func Visit(ctx context.Context, cfg Config) (*Visitor, error) {
	if _, err := os.Stat(cfg.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s; laneway serve creates it: %w", cfg.Path, fs.ErrNotExist)
	}
	path, err := resolve(cfg.Path)
	if err != nil {
		return nil, err
	}
	if err := inspectFile(path); err != nil {
		return nil, err
	}
	cfg.Path = path
	c, err := openOurs(cfg)
	if err != nil {
		return nil, err
	}
	if err := checkSchema(ctx, cfg); err != nil {
		return nil, errors.Join(err, c.close())
	}
	v := &Visitor{conn: c, now: cfg.Now}
	if v.now == nil {
		v.now = time.Now //nolint:forbidigo // the default of the injected clock
	}
	all := sqlstore.New(visitorEngine{v})
	v.Access, v.Holds, v.Inspection = all.Access, all.Holds, all.Inspection
	return v, nil
}

// ErrOldSchema is wrapped when the database must be migrated before this program can use it.
var ErrOldSchema = errors.New("the database is older than this program")

func checkSchema(ctx context.Context, cfg Config) error {
	return withMigrations(ctx, cfg, false, func(provider *goose.Provider) error {
		pending, err := provider.HasPending(ctx)
		if err != nil {
			return explain("read the schema version", err)
		}
		if pending {
			return fmt.Errorf("%w: start the gateway again, or run laneway migrate up", ErrOldSchema)
		}
		return nil
	})
}

// Close closes the database.
func (v *Visitor) Close() error { return v.conn.close() }

// Kind is "sqlite".
func (v *Visitor) Kind() string { return "sqlite" }

// Now is the clock of this host.
func (v *Visitor) Now(context.Context) (time.Time, error) { return instant(v.now().UnixMilli()), nil }

// do runs one transaction. A failed one leaves no changes.
func (v *Visitor) do(ctx context.Context, doing, begin string, run func(t *tx) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return outcome(ctx, doing, v.conn.within(ctx, begin, true, func() error { return run(&tx{conn: v.conn, now: v.now().UnixMilli()}) }))
}

// visitorEngine runs operations of sqlstore, each in a transaction.
type visitorEngine struct{ v *Visitor }

// View implements sqlstore.Engine.
func (e visitorEngine) View(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.v.do(ctx, doing, `BEGIN`, func(t *tx) error { return see(ctx, t) })
}

// List implements sqlstore.Engine.
func (e visitorEngine) List(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.View(ctx, doing, see)
}

// Snapshot implements sqlstore.Engine.
func (e visitorEngine) Snapshot(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.View(ctx, doing, see)
}

// Update implements sqlstore.Engine.
func (e visitorEngine) Update(ctx context.Context, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.v.do(ctx, doing, `BEGIN IMMEDIATE`, func(t *tx) error { return change(ctx, t) })
}

// Control implements sqlstore.Engine.
func (e visitorEngine) Control(ctx context.Context, _ sqlstore.Line, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.Update(ctx, doing, change)
}

// Turn implements sqlstore.Engine.
func (e visitorEngine) Turn(ctx context.Context, doing string, _ sqlstore.Share, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.Update(ctx, doing, change)
}

// Poll implements sqlstore.Engine.
func (e visitorEngine) Poll(ctx context.Context, p store.Poll, look func(ctx context.Context, tx sqlstore.Tx) (sqlstore.Rest, error)) (*sqlstore.Rested, error) {
	return nil, e.Update(ctx, p.Kind, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := look(ctx, tx)
		return err
	})
}
