package sqlite

import (
	"database/sql"
	"fmt"
	"reflect"

	zombiezen "zombiezen.com/go/sqlite"
)

// sharedText is the maximum length of strings of a row that share memory: a row of fifty columns is one allocation, and a short string does not keep a long one
// in memory.
const sharedText = 256

// row is the current row of a statement.
type row struct {
	stmt   *zombiezen.Stmt
	values []value // the text columns of the current row; reused for the next one
	text   []byte
}

// value is a column.
type value struct {
	kind       zombiezen.ColumnType
	number     int64
	text       string
	start, end int // for a string that shares memory
}

// Scan implements sqlstore.Row. It does not convert: a NULL, a string and a number each need a variable of a fitting type.
func (r *row) Scan(dest ...any) error {
	if n := r.stmt.ColumnCount(); n != len(dest) {
		return fmt.Errorf("a row has %d columns, want %d", n, len(dest))
	}
	r.read(len(dest))
	for i, to := range dest {
		if err := r.values[i].into(to, r.stmt, i); err != nil {
			return fmt.Errorf("read column %d of a row: %w", i, err)
		}
	}
	return nil
}

// Values implements sqlstore.Row.
func (r *row) Values() ([]any, error) {
	values := make([]any, r.stmt.ColumnCount())
	r.read(len(values))
	for i, v := range r.values {
		values[i] = v.plain(r.stmt, i)
	}
	return values, nil
}

// read reads the columns, except those that are neither a number nor a string.
func (r *row) read(columns int) {
	r.values, r.text = r.values[:0], r.text[:0]
	for i := range columns {
		v := value{kind: r.stmt.ColumnType(i)}
		switch v.kind {
		case zombiezen.TypeInteger:
			v.number = r.stmt.ColumnInt64(i)
		case zombiezen.TypeText:
			if n := r.stmt.ColumnLen(i); n > sharedText {
				v.text = r.stmt.ColumnText(i)
			} else if n > 0 {
				v.start, v.end = len(r.text), len(r.text)+n
				r.text = append(r.text, make([]byte, n)...)
				r.stmt.ColumnBytes(i, r.text[v.start:])
			}
		default:
		}
		r.values = append(r.values, v)
	}
	for i, all := 0, string(r.text); i < columns; i++ {
		if v := &r.values[i]; v.end > 0 {
			v.text = all[v.start:v.end]
		}
	}
}

// into stores the value of a column.
func (v *value) into(to any, stmt *zombiezen.Stmt, column int) error {
	switch isText, isNumber := v.kind == zombiezen.TypeText, v.kind == zombiezen.TypeInteger; to := to.(type) {
	case *string:
		if isText {
			*to = v.text
			return nil
		}
	case *int64:
		if isNumber {
			*to = v.number
			return nil
		}
	case *int:
		if isNumber {
			*to = int(v.number)
			return nil
		}
	case *bool:
		if isNumber {
			*to = v.number != 0
			return nil
		}
	case **string:
		if *to = nil; isText {
			text := v.text
			*to = &text
		}
		return nil
	case **int64:
		if *to = nil; isNumber {
			number := v.number
			*to = &number
		}
		return nil
	case *float64:
		if isNumber || v.kind == zombiezen.TypeFloat {
			*to = stmt.ColumnFloat(column)
			return nil
		}
	case interface{ SetMillis(ms int64) }: // this needs no interface value for the number
		to.SetMillis(v.number)
		return nil
	case sql.Scanner:
		return to.Scan(v.plain(stmt, column))
	default:
		switch p := reflect.ValueOf(to).Elem(); { // a named type
		case p.Kind() == reflect.String && isText:
			p.SetString(v.text)
			return nil
		case p.CanInt() && isNumber:
			p.SetInt(v.number)
			return nil
		}
	}
	return fmt.Errorf("a %T cannot hold %v", to, v.plain(stmt, column))
}

// plain is the value in its native type.
func (v *value) plain(stmt *zombiezen.Stmt, column int) any {
	switch v.kind {
	case zombiezen.TypeNull:
		return nil
	case zombiezen.TypeText:
		return v.text
	case zombiezen.TypeFloat:
		return stmt.ColumnFloat(column)
	case zombiezen.TypeBlob:
		b := make([]byte, stmt.ColumnLen(column))
		stmt.ColumnBytes(column, b)
		return b
	default:
		return v.number
	}
}

// bind binds a value to a parameter. A list becomes a JSON array.
func bind(stmt *zombiezen.Stmt, n int, v any) error {
	switch v := v.(type) {
	case nil:
		stmt.BindNull(n)
	case string:
		stmt.BindText(n, v)
	case int64:
		stmt.BindInt64(n, v)
	case int:
		stmt.BindInt64(n, int64(v))
	case bool:
		stmt.BindBool(n, v)
	case float64:
		stmt.BindFloat(n, v)
	case []byte:
		stmt.BindBytes(n, v)
	case []string, []int64:
		return bindList(stmt, n, v)
	default:
		switch s := reflect.ValueOf(v); { // a named type
		case s.Kind() == reflect.String:
			stmt.BindText(n, s.String())
		case s.CanInt():
			stmt.BindInt64(n, s.Int())
		default:
			return fmt.Errorf("a parameter cannot be a %T", v)
		}
	}
	return nil
}

func bindList(stmt *zombiezen.Stmt, n int, list any) error {
	if reflect.ValueOf(list).Len() == 0 {
		stmt.BindText(n, "[]")
		return nil
	}
	text, err := encode(list)
	stmt.BindText(n, text)
	return err
}
