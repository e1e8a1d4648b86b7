package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// Visitor opens the database of a data directory that may belong to a running gateway, to read the tables and to change the named tokens.
// It holds no lock between operations; a write waits at most some seconds for the gateway's own, and the gateway waits for it no longer
// than one row takes. It changes no schema. Safe for concurrent use.
type Visitor struct {
	sqlstore.Access
	sqlstore.Holds
	sqlstore.Inspection

	db   *sql.DB
	now  func() time.Time
	mu   sync.Mutex
	conn *session // nil = to be opened
}

var (
	_ store.Credentials = (*Visitor)(nil)
	_ store.Inspector   = (*Visitor)(nil)
)

// Visit opens the database without locking the data directory. fs.ErrNotExist is wrapped when there is none; [ErrForeign] and
// [ErrNewerSchema] as in [Open]; [ErrOldSchema] when it has to be migrated first, [migrations.ErrUnreleased]
// when that is impossible.
func Visit(ctx context.Context, cfg Config) (*Visitor, error) {
	if _, err := os.Stat(cfg.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s; laneway serve makes it: %w", cfg.Path, fs.ErrNotExist)
	}
	path, err := resolve(cfg.Path)
	if err != nil {
		return nil, err
	}
	if err := checkReleased(ctx, path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path, false))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(1)
	v := &Visitor{db: db, now: cfg.Now}
	if v.now == nil {
		v.now = time.Now //nolint:forbidigo // the default of the injected clock
	}
	all := sqlstore.New(visitorEngine{v})
	v.Access, v.Holds, v.Inspection = all.Access, all.Holds, all.Inspection
	if err := v.checkSchema(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return v, nil
}

// ErrOldSchema is wrapped when the database has to be migrated before this program can use it.
var ErrOldSchema = errors.New("the database is older than this program")

func (v *Visitor) checkSchema(ctx context.Context) error {
	provider, err := examine(ctx, v.db)
	if err != nil {
		return err
	}
	pending, err := provider.HasPending(ctx)
	if err != nil {
		return explain("read the schema version", err)
	}
	if pending {
		return fmt.Errorf("%w: start the gateway again, or run laneway migrate up", ErrOldSchema)
	}
	return nil
}

// Close closes the database.
func (v *Visitor) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.conn != nil {
		v.conn.discard()
		v.conn = nil
	}
	if err := v.db.Close(); err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// Kind is "sqlite".
func (v *Visitor) Kind() string { return "sqlite" }

// Now is the clock of this host.
func (v *Visitor) Now(context.Context) (time.Time, error) { return instant(v.now().UnixMilli()), nil }

// do runs one transaction. A failed one leaves nothing behind.
func (v *Visitor) do(ctx context.Context, doing, begin string, run func(t *tx) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.conn == nil {
		conn, err := connect(ctx, v.db)
		if err != nil {
			return explain(doing, err)
		}
		v.conn = conn
	}
	t := &tx{session: v.conn, now: v.now().UnixMilli()}
	if _, err := t.exec(ctx, begin); err != nil {
		return explain(doing, err)
	}
	err := run(t)
	if err == nil {
		_, err = t.exec(ctx, "COMMIT")
	}
	if err == nil {
		return nil
	}
	if _, undo := t.exec(context.WithoutCancel(ctx), "ROLLBACK"); undo != nil {
		v.conn.discard()
		v.conn = nil
	}
	if e, ok := errors.AsType[*chat.Error](err); ok {
		return e
	}
	return explain(doing, err)
}

// visitorEngine runs operations of sqlstore, each in a transaction.
type visitorEngine struct{ v *Visitor }

// View implements sqlstore.Engine.
func (e visitorEngine) View(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.v.do(ctx, doing, "BEGIN", func(t *tx) error { return see(ctx, t.shared()) })
}

// Snapshot implements sqlstore.Engine.
func (e visitorEngine) Snapshot(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.View(ctx, doing, see)
}

// Update implements sqlstore.Engine.
func (e visitorEngine) Update(ctx context.Context, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.v.do(ctx, doing, "BEGIN IMMEDIATE", func(t *tx) error { return change(ctx, t.shared()) })
}

// Control implements sqlstore.Engine.
func (e visitorEngine) Control(ctx context.Context, _ sqlstore.Line, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.Update(ctx, doing, change)
}

// Turn implements sqlstore.Engine.
func (e visitorEngine) Turn(ctx context.Context, doing string, _ sqlstore.Share, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.Update(ctx, doing, change)
}

// Groups implements sqlstore.Engine.
func (visitorEngine) Groups() bool { return false }

// Poll implements sqlstore.Engine.
func (e visitorEngine) Poll(ctx context.Context, p store.Poll, look func(ctx context.Context, tx sqlstore.Tx) (sqlstore.Rest, error)) (*sqlstore.Rested, error) {
	return nil, e.Update(ctx, p.Kind, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := look(ctx, tx)
		return err
	})
}
