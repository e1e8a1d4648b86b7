package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/chat"
	"laneway/internal/store/transfer"
	"laneway/migrations"
)

// ownTables are the tables that a copy leaves out, because each database has its own. nodes are its
// processes, which are dead; the allowances are those of this minute; the search index is rebuilt
// from the transcripts.
func ownTables() []string {
	return []string{versionTable, "nodes", "allowances", "search_progress", "search_transcripts", "search_entries", transfer.ProgressTable}
}

// Transfer is a database that is open for a copy. No gateway can join it until [Transfer.Close].
type Transfer struct {
	conn *pgx.Conn
	name string
	tx   pgx.Tx // of a source: one snapshot, which keeps gateways out; nil for a target
}

var _ transfer.Side = (*Transfer)(nil)

// OpenSource opens a database to copy from it. Its schema must be that of this program. A
// *[LiveNodesError] means that gateways use it. A gateway that starts later waits for the end of
// the copy, within its own time limits.
func OpenSource(ctx context.Context, url string) (*Transfer, error) {
	if err := checkSteps(ctx, url, false); err != nil {
		return nil, err
	}
	t, err := openTransfer(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := t.freeze(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the source: %w", translate(err)), t.Close())
	}
	return t, nil
}

// OpenTarget opens a database to copy into it, and creates the tables of an empty one. One that has
// an older schema is refused. A *[LiveNodesError] means that gateways use it.
func OpenTarget(ctx context.Context, url string) (*Transfer, error) {
	if err := checkSteps(ctx, url, true); err != nil {
		return nil, err
	}
	t, err := openTransfer(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := t.refuseLive(ctx, t.conn); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the target: %w", translate(err)), t.Close())
	}
	return t, nil
}

// checkSteps creates the tables of an empty target, and refuses every other schema than that of
// this program.
func checkSteps(ctx context.Context, url string, target bool) error {
	steps, err := MigrateStatus(ctx, url)
	if err != nil {
		return err
	}
	if target && !slices.ContainsFunc(steps, func(m migrations.Step) bool { return m.Applied }) {
		_, err := MigrateUp(ctx, url, nil)
		return err
	}
	if slices.ContainsFunc(steps, func(m migrations.Step) bool { return !m.Applied }) {
		return fmt.Errorf("%w: bring the schema of the database up to date first, laneway migrate up --database URL", ErrOldSchema)
	}
	return nil
}

func openTransfer(ctx context.Context, url string) (*Transfer, error) {
	pc, err := poolConfig(Config{URL: url})
	if err != nil {
		return nil, err
	}
	for _, limit := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
		pc.ConnConfig.RuntimeParams[limit] = "0" // a large table takes longer, and a source has one transaction
	}
	conn, err := pgx.ConnectConfig(ctx, pc.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", translate(err))
	}
	name := fmt.Sprintf("postgres://%s:%d/%s", pc.ConnConfig.Host, pc.ConnConfig.Port, pc.ConnConfig.Database)
	return &Transfer{conn: conn, name: name}, nil
}

// freeze begins the snapshot of a source. Before that it locks the table of nodes: from then on no
// gateway joins and no lease is extended.
func (t *Transfer) freeze(ctx context.Context) (err error) {
	if t.tx, err = t.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}); err != nil {
		return err
	}
	if _, err := t.tx.Exec(ctx, `LOCK TABLE nodes IN SHARE MODE`); err != nil {
		return err
	}
	if err := t.refuseLive(ctx, t.tx); err != nil {
		return err
	}
	unfinished, err := t.unfinished(ctx, t.tx)
	if err == nil && unfinished {
		err = errUnfinishedCopy()
	}
	return err
}

func errUnfinishedCopy() error {
	return fmt.Errorf("%w: finish it with laneway store copy", transfer.ErrUnfinished)
}

// reads are the read methods that a connection and a transaction share.
type reads interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (t *Transfer) reads() reads {
	if t.tx != nil {
		return t.tx
	}
	return t.conn
}

