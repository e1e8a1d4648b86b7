package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"laneway/internal/store/transfer"
)

// ownTables are the tables that a copy leaves out: each database has its own. nodes are the processes on it, none of which lives; the counter of changed jobs only lets a
// reader of a list notice a change; the search index is made from the transcripts again.
var ownTables = []string{"goose_db_version", "nodes", "search_state", transfer.ProgressTable} //nolint:gochecknoglobals // a constant

// Transfer is a database that is open for a copy. No gateway can use the database until [Transfer.Close].
type Transfer struct {
	db   *sql.DB
	lock *fileLock
	path string
}

var _ transfer.Target = (*Transfer)(nil)

// OpenSource opens a database to copy from it. Its schema must be that of this program. Errors as in [Open].
func OpenSource(ctx context.Context, cfg Config) (*Transfer, error) {
	if _, err := os.Stat(cfg.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s: %w", cfg.Path, err)
	}
	return openTransfer(ctx, cfg, false)
}

// OpenTarget opens a database to copy into it, and makes it where there is none. One that has an older schema is refused. Errors as in [Open].
func OpenTarget(ctx context.Context, cfg Config) (*Transfer, error) {
	return openTransfer(ctx, cfg, true)
}

func openTransfer(ctx context.Context, cfg Config, target bool) (*Transfer, error) {
	cfg, lock, err := prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(cfg.Path, false))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database: %w", err), lock.release())
	}
	db.SetMaxOpenConns(1)
	t := &Transfer{db: db, lock: lock, path: cfg.Path}
	if err := t.readySchema(ctx, cfg, target); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// readySchema makes the tables of an empty target, and refuses every other schema than that of this program.
func (t *Transfer) readySchema(ctx context.Context, cfg Config, target bool) error {
	steps, err := migrate(ctx, t.db, cfg.Logger, Status)
	if err != nil {
		return err
	}
	applied := slices.ContainsFunc(steps, func(m Migration) bool { return m.Applied })
	if target && !applied {
		return migrateUp(ctx, t.db, cfg.Logger)
	}
	if slices.ContainsFunc(steps, func(m Migration) bool { return !m.Applied }) {
		return fmt.Errorf("the database %s has an older schema: bring it up to date first, laneway migrate up --database sqlite:%s", cfg.Path, cfg.Path)
	}
	if target {
		return nil
	}
	return refuseUnfinished(ctx, t.db)
}

// refuseUnfinished returns an error wrapping transfer.ErrUnfinished when a copy into the database has not ended.
func refuseUnfinished(ctx context.Context, db *sql.DB) error {
	var n int
	err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`, transfer.ProgressTable).Scan(&n)
	if err != nil {
		return explain("open the database", err)
	}
	if n > 0 {
		return fmt.Errorf("%w: finish it with laneway store copy", transfer.ErrUnfinished)
	}
	return nil
}

// Close gives the database back.
func (t *Transfer) Close() error { return errors.Join(t.db.Close(), t.lock.release()) }

// Name is "sqlite:" and the path.
func (t *Transfer) Name() string { return "sqlite:" + t.path }

// Storable is text: SQLite keeps every one.
func (t *Transfer) Storable(text string) string { return text }

// Tables reads the catalog. Virtual tables are indexes here, which is why they are no tables.
func (t *Transfer) Tables(ctx context.Context) ([]transfer.Table, error) {
	names, err := t.tableNames(ctx)
	if err != nil {
		return nil, explain("list the tables", err)
	}
	tables := make([]transfer.Table, 0, len(names))
	for _, name := range names {
		table, err := t.describe(ctx, name)
		if err != nil {
			return nil, explain("describe the table "+name, err)
		}
		tables = append(tables, table)
	}
	return tables, nil
}

func (t *Transfer) tableNames(ctx context.Context) (names []string, err error) {
	rows, err := t.db.QueryContext(ctx, `SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		if !slices.Contains(ownTables, name) {
			names = append(names, name)
		}
	}
	return names, rows.Err()
}

