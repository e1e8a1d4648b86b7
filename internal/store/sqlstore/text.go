package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"laneway/internal/store"
)

// Dialect turns the statement templates of this package into statements of an engine. The templates
// are the subset of PostgreSQL's SQL that SQLite supports, with these marks:
//
//	{now}              the store's clock, milliseconds
//	{lock}, {skip}     FOR UPDATE, FOR UPDATE SKIP LOCKED, {skip s} of the table s; nothing on SQLite, which has one writer
//	{booted}           when the database started, milliseconds; 0 = unknown, as on SQLite. The template also has a {now}
//	{limit $1}         LIMIT with a parameter
//	{in $1}            = ANY of a parameter of type []string
//	{ints $1}          the same for []int64
//	{json x}           the column x as a JSON value
//	{least}, {greatest}   the function of several values
//	{open i}           a message i has no outcome: the condition of the indexes of those; {open} without an alias
//	{running r}        a run r has not ended, in the same way
//	{by index}         the index that SQLite must use; otherwise it would read the whole history in key order
//	{true x}           a boolean column in the form of a partial index
//	{set a text, b int, c bool}   declares the row set v of the statement; it comes first
//	v.a                a column of the row set
//	{from}, {and}      FROM v, and v as a further item of a FROM
//
// A statement with a row set runs once on PostgreSQL, and once for each row on SQLite. There,
// INSERT … SELECT … {from} WHERE true has VALUES.
type Dialect struct {
	sqlite bool
	cache  sync.Map // template → *Statement; the templates are constants and their few combinations
}

// Postgres is the dialect of PostgreSQL.
func Postgres() *Dialect { return &Dialect{} }

// SQLite is the dialect of SQLite.
func SQLite() *Dialect { return &Dialect{sqlite: true} }

// Statement is a template in the form of one engine.
type Statement struct {
	SQL string
	// Now is the number of the parameter for the clock, counted from 1; 0 when the statement does
	// not use it. On PostgreSQL it may be NULL outside of a transaction, which means the clock of
	// the database.
	Now int
	// Writes reports that the statement may change rows.
	Writes bool

	first int // number of the first parameter of the row set
	names []string
	order []int // SQLite: the column of each parameter of the row set
}

// Of returns the statement of a template. It panics on an unknown mark.
func (d *Dialect) Of(text string) *Statement {
	if s, ok := d.cache.Load(text); ok {
		return s.(*Statement) //nolint:forcetypeassert,errcheck // the cache holds nothing else
	}
	s := d.resolve(text)
	d.cache.Store(text, s)
	return s
}

var (
	setMark   = regexp.MustCompile(`^\s*\{set ([^}]*)\}`)
	anyMark   = regexp.MustCompile(`\{(\w+)(?: ([^}]*))?\}`)
	parameter = regexp.MustCompile(`\$(\d+)`)
	setColumn = regexp.MustCompile(`\bv\.(\w+)\b`)
	// rowOfSet matches an INSERT of the rows of the set. For INSERT … SELECT, SQLite expects many
	// rows, and keeps a copy of every page that it changes until the statement ends.
	rowOfSet = regexp.MustCompile(`(?s)^(\s*INSERT INTO [^()]*\([^()]*\)\s+)SELECT (.*?)\s+\{from\} WHERE true`)
)

func (d *Dialect) resolve(text string) *Statement {
	s := &Statement{}
	var types []string
	if m := setMark.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		for part := range strings.SplitSeq(m[1], ",") {
			name, kind, _ := strings.Cut(strings.TrimSpace(part), " ")
			s.names, types = append(s.names, name), append(types, kind)
		}
	}
	if d.sqlite && types != nil {
		text = rowOfSet.ReplaceAllString(text, "${1}VALUES (${2})")
	}
	last := 0
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1]) // digits
		last = max(last, n)
	}
	if strings.Contains(text, "{now}") {
		last++
		s.Now = last
		text = strings.ReplaceAll(text, "{now}", d.now(last)) // first, because it may be inside another mark
	}
	s.first = last + 1
	text = anyMark.ReplaceAllStringFunc(text, func(mark string) string {
		m := anyMark.FindStringSubmatch(mark)
		return d.replace(s, types, m[1], m[2])
	})
	head := strings.ToUpper(strings.TrimSpace(text))
	s.Writes = !strings.HasPrefix(head, "SELECT")
	if d.sqlite {
		text = s.columnsAsParameters(text)
		text = parameter.ReplaceAllString(text, "?$1")
	}
	s.SQL = text
	return s
}