// refuseLive returns a *LiveNodesError while the lease of a gateway is valid.
func (*Transfer) refuseLive(ctx context.Context, from reads) error {
	rows, err := from.Query(ctx, liveNodesSQL)
	if err != nil {
		return err
	}
	nodes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(nodes) > 0 {
		return &LiveNodesError{Nodes: nodes}
	}
	return err
}

// Close releases the database.
func (t *Transfer) Close() error {
	ctx := context.Background() //nolint:forbidigo // io.Closer has no context
	if t.tx != nil {
		_ = t.tx.Rollback(ctx) // it has read only
	}
	return t.conn.Close(ctx)
}

// Name is host, port and name of the database.
func (t *Transfer) Name() string { return t.name }

// Storable is text without the characters that PostgreSQL refuses.
func (t *Transfer) Storable(text string) string { return chat.CleanText(text) }

const (
	tableColumnsSQL = `
SELECT c.relname, a.attname, format_type(a.atttypid, NULL), NOT a.attnotnull
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum`
	tableKeysSQL = `
SELECT c.relname, a.attname
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY k (num, n)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.num
WHERE i.indisprimary AND c.relnamespace = current_schema()::regnamespace ORDER BY c.relname, k.n`
	tableReferencesSQL = `
SELECT c.relname, f.relname FROM pg_constraint x JOIN pg_class c ON c.oid = x.conrelid JOIN pg_class f ON f.oid = x.confrelid
WHERE x.contype = 'f' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1, 2`
	identitiesSQL = `
SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = current_schema()::regnamespace AND a.attidentity <> '' AND NOT a.attisdropped`
)

// Tables reads the catalog.
func (t *Transfer) Tables(ctx context.Context) ([]transfer.Table, error) {
	tables := map[string]*transfer.Table{}
	err := t.each(ctx, tableColumnsSQL, func(rows pgx.Rows) error {
		var name, column, typ string
		var nullable bool
		if err := rows.Scan(&name, &column, &typ, &nullable); err != nil || slices.Contains(ownTables(), name) {
			return err
		}
		kind, known := map[string]transfer.Kind{
			"bigint": transfer.Integer, "integer": transfer.Integer, "smallint": transfer.Integer, "boolean": transfer.Integer,
			"double precision": transfer.Number, "text": transfer.Text, "bytea": transfer.Bytes,
		}[typ]
		if !known {
			return fmt.Errorf("column %s.%s has the type %s, which a copy does not support", name, column, typ)
		}
		if tables[name] == nil {
			tables[name] = &transfer.Table{Name: name}
		}
		tables[name].Columns = append(tables[name].Columns, transfer.Column{Name: column, Kind: kind, Nullable: nullable})
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		t.names(ctx, tableKeysSQL, func(name, column string) {
			if table := tables[name]; table != nil {
				table.Key = append(table.Key, column)
			}
		}),
		t.names(ctx, tableReferencesSQL, func(name, other string) {
			if table := tables[name]; table != nil {
				table.References = append(table.References, other)
			}
		}),
	)
	list := make([]transfer.Table, 0, len(tables))
	for _, table := range tables {
		list = append(list, *table)
	}
	return list, err
}

func (t *Transfer) names(ctx context.Context, sql string, fn func(table, name string)) error {
	return t.each(ctx, sql, func(rows pgx.Rows) error {
		var table, name string
		err := rows.Scan(&table, &name)
		fn(table, name)
		return err
	})
}

func (t *Transfer) each(ctx context.Context, sql string, fn func(pgx.Rows) error) error {
	rows, err := t.reads().Query(ctx, sql)
	if err != nil {
		return translate(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return translate(rows.Err())
}

// Count is the number of rows.
func (t *Transfer) Count(ctx context.Context, table transfer.Table) (n int64, err error) {
	err = t.reads().QueryRow(ctx, `SELECT count(*) FROM `+transfer.Quoted(table.Name)).Scan(&n)
	return n, translate(err)
}

// Page reads rows after a key.
func (t *Transfer) Page(ctx context.Context, table transfer.Table, after []transfer.Value) ([]transfer.Row, error) {
	text, args := table.PageSQL(after, "$")
	rows, err := t.reads().Query(ctx, text, args...)
	if err != nil {
		return nil, translate(err)
	}
	defer rows.Close()
	var (
		page  []transfer.Row
		bytes int
	)
	for bytes < transfer.PageBytes && rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, translate(err)
		}
		row := make(transfer.Row, len(values))
		for i, v := range values {
			row[i] = common(v)
		}
		for _, raw := range rows.RawValues() {
			bytes += len(raw) + 8
		}
		page = append(page, row)
	}
	rows.Close()
	return page, translate(rows.Err())
}

// common is a value of the driver in the form that both engines share.
func common(v any) transfer.Value {
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case int32:
		return int64(v)
	case int16:
		return int64(v)
	default:
		return v
	}
}

