package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// ErrUnfinished is wrapped by the adapters when a gateway opens a store with an unfinished copy
	// in it.
	ErrUnfinished = errors.New("the store has an unfinished copy in it")
)

// ProgressTable is where a target stores the position of an unfinished copy. It exists only while
// the copy is unfinished.
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

// PageSQL reads a page of the table: the rows after the key. A parameter is mark followed by its
// number.
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

// Side is a store that is open for a copy. One goroutine uses it. Only the side that is written
// begins, puts and finishes.
type Side interface {
	// Name is the location of the store for operators, without secrets.
	Name() string
	// Tables are all tables of the store, except the internal ones of its engine.
	Tables(ctx context.Context) ([]Table, error)
	// Count is the number of rows of a table.
	Count(ctx context.Context, t Table) (int64, error)
	// Page returns the rows of t after the key after (nil = from the first), in the order of the
	// key: at most [PageRows], and about [PageBytes]. An empty page means the end.
	Page(ctx context.Context, t Table, after []Value) ([]Row, error)
	// Storable is text in the form that this store can keep.
	Storable(text string) string
	// Begin returns the position of an unfinished copy, nil when none exists.
	Begin(ctx context.Context) ([]byte, error)
	// Put inserts rows and stores the position of the copy, in one commit. The first call has no
	// rows and creates the position.
	Put(ctx context.Context, t Table, rows []Row, position []byte) error
	// Finish deletes the position and makes the store usable for a gateway.
	Finish(ctx context.Context, tables []Table) error
	// Close releases the store.
	Close() error
}

// pair is one table on both sides. The columns of both are in the order of the source.
type pair struct{ from, to Table }

// pairUp pairs the tables of two sides, each after those that it references, or returns an error
// wrapping [ErrUnlike] that names every difference.
func pairUp(from, to []Table) ([]pair, error) {
	var faults []string
	pairs := map[string]pair{}
	for _, f := range from {
		i := slices.IndexFunc(to, func(t Table) bool { return t.Name == f.Name })
		if i < 0 {
			faults = append(faults, "the target has no table "+f.Name)
			continue
		}
		p, unlike := match(f, to[i])
		faults = append(faults, unlike...)
		pairs[f.Name] = p
	}
	for _, t := range to {
		if !slices.ContainsFunc(from, func(f Table) bool { return f.Name == t.Name }) {
			faults = append(faults, "the source has no table "+t.Name)
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %s; nothing was copied", ErrUnlike, strings.Join(faults, ", "))
	}
	return inOrder(pairs)
}

// match pairs the columns of a table, and makes their nullability comparable.
func match(from, to Table) (pair, []string) {
	var faults []string
	columns := make([]Column, 0, len(from.Columns))
	for _, f := range from.Columns {
		i := slices.IndexFunc(to.Columns, func(c Column) bool { return c.Name == f.Name })
		switch {
		case i < 0:
			faults = append(faults, "the target has no column "+from.Name+"."+f.Name)
			continue
		case to.Columns[i].Kind != f.Kind:
			faults = append(faults, fmt.Sprintf("column %s.%s is %s in the source and %s in the target", from.Name, f.Name, f.Kind, to.Columns[i].Kind))
		case to.Columns[i].Nullable != f.Nullable && f.Kind != Text:
			faults = append(faults, fmt.Sprintf("column %s.%s may be NULL on one side only", from.Name, f.Name))
		}
		columns = append(columns, to.Columns[i])
	}
	for _, c := range to.Columns {
		if !slices.ContainsFunc(from.Columns, func(f Column) bool { return f.Name == c.Name }) {
			faults = append(faults, "the source has no column "+to.Name+"."+c.Name)
		}
	}
	if len(from.Key) == 0 || len(to.Key) == 0 {
		faults = append(faults, "table "+from.Name+" has no primary key")
	}
	to.Columns = columns
	return pair{from, to}, faults
}

// inOrder sorts the tables so that each comes after those that it references on either side, and
// otherwise by name.
func inOrder(pairs map[string]pair) ([]pair, error) {
	var sorted []pair
	done := map[string]bool{}
	for len(sorted) < len(pairs) {
		next := ""
		for name, p := range pairs {
			if !done[name] && (next == "" || name < next) && ready(p, done) {
				next = name
			}
		}
		if next == "" {
			return nil, fmt.Errorf("%w: their references are a circle", ErrUnlike)
		}
		done[next] = true
		sorted = append(sorted, pairs[next])
	}
	return sorted, nil
}

func ready(p pair, done map[string]bool) bool {
	return !slices.ContainsFunc(slices.Concat(p.from.References, p.to.References), func(name string) bool { return !done[name] && name != p.from.Name })
}

// loose reports for each column whether NULL and the empty string mean the same, because one side
// has only one of them.
func (p pair) loose() []bool {
	loose := make([]bool, len(p.from.Columns))
	for i, c := range p.from.Columns {
		loose[i] = c.Nullable != p.to.Columns[i].Nullable
	}
	return loose
}

// translate turns rows of the source into rows of the target.
func (p pair) translate(rows []Row, storable func(string) string) (altered int64) {
	loose := p.loose()
	for _, row := range rows {
		for i, v := range row {
			if text, ok := v.(string); ok {
				clean := storable(text)
				if clean != text {
					altered++
				}
				row[i] = clean
			}
			if !loose[i] {
				continue
			}
			switch {
			case row[i] == nil && !p.to.Columns[i].Nullable:
				row[i] = ""
			case row[i] == "" && p.to.Columns[i].Nullable:
				row[i] = nil
			}
		}
	}
	return altered
}

// keyOf is the key of a row of the source.
func (p pair) keyOf(row Row) []Value {
	key := make([]Value, len(p.from.Key))
	for i, name := range p.from.Key {
		key[i] = row[slices.IndexFunc(p.from.Columns, func(c Column) bool { return c.Name == name })]
	}
	return key
}
