package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"

	"laneway/internal/store/sqlstore"
	"laneway/internal/store/transfer"
	"laneway/migrations"
)

// ownTables are the tables that a copy leaves out, because each database has its own. nodes are its
// processes, which are dead; the counter of changed jobs only lets a reader of a list notice a
// change; the search index is rebuilt from the transcripts.
func ownTables() []string {
	return []string{"goose_db_version", "nodes", "search_state", transfer.ProgressTable}
}

// Transfer is a database that is open for a copy. No gateway can use the database until
// [Transfer.Close].
type Transfer struct {
	conn *conn
	lock *fileLock
	path string
}

var _ transfer.Side = (*Transfer)(nil)

// OpenSource opens a database to copy from it. Its schema must be that of this program. Errors as
// in [Open].
func OpenSource(ctx context.Context, cfg Config) (*Transfer, error) {
	if _, err := os.Stat(cfg.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s: %w", cfg.Path, err)
	}
	return openTransfer(ctx, cfg, false)
}

// OpenTarget opens a database to copy into it, and creates it if it does not exist. One that has an
// older schema is refused. Errors as in [Open].
func OpenTarget(ctx context.Context, cfg Config) (*Transfer, error) {
	return openTransfer(ctx, cfg, true)
}

func openTransfer(ctx context.Context, cfg Config, target bool) (*Transfer, error) {
	cfg, lock, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	c, err := openOurs(cfg)
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	t := &Transfer{conn: c, lock: lock, path: cfg.Path}
	if err := t.readySchema(ctx, cfg, target); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// readySchema creates the tables of an empty target, and refuses every other schema than that of
// this program.
func (t *Transfer) readySchema(ctx context.Context, cfg Config, target bool) error {
	err := withMigrations(ctx, cfg, false, func(provider *goose.Provider) error {
		list, err := steps(ctx, provider)
		if err != nil {
			return err
		}
		applied := slices.ContainsFunc(list, func(m migrations.Step) bool { return m.Applied })
		if target && !applied {
			return up(ctx, provider, cfg.Logger)
		}
		if slices.ContainsFunc(list, func(m migrations.Step) bool { return !m.Applied }) {
			return fmt.Errorf("the database %s has an older schema: bring it up to date first, laneway migrate up --database sqlite:%s", cfg.Path, cfg.Path)
		}
		return nil
	})
	if err != nil || target {
		return err
	}
	return t.conn.refuseUnfinished()
}

// refuseUnfinished returns an error wrapping transfer.ErrUnfinished when a copy into the database
// has not ended.
func (c *conn) refuseUnfinished() error {
	n, err := c.number(`SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`, transfer.ProgressTable)
	if err != nil {
		return explain("open the database", err)
	}
	if n > 0 {
		return fmt.Errorf("%w: finish it with laneway store copy", transfer.ErrUnfinished)
	}
	return nil
}

// Close releases the database.
func (t *Transfer) Close() error { return errors.Join(t.conn.close(), t.lock.release()) }

// Name is "sqlite:" and the path.
func (t *Transfer) Name() string { return "sqlite:" + t.path }

// Storable is text unchanged, because SQLite can store every string.
func (t *Transfer) Storable(text string) string { return text }

// Tables reads the catalog. Virtual tables are excluded, because they are indexes here.
func (t *Transfer) Tables(ctx context.Context) (tables []transfer.Table, err error) {
	err = t.conn.until(ctx, "list the tables", func() error {
		err := t.conn.query(`SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`, func(r sqlstore.Row) error {
			var name string
			err := r.Scan(&name)
			if !slices.Contains(ownTables(), name) {
				tables = append(tables, transfer.Table{Name: name})
			}
			return err
		})
		for i := range tables {
			if err == nil {
				err = t.describe(&tables[i])
			}
		}
		return err
	})
	return tables, err
}

// describe reads the columns and the key of a table.
func (t *Transfer) describe(table *transfer.Table) error {
	keys := map[int]string{}
	err := t.conn.query(`SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid`, func(r sqlstore.Row) error {
		var (
			column, typ string
			notNull     bool
			pk          int
		)
		if err := r.Scan(&column, &typ, &notNull, &pk); err != nil {
			return err
		}
		kind, known := map[string]transfer.Kind{
			"INTEGER": transfer.Integer, "INT": transfer.Integer, "REAL": transfer.Number, "TEXT": transfer.Text, "BLOB": transfer.Bytes,
		}[strings.ToUpper(typ)]
		if !known {
			return fmt.Errorf("column %s of the table %s has the type %s, which a copy does not support", column, table.Name, typ)
		}
		table.Columns = append(table.Columns, transfer.Column{Name: column, Kind: kind, Nullable: !notNull && pk == 0})
		if pk > 0 {
			keys[pk] = column
		}
		return nil
	}, table.Name)
	for i := range len(keys) {
		table.Key = append(table.Key, keys[i+1])
	}
	return err
}

// Count is the number of rows.
func (t *Transfer) Count(ctx context.Context, table transfer.Table) (n int64, err error) {
	err = t.conn.until(ctx, "count the rows of "+table.Name, func() (err error) {
		n, err = t.conn.number(`SELECT count(*) FROM ` + transfer.Quoted(table.Name))
		return err
	})
	return n, err
}

// Page reads rows after a key.
func (t *Transfer) Page(ctx context.Context, table transfer.Table, after []transfer.Value) (page []transfer.Row, err error) {
	text, args := table.PageSQL(after, "?")
	bytes := 0
	err = t.conn.until(ctx, "read the table "+table.Name, func() error {
		return t.conn.query(text, func(r sqlstore.Row) error {
			row, size, err := scanRow(r)
			if err != nil {
				return err
			}
			page, bytes = append(page, row), bytes+size
			if bytes >= transfer.PageBytes {
				return sqlstore.ErrEnough
			}
			return nil
		}, args...)
	})
	if err != nil && !errors.Is(err, sqlstore.ErrEnough) {
		return nil, err
	}
	return page, nil
}

func scanRow(r sqlstore.Row) (transfer.Row, int, error) {
	values, err := r.Values()
	row, size := make(transfer.Row, len(values)), 8*len(values)
	for i, v := range values {
		row[i] = v
		switch v := v.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	return row, size, err
}

// Begin reads the position of an unfinished copy.
func (t *Transfer) Begin(ctx context.Context) (position []byte, err error) {
	if err := t.conn.refuseUnfinished(); !errors.Is(err, transfer.ErrUnfinished) {
		return nil, err
	}
	err = t.conn.until(ctx, "read the position of the unfinished copy", func() error {
		return t.conn.query(`SELECT position FROM `+transfer.ProgressTable, func(r sqlstore.Row) error {
			var text string
			err := r.Scan(&text)
			position = []byte(text)
			return err
		})
	})
	return position, err
}

// Put inserts rows and replaces the position.
func (t *Transfer) Put(ctx context.Context, table transfer.Table, rows []transfer.Row, position []byte) error {
	return t.commit(ctx, "write the copy", func() error {
		insert := `INSERT INTO ` + transfer.Quoted(table.Name) + ` (` + transfer.Quoted(table.ColumnNames()...) + `) VALUES (` + strings.TrimSuffix(strings.Repeat("?, ", len(table.Columns)), ", ") + `)`
		args := make([]any, len(table.Columns))
		for _, row := range rows {
			for i, v := range row {
				args[i] = v
			}
			if err := t.conn.exec(insert, args...); err != nil {
				return err
			}
		}
		if err := t.conn.exec(`CREATE TABLE IF NOT EXISTS ` + transfer.ProgressTable + ` (id INTEGER PRIMARY KEY CHECK (id = 1), position TEXT NOT NULL) STRICT`); err != nil {
			return err
		}
		return t.conn.exec(`INSERT INTO `+transfer.ProgressTable+` (id, position) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET position = excluded.position`, string(position))
	})
}

// Finish deletes the position.
func (t *Transfer) Finish(ctx context.Context, _ []transfer.Table) error {
	return t.commit(ctx, "end the copy", func() error { return t.conn.exec(`DROP TABLE ` + transfer.ProgressTable) })
}

func (t *Transfer) commit(ctx context.Context, doing string, run func() error) error {
	return outcome(ctx, doing, t.conn.within(ctx, `BEGIN IMMEDIATE`, true, run))
}
