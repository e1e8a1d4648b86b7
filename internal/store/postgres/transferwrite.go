package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/store/transfer"
)

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

// insertRows copies rows in. The common form has no booleans, so their columns are found by their type here.
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

// Finish deletes the position, sets the sequences of the server after the copied numbers, and updates the statistics of the planner.
func (t *Transfer) Finish(ctx context.Context, tables []transfer.Table) error {
	var identities [][2]string
	if err := t.names(ctx, identitiesSQL, func(table, column string) { identities = append(identities, [2]string{table, column}) }); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, t.conn, func(tx pgx.Tx) error {
		for _, i := range identities {
			if slices.Contains(ownTables, i[0]) {
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
