package sqlite

import (
	"strings"
	"testing"
	"time"
)

// asOne and column make a list of columns one column, as the dialect does.
const asOne, column = `json_array(`, `) AS r`

// instantColumn reads a time in milliseconds.
type instantColumn struct{ to *time.Time }

// Scan implements sql.Scanner.
func (c instantColumn) Scan(v any) error {
	ms, _ := v.(int64) // NULL is 0
	c.SetMillis(ms)
	return nil
}

// SetMillis is what a packed row calls instead.
func (c instantColumn) SetMillis(ms int64) { *c.to = instant(ms) }

// TestAPackedRowReadsAsItsColumns compares both ways of reading a row.
func TestAPackedRowReadsAsItsColumns(t *testing.T) {
	t.Parallel()
	db := outside(t, open(t).path)
	texts := []string{"", "plain", `a "quoted" \ text`, "line\nfeed\tand \x00 NUL", "ünïcode 🙂", strings.Repeat("long ", 1000), `[1,"x"],`, "null"}
	const columns = `?1, ?2, NULL, ?3, ?4, ?5, NULL, 1`
	type word string
	for _, text := range texts {
		for _, number := range []int64{0, -1, 1_700_000_000_000, 1<<63 - 1, -1 << 63} {
			var plain, read struct {
				s       string
				n       int64
				none    *string
				some    *string
				w       word
				at, nil time.Time
				on      bool
			}
			args := []any{text, number, text, text, 1_700_000_000_000}
			if err := db.QueryRow(`SELECT `+columns, args...).Scan(&plain.s, &plain.n, &plain.none, &plain.some, &plain.w, instantColumn{&plain.at}, instantColumn{&plain.nil}, &plain.on); err != nil {
				t.Fatal(err)
			}
			row := packed{db.QueryRow(`SELECT `+asOne+columns+column, args...)}
			if err := row.Scan(&read.s, &read.n, &read.none, &read.some, &read.w, instantColumn{&read.at}, instantColumn{&read.nil}, &read.on); err != nil {
				t.Fatal(err)
			}
			if read.s != plain.s || read.n != plain.n || read.none != nil || *read.some != *plain.some || read.w != plain.w || read.at != plain.at || read.nil != plain.nil || read.on != plain.on {
				t.Errorf("%.20q and %d: read %+v, want %+v", text, number, read, plain)
			}
		}
	}
	var n int64
	var s string
	for name, err := range map[string]error{
		"a text into a number": packed{db.QueryRow(`SELECT ` + asOne + `'x'` + column)}.Scan(&n),
		"NULL into a text":     packed{db.QueryRow(`SELECT ` + asOne + `NULL` + column)}.Scan(&s),
		"too many columns":     packed{db.QueryRow(`SELECT ` + asOne + `1, 2` + column)}.Scan(&n),
		"too few columns":      packed{db.QueryRow(`SELECT ` + asOne + `1` + column)}.Scan(&n, &n),
		"a fraction":           packed{db.QueryRow(`SELECT ` + asOne + `1.5` + column)}.Scan(&n),
	} {
		if err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}