// clock is the parameter, or the database's clock when the parameter is NULL.
const clock = `COALESCE($%d::bigint, (date_part('epoch', now()) * 1000)::bigint)`

const booted = `CASE WHEN $%d::bigint IS NULL THEN (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint ELSE 0 END`

func (d *Dialect) now(n int) string {
	if d.sqlite {
		return "$" + strconv.Itoa(n)
	}
	return fmt.Sprintf(clock, n)
}

func (d *Dialect) replace(s *Statement, types []string, name, of string) string {
	var postgres, sqlite string
	switch name {
	case "lock":
		postgres = "FOR UPDATE"
	case "skip":
		postgres = "FOR UPDATE SKIP LOCKED"
		if of != "" {
			postgres = "FOR UPDATE OF " + of + " SKIP LOCKED"
		}
	case "booted": // an injected clock has no start time
		postgres, sqlite = fmt.Sprintf(booted, s.Now), "0"
	case "limit":
		// For LIMIT ? SQLite's planner inspects the value and compiles the statement again after
		// each binding.
		postgres, sqlite = "LIMIT "+of, "LIMIT +"+of
	case "in":
		postgres, sqlite = "= ANY("+of+"::text[])", "IN (SELECT value FROM json_each("+of+"))"
	case "ints":
		postgres, sqlite = "= ANY("+of+"::bigint[])", "IN (SELECT value FROM json_each("+of+"))"
	case "json":
		postgres, sqlite = of+"::json", of
	case "least":
		postgres, sqlite = "least", "min"
	case "greatest":
		postgres, sqlite = "greatest", "max"
	case "open":
		postgres = alias(of) + "ended_at IS NULL AND " + alias(of) + "state <> 'done'"
		sqlite = postgres
	case "running":
		postgres = alias(of) + "ended_at IS NULL AND " + alias(of) + "state IN ('running', 'stopping', 'yielded')"
		sqlite = postgres
	case "by":
		sqlite = "INDEXED BY " + of
	case "true":
		postgres, sqlite = of, of+" = 1"
	case "from":
		postgres = "FROM " + s.recordset(types)
	case "and":
		postgres = ", " + s.recordset(types)
	default:
		panic("sqlstore: unknown mark {" + name + "}")
	}
	if d.sqlite {
		return sqlite
	}
	return postgres
}

// alias is the prefix for columns of a table with an alias; "" without an alias.
func alias(name string) string {
	if name == "" {
		return ""
	}
	return name + "."
}

// recordset are the rows of a set. The bounds on their numbers exclude nothing: they make the
// planner expect a single row, and so look up the rows of other tables one by one. Otherwise it
// expects a hundred, and may read a whole table whose statistics are outdated.
func (s *Statement) recordset(types []string) string {
	columns := make([]string, len(types))
	for i, kind := range types {
		sql, ok := map[string]string{"text": "text", "int": "bigint", "bool": "boolean"}[kind]
		if !ok {
			panic("sqlstore: unknown type of a column: " + kind)
		}
		columns[i] = s.names[i] + " " + sql
	}
	return fmt.Sprintf("(SELECT * FROM ROWS FROM (json_to_recordset($%d::json) AS (%s)) WITH ORDINALITY AS v(%s, row_n) WHERE row_n BETWEEN 1 AND 1000000) v",
		s.first, strings.Join(columns, ", "), strings.Join(s.names, ", "))
}

