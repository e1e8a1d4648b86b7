package sqlstore

import (
	"context"
	"slices"
	"strconv"

	"laneway/internal/store"
)

// page is a list with a byte bound. rows is a query with an order and a limit, whose column page_size has the bytes of a row; columns are those to return.
// bytes bounds the page; 0 = store.ReadBytes. At least one row is read. The bytes of the rows are added to read unless it is nil.
type page struct {
	columns, rows string
	bytes         int
	read          *int
	args          []any
}

// uptoStart and uptoEnd make PostgreSQL compute lengths without reading the text, and return the text of the selected rows only.
const uptoStart, uptoEnd = `(SELECT * FROM (SELECT *, row_number() OVER page_w AS page_n, sum(page_size) OVER page_w AS page_upto FROM (`,
	`) page_all WINDOW page_w AS (ROWS UNBOUNDED PRECEDING)) page_sum WHERE page_upto <= `

// readPage reads a page. SQLite returns one row after the other, so there the read ends when the byte bound is reached.
func readPage[T any](ctx context.Context, tx Tx, p page, scan func(Row) (T, error)) (list []T, err error) {
	budget, args := store.NewBudget(p.bytes), p.args
	text := tx.PerEngine("", `SELECT page_size, `+p.columns+` FROM (`+p.rows+`) page_all`)
	if text == "" {
		bound := "CAST($" + strconv.Itoa(len(args)+1) + " AS bigint)"
		text = `SELECT page_size, ` + p.columns + ` FROM ` + uptoStart + p.rows + uptoEnd + bound + ` OR page_upto = page_size) page_rows ORDER BY page_n`
		args = append(slices.Clip(args), budget.Bytes())
	}
	err = tx.Query(ctx, text, func(r Row) error {
		var size int
		v, err := scan(prefixed{r, []any{&size}})
		if err != nil {
			return err
		}
		if !budget.Take(size) {
			return ErrEnough
		}
		list = append(list, v)
		if p.read != nil {
			*p.read += size
		}
		return nil
	}, args...)
	return list, err
}

// prefixed is a row whose first columns have other targets.
type prefixed struct {
	Row

	first []any
}

// Scan reads the whole row.
func (p prefixed) Scan(dest ...any) error {
	return p.Row.Scan(append(slices.Clip(p.first), dest...)...)
}