func (t *Transfer) describe(ctx context.Context, name string) (_ transfer.Table, err error) {
	table := transfer.Table{Name: name}
	rows, err := t.db.QueryContext(ctx, `SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid`, name)
	if err != nil {
		return table, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	keys := map[int]string{}
	for rows.Next() {
		var (
			column, typ string
			notNull     bool
			pk          int
		)
		if err := rows.Scan(&column, &typ, &notNull, &pk); err != nil {
			return table, err
		}
		kind, known := map[string]transfer.Kind{
			"INTEGER": transfer.Integer, "INT": transfer.Integer, "REAL": transfer.Number, "TEXT": transfer.Text, "BLOB": transfer.Bytes,
		}[strings.ToUpper(typ)]
		if !known {
			return table, fmt.Errorf("column %s has the type %s, which a copy does not know", column, typ)
		}
		table.Columns = append(table.Columns, transfer.Column{Name: column, Kind: kind, Nullable: !notNull && pk == 0})
		if pk > 0 {
			keys[pk] = column
		}
	}
	for i := range len(keys) {
		table.Key = append(table.Key, keys[i+1])
	}
	return table, rows.Err()
}

// Count is the number of rows.
func (t *Transfer) Count(ctx context.Context, table transfer.Table) (n int64, err error) {
	err = t.db.QueryRowContext(ctx, `SELECT count(*) FROM `+quoted(table.Name)).Scan(&n)
	return n, explain("count the rows of "+table.Name, err)
}

// Page reads rows behind a key.
func (t *Transfer) Page(ctx context.Context, table transfer.Table, after []transfer.Value) (_ []transfer.Row, err error) {
	key := quotedList(table.Key)
	where, args := "", []any{}
	if after != nil {
		where = " WHERE (" + key + ") > (" + placeholders(len(after)) + ")"
		for _, v := range after {
			args = append(args, v)
		}
	}
	rows, err := t.db.QueryContext(ctx, `SELECT `+quotedList(columnNames(table))+` FROM `+quoted(table.Name)+where+` ORDER BY `+key+` LIMIT +?`, append(args, transfer.PageRows)...) //nolint:gosec // names of the catalog, quoted
	if err != nil {
		return nil, explain("read the table "+table.Name, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var (
		page  []transfer.Row
		bytes int
	)
	for bytes < transfer.PageBytes && rows.Next() {
		row, size, err := scanRow(rows, len(table.Columns))
		if err != nil {
			return nil, explain("read the table "+table.Name, err)
		}
		page, bytes = append(page, row), bytes+size
	}
	return page, explain("read the table "+table.Name, rows.Err())
}

func scanRow(rows *sql.Rows, columns int) (transfer.Row, int, error) {
	row, into := make(transfer.Row, columns), make([]any, columns)
	for i := range row {
		into[i] = (*any)(&row[i])
	}
	if err := rows.Scan(into...); err != nil {
		return nil, 0, err
	}
	size := 8 * columns
	for _, v := range row {
		switch v := v.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	return row, size, nil
}

// Begin reads the position of an unfinished copy.
func (t *Transfer) Begin(ctx context.Context) ([]byte, error) {
	if err := refuseUnfinished(ctx, t.db); !errors.Is(err, transfer.ErrUnfinished) {
		return nil, err
	}
	var text string
	if err := t.db.QueryRowContext(ctx, `SELECT position FROM `+transfer.ProgressTable).Scan(&text); err != nil {
		return nil, explain("read the position of the unfinished copy", err)
	}
	return []byte(text), nil
}

// Put inserts rows and replaces the position.
func (t *Transfer) Put(ctx context.Context, table transfer.Table, rows []transfer.Row, position []byte) error {
	return t.commit(ctx, "write the copy", func(tx *sql.Tx) error {
		if err := insertRows(ctx, tx, table, rows); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+transfer.ProgressTable+` (id INTEGER PRIMARY KEY CHECK (id = 1), position TEXT NOT NULL) STRICT`)
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO `+transfer.ProgressTable+` (id, position) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET position = excluded.position`, string(position)) //nolint:gosec // a constant
		}
		return err
	})
}

func insertRows(ctx context.Context, tx *sql.Tx, table transfer.Table, rows []transfer.Row) (err error) {
	if len(rows) == 0 {
		return nil
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO `+quoted(table.Name)+` (`+quotedList(columnNames(table))+`) VALUES (`+placeholders(len(table.Columns))+`)`) //nolint:gosec // names of the catalog, quoted
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, insert.Close()) }()
	args := make([]any, len(table.Columns))
	for _, row := range rows {
		for i, v := range row {
			args[i] = v
		}
		if _, err := insert.ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// Finish deletes the position.
func (t *Transfer) Finish(ctx context.Context, _ []transfer.Table) error {
	return t.commit(ctx, "end the copy", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DROP TABLE `+transfer.ProgressTable)
		return err
	})
}

func (t *Transfer) commit(ctx context.Context, doing string, fn func(*sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return explain(doing, err)
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback() //nolint:errcheck // the error of fn says more
		return explain(doing, err)
	}
	return explain(doing, tx.Commit())
}

func columnNames(t transfer.Table) []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

func placeholders(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// quoted makes a name of the catalog safe in a statement: some columns have the names of keywords.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quotedList(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = quoted(name)
	}
	return strings.Join(list, ", ")
}