// columnsAsParameters replaces the columns of the row set by parameters, in the order of their
// first use.
func (s *Statement) columnsAsParameters(text string) string {
	at := map[string]int{}
	return setColumn.ReplaceAllStringFunc(text, func(use string) string {
		name := use[len("v."):]
		for i, n := range s.names {
			if n != name {
				continue
			}
			if _, ok := at[name]; !ok {
				at[name] = s.first + len(s.order)
				s.order = append(s.order, i)
			}
			return "$" + strconv.Itoa(at[name])
		}
		return use // a table of that name
	})
}

// Set is the row set of a statement: rows with the columns that the statement declares. A value is
// a string, an integer or a boolean.
type Set [][]any

// HasSet reports whether the statement has a row set.
func (s *Statement) HasSet() bool { return s.names != nil }

// Split separates the plain arguments of a statement from its row set.
func (s *Statement) Split(args []any) (plain []any, rows Set, err error) {
	if !s.HasSet() {
		return args, nil, nil
	}
	if len(args) > 0 {
		if rows, ok := args[len(args)-1].(Set); ok {
			return args[:len(args)-1], rows, nil
		}
	}
	return nil, nil, fmt.Errorf("the last argument of a statement with a row set is not a Set: %s", s.SQL)
}

// JSON is the row set in the form for PostgreSQL; clean makes a string storable.
func (s *Statement) JSON(rows Set, clean func(string) string) ([]byte, error) {
	b := append(make([]byte, 0, 32*len(rows)*len(s.names)+2), '[')
	for i, row := range rows {
		if len(row) != len(s.names) {
			return nil, fmt.Errorf("a row has %d values for the columns %v", len(row), s.names)
		}
		if i > 0 {
			b = append(b, ',')
		}
		for c, v := range row {
			b = append(append(append(b, "{,"[min(c, 1)], '"'), s.names[c]...), `":`...)
			var err error
			if b, err = appendJSON(b, v, clean); err != nil {
				return nil, fmt.Errorf("encode a row set: %w", err)
			}
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

// appendJSON appends a value. Most are numbers and plain words, which need no reflection.
func appendJSON(b []byte, v any, clean func(string) string) ([]byte, error) {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		text := clean(v)
		if plain(text) {
			return append(append(append(b, '"'), text...), '"'), nil
		}
		quoted, err := json.Marshal(text)
		return append(b, quoted...), err
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// plain reports whether a string needs no escaping in JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			return false
		}
	}
	return true
}

// Parameters calls bind with the number and the value of each parameter of a row of the set, for
// SQLite. A statement without a set has no such parameters.
func (s *Statement) Parameters(row []any, bind func(n int, v any) error) error {
	if len(row) != len(s.names) {
		return fmt.Errorf("a row has %d values for the columns %v", len(row), s.names)
	}
	for i, c := range s.order {
		if err := bind(s.first+i, row[c]); err != nil {
			return err
		}
	}
	return nil
}

// page is a list with a byte bound. rows is a query with an order and a limit, whose column
// page_size has the bytes of a row; columns are those to return. bytes bounds the page; 0 =
// store.ReadBytes. At least one row is read. The bytes of the rows are added to read unless it is
// nil.
type page struct {
	columns, rows string
	bytes         int
	read          *int
	args          []any
}

// uptoStart and uptoEnd make PostgreSQL compute lengths without reading the text, and return the
// text of the selected rows only.
const uptoStart, uptoEnd = `(SELECT * FROM (SELECT *, row_number() OVER page_w AS page_n, sum(page_size) OVER page_w AS page_upto FROM (`,
	`) page_all WINDOW page_w AS (ROWS UNBOUNDED PRECEDING)) page_sum WHERE page_upto <= `

// readPage reads a page. SQLite returns one row after the other, so there the read ends when the
// byte bound is reached.
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
