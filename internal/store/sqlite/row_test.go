package sqlite

import (
	"strings"
	"testing"
	"time"

	"laneway/internal/store/sqlstore"
)

// instantColumn reads a time in milliseconds.
type instantColumn struct{ to *time.Time }

// Scan implements sql.Scanner.
func (c instantColumn) Scan(v any) error {
	ms, _ := v.(int64) // NULL is 0
	c.SetMillis(ms)
	return nil
}

// SetMillis is called by a row instead of Scan.
func (c instantColumn) SetMillis(ms int64) { *c.to = instant(ms) }

// look is a connection to an empty database.
func look(t *testing.T) *conn {
	t.Helper()
	c, err := openWriting(migrated(t), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestARowReadsWhatWasBound checks that each value is read as it was bound, whatever the other
// values of its row are, and stays valid when the next row is read.
func TestARowReadsWhatWasBound(t *testing.T) {
	t.Parallel()
	c := look(t)
	type word string
	type columns struct {
		s        string
		n        int64
		none     *string
		some     *string
		noNumber *int64
		w        word
		at, nil  time.Time
		on       bool
		f        float64
	}
	texts := []string{"", "plain", "line\nfeed\tand \x00 NUL", "ünïcode 🙂", strings.Repeat("long ", 1000), strings.Repeat("x", sharedText), strings.Repeat("x", sharedText+1)}
	for _, text := range texts {
		for _, number := range []int64{0, -1, 1<<53 + 1, 1<<63 - 1, -1 << 63} {
			var rows []columns
			err := c.query(`SELECT ?1, ?2, NULL, ?3, NULL, ?4, ?5, NULL, ?6, ?7 UNION ALL SELECT 'other', 7, 'x', 'other', 7, 'other', 1, 1, 0, 1.0`, func(r sqlstore.Row) error {
				var read columns
				err := r.Scan(&read.s, &read.n, &read.none, &read.some, &read.noNumber, &read.w, instantColumn{&read.at}, instantColumn{&read.nil}, &read.on, &read.f)
				rows = append(rows, read)
				return err
			}, text, number, text, word(text), int64(1_700_000_000_000), true, 0.25)
			if err != nil || len(rows) != 2 {
				t.Fatalf("%d rows, %v", len(rows), err)
			}
			read := rows[0]
			if read.s != text || read.n != number || read.none != nil || *read.some != text || read.noNumber != nil || read.w != word(text) ||
				!read.at.Equal(time.UnixMilli(1_700_000_000_000)) || !read.nil.IsZero() || !read.on || read.f != 0.25 {
				t.Errorf("%.20q and %d: read %+v", text, number, read)
			}
		}
	}
}

func TestAColumnThatItsVariableCannotHoldIsAnError(t *testing.T) {
	t.Parallel()
	c := look(t)
	var n int64
	var s string
	for name, q := range map[string]struct {
		text string
		to   []any
	}{
		"a string into a number": {`SELECT 'x'`, []any{&n}},
		"a number into a string": {`SELECT 1`, []any{&s}},
		"NULL into a string":     {`SELECT NULL`, []any{&s}},
		"NULL into a number":     {`SELECT NULL`, []any{&n}},
		"NULL into a fraction":   {`SELECT NULL`, []any{new(float64)}},
		"too many columns":       {`SELECT 1, 2`, []any{&n}},
		"too few columns":        {`SELECT 1`, []any{&n, &n}},
		"a fraction":             {`SELECT 1.5`, []any{&n}},
	} {
		if err := c.query(q.text, func(r sqlstore.Row) error { return r.Scan(q.to...) }); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	if err := c.exec(`SELECT ?`, struct{}{}); err == nil {
		t.Error("a parameter was a struct")
	}
}

// TestAListIsAnArrayInJSON checks that an empty list has no elements, instead of one that is NULL.
func TestAListIsAnArrayInJSON(t *testing.T) {
	t.Parallel()
	c := look(t)
	for want, list := range map[string]any{`["a","\"b"]`: []string{"a", `"b`}, `[1,-9223372036854775808]`: []int64{1, -1 << 63}, `[]`: []string(nil)} {
		var got string
		if err := c.query(`SELECT ?`, func(r sqlstore.Row) error { return r.Scan(&got) }, list); err != nil || got != want {
			t.Errorf("got %s (%v), want %s", got, err, want)
		}
	}
	var blob []any
	err := c.query(`SELECT ?`, func(r sqlstore.Row) (err error) {
		blob, err = r.Values()
		return err
	}, []byte("\x00\xff"))
	if err != nil || len(blob) != 1 || string(blob[0].([]byte)) != "\x00\xff" {
		t.Errorf("got %v, %v", blob, err)
	}
}