func (t *Transfer) unfinished(ctx context.Context, from reads) (there bool, err error) {
	err = from.QueryRow(ctx, unfinishedSQL).Scan(&there)
	return there, err
}

const unfinishedSQL = `SELECT to_regclass('` + transfer.ProgressTable + `') IS NOT NULL`

// Begin reads the position of an unfinished copy.
func (t *Transfer) Begin(ctx context.Context) ([]byte, error) {
	there, err := t.unfinished(ctx, t.conn)
	if err != nil || !there {
		return nil, translate(err)
	}
	var text string
	err = t.conn.QueryRow(ctx, `SELECT position FROM `+transfer.ProgressTable).Scan(&text)
	return []byte(text), translate(err)
}

// Put inserts rows and replaces the position.
func (t *Transfer) Put(ctx context.Context, table transfer.Table, rows []transfer.Row, position []byte) error {
	err := pgx.BeginFunc(ctx, t.conn, func(tx pgx.Tx) error {
		if err := insertRows(ctx, tx, table, rows); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS `+transfer.ProgressTable+` (id integer PRIMARY KEY CHECK (id = 1), position text NOT NULL)`)
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO `+transfer.ProgressTable+` (id, position) VALUES (1, $1)
				ON CONFLICT (id) DO UPDATE SET position = excluded.position`, string(position))
		}
		return err
	})
	return translate(err)
}

// insertRows copies rows in. The common form has no booleans, so their columns are found by their
// type here.
func insertRows(ctx context.Context, tx pgx.Tx, table transfer.Table, rows []transfer.Row) error {
	if len(rows) == 0 {
		return nil
	}
	names := table.ColumnNames()
	description, err := tx.Prepare(ctx, "", `SELECT `+transfer.Quoted(names...)+` FROM `+transfer.Quoted(table.Name))
	if err != nil {
		return err
	}
	booleans := make([]bool, len(names))
	for i, field := range description.Fields {
		booleans[i] = field.DataTypeOID == pgtype.BoolOID
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{table.Name}, names, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		values := make([]any, len(names))
		for j, v := range rows[i] {
			if n, ok := v.(int64); ok && booleans[j] {
				values[j] = n != 0
				continue
			}
			values[j] = v
		}
		return values, nil
	}))
	return err
}

// Finish deletes the position, sets the sequences of the server after the copied numbers, and
// updates the statistics of the planner.
func (t *Transfer) Finish(ctx context.Context, tables []transfer.Table) error {
	var identities [][2]string
	if err := t.names(ctx, identitiesSQL, func(table, column string) { identities = append(identities, [2]string{table, column}) }); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, t.conn, func(tx pgx.Tx) error {
		for _, i := range identities {
			if slices.Contains(ownTables(), i[0]) {
				continue
			}
			table, column := transfer.Quoted(i[0]), transfer.Quoted(i[1])
			_, err := tx.Exec(ctx, fmt.Sprintf(`SELECT setval(pg_get_serial_sequence($1, $2), COALESCE(max(%s), 0) + 1, false) FROM %s`, column, table), table, i[1])
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `DROP TABLE `+transfer.ProgressTable)
		return err
	})
	for _, table := range tables {
		if err == nil {
			_, err = t.conn.Exec(ctx, `ANALYZE `+transfer.Quoted(table.Name))
		}
	}
	return translate(err)
}
