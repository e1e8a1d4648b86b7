package transfer

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// Errors of a copy that an operator can resolve.
var (
	// ErrNotEmpty is wrapped when the target has rows that no unfinished copy has written.
	ErrNotEmpty = errors.New("the target is not empty")
	// ErrOtherSource is wrapped when the target has an unfinished copy of another source.
	ErrOtherSource = errors.New("the target has an unfinished copy of another store")
	// ErrDiffers is wrapped when the two sides differ at the end.
	ErrDiffers = errors.New("the copy differs from its source")
	// ErrUnlike is wrapped when the two sides do not have the same tables and columns.
	ErrUnlike = errors.New("the two stores do not have the same tables")
	// ErrUnfinished is wrapped by the adapters when a gateway opens a store with an unfinished copy in it.
	ErrUnfinished = errors.New("the store has an unfinished copy in it")
)

// ProgressTable is where a target stores the position of an unfinished copy. It exists only while the copy is unfinished.
const ProgressTable = "store_copy"

// Bounds of one page: rows, and bytes of text. A page has at least one row.
const (
	PageRows  = 1000
	PageBytes = 4 << 20
)

// Kind is the kind of the values of a column.
type Kind string

// The kinds. A boolean is an Integer, 0 or 1.
const (
	Integer Kind = "integer"
	Number  Kind = "number"
	Text    Kind = "text"
	Bytes   Kind = "bytes"
)

// Value is nil, an int64, a float64, a string or a []byte.
type Value any

// Row is the values of one row in the order of the columns of its table.
type Row []Value

// Column of a table.
type Column struct {
	Name     string
	Kind     Kind
	Nullable bool
}

// Table is a table of a side. Name is the same on both engines.
type Table struct {
	Name    string
	Columns []Column
	// Key are the columns of the primary key, in their order.
	Key []string
	// References are the tables whose rows must exist before those of this one.
	References []string
}

// PageSQL reads a page of the table: the rows after the key. A parameter is mark followed by its number.
func (t Table) PageSQL(after []Value, mark string) (text string, args []any) {
	key, where := Quoted(t.Key...), ""
	if after != nil {
		places := make([]string, len(after))
		for i, v := range after {
			places[i] = mark + strconv.Itoa(i+1)
			args = append(args, v)
		}
		where = " WHERE (" + key + ") > (" + strings.Join(places, ", ") + ")"
	}
	return `SELECT ` + Quoted(t.ColumnNames()...) + ` FROM ` + Quoted(t.Name) + where + ` ORDER BY ` + key + ` LIMIT ` + strconv.Itoa(PageRows), args
}

// ColumnNames are the names of the columns in their order.
func (t Table) ColumnNames() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

// Quoted lists names of the catalog as quoted identifiers: some of them are keywords.
func Quoted(names ...string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return strings.Join(list, ", ")
}

// Side is a store that is open for a copy. One goroutine uses it.
type Side interface {
	// Name is the location of the store for operators, without secrets.
	Name() string
	// Tables are all tables of the store, except the internal ones of its engine.
	Tables(ctx context.Context) ([]Table, error)
	// Count is the number of rows of a table.
	Count(ctx context.Context, t Table) (int64, error)
	// Page returns the rows of t after the key after (nil = from the first), in the order of the key: at most [PageRows], and about [PageBytes]. An empty page
	// means the end.
	Page(ctx context.Context, t Table, after []Value) ([]Row, error)
	// Storable is text in the form that this store can keep.
	Storable(text string) string
}

// Target is the side that is written.
type Target interface {
	Side
	// Begin returns the position of an unfinished copy, nil when none exists.
	Begin(ctx context.Context) ([]byte, error)
	// Put inserts rows and stores the position of the copy, in one commit. The first call has no rows and creates the position.
	Put(ctx context.Context, t Table, rows []Row, position []byte) error
	// Finish deletes the position and makes the store usable for a gateway.
	Finish(ctx context.Context, tables []Table) error
}
