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

// Visitor opens the database of a data directory that may belong to a running gateway, to read the tables and to change the named tokens. It holds no lock
// between operations. A write waits at most some seconds for a write of the gateway, and delays the gateway only for the write of one row. It does not change
// the schema. Safe for concurrent use.
type Visitor struct {
	sqlstore.Access
	sqlstore.Holds
	sqlstore.Inspection

	now  func() time.Time
	mu   sync.Mutex
	conn *conn
}

var (
	_ store.Credentials = (*Visitor)(nil)
	_ store.Inspector   = (*Visitor)(nil)
)

// Visit opens the database without locking the data directory. It wraps fs.ErrNotExist when no database exists; [ErrForeign] and [ErrNewerSchema] as in [Open];
// [ErrOldSchema] when it must be migrated first, [migrations.ErrUnreleased] when that is impossible.
func Visit(ctx context.Context, cfg Config) (*Visitor, error) {
	if _, err := os.Stat(cfg.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s; laneway serve makes it: %w", cfg.Path, fs.ErrNotExist)
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
