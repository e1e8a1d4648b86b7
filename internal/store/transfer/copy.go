// Package transfer copies the whole content of one store into another, of the same or another
// engine, and verifies that it is complete.
//
// # Central ideas
//
// The list of tables comes from the databases, not from this program: an adapter reads its catalog
// and returns every table except its own internal ones ([Side].Tables). A table that only one side
// has, or a column, stops the copy before the first row. So a table of a later migration is copied
// without a change here, and a test detects one that is added for one engine only.
//
// Values have one common form ([Value]): NULL, an integer, a number, a string, bytes. Two
// differences between the engines are rules, not lists. A text column that is NOT NULL on one side
// may be NULL on the other: there NULL and the empty string mean the same. One side may refuse NUL
// and invalid UTF-8 ([Side].Storable): strings are compared in the form that it stores, and the
// result counts the changed ones.
//
// Rows are copied in pages in the order of the primary key, a table after those that it references.
// A page and the position after it are one commit of the target ([Side].Put), so an interrupted
// copy continues where it ended. While a position exists, the target is not a usable store: its
// adapter refuses to open it for a gateway.
//
// At the end both sides are read again. For each table the number of rows and a checksum, which
// does not depend on their order, must be equal. That also detects a source that has changed
// between two attempts.
//
// # Goroutines
//
// None: [Copy] runs in the goroutine of its caller and ends with its context.
//
// # Crash points
//
// Before the first commit the target is empty. Between two commits it has whole pages and their
// position. After the last one ([Side].Finish) it has no position, and a gateway may open it. The
// source is never written.
//
// # What it does not do
//
// It does not exclude gateways: the adapters do, with a lock on each side while the side is open.
// It does not copy the files of conversations, which are not in the store.
package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Options are the options of a copy.
type Options struct {
	// Report is called in the goroutine of [Copy] after each page; nil disables it.
	Report func(Step)
}

// Step is the progress of a copy.
type Step struct {
	// Phase is "copy", or "verify", which reads each table of both sides.
	Phase string
	Table string
	// Rows of Total rows of the table are done. During verification, each row counts on both sides.
	Rows, Total int64
	// Resumed: the rows of this table before the first step were copied by an earlier attempt.
	Resumed bool
}

// Result is the result of a copy.
type Result struct {
	Tables []TableResult
	// Altered counts the strings from which characters that the target cannot store were removed.
	Altered int64
}

// TableResult is a table that is equal on both sides.
type TableResult struct {
	Name string
	Sum  Sum
}

// position is the stored state of an unfinished copy.
type position struct {
	Source  string                    `json:"source"`
	Altered int64                     `json:"altered"`
	Tables  map[string]*tablePosition `json:"tables"`
}

// tablePosition is the progress in one table.
type tablePosition struct {
	Rows  int64             `json:"rows"`
	After []json.RawMessage `json:"after,omitempty"`
	Done  bool              `json:"done"`
}

type copier struct {
	from     Side
	to       Side
	o        Options
	pairs    []pair
	position position
}

// Copy makes to equal to from, and verifies it. An interrupted copy continues. Errors wrap
// [ErrUnlike], [ErrNotEmpty], [ErrOtherSource] or [ErrDiffers], or are those of a side; after an
// error the call may be repeated.
func Copy(ctx context.Context, from, to Side, o Options) (*Result, error) {
	if o.Report == nil {
		o.Report = func(Step) {}
	}
	c := &copier{from: from, to: to, o: o}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	for _, p := range c.pairs {
		if err := c.table(ctx, p); err != nil {
			return nil, fmt.Errorf("copying the table %s: %w", p.from.Name, err)
		}
	}
	result, err := c.verify(ctx)
	if err != nil {
		return nil, err
	}
	return result, to.Finish(ctx, c.targets())
}

// begin pairs the tables and determines where to start.
func (c *copier) begin(ctx context.Context) error {
	from, err := c.from.Tables(ctx)
	if err != nil {
		return err
	}
	to, err := c.to.Tables(ctx)
	if err != nil {
		return err
	}
	if c.pairs, err = pairUp(from, to); err != nil {
		return err
	}
	saved, err := c.to.Begin(ctx)
	if err != nil {
		return err
	}
	c.position = position{Source: c.from.Name(), Tables: map[string]*tablePosition{}}
	if saved != nil {
		return c.resume(saved)
	}
	if err := c.refuseRows(ctx); err != nil {
		return err
	}
	return c.put(ctx, Table{}, nil)
}

// resume continues from the position of an earlier attempt.
func (c *copier) resume(saved []byte) error {
	var p position
	if err := json.Unmarshal(saved, &p); err != nil {
		return fmt.Errorf("reading the position of the unfinished copy: %w", err)
	}
	if p.Source != c.from.Name() {
		return fmt.Errorf("%w, %s: finish that one, or name a new database", ErrOtherSource, p.Source)
	}
	c.position = p
	return nil
}

// refuseRows refuses a target that has any row.
func (c *copier) refuseRows(ctx context.Context) error {
	for _, p := range c.pairs {
		n, err := c.to.Count(ctx, p.to)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%w: its table %s has %d rows; name a new database; nothing was changed", ErrNotEmpty, p.to.Name, n)
		}
	}
	return nil
}

func (c *copier) targets() []Table {
	tables := make([]Table, len(c.pairs))
	for i, p := range c.pairs {
		tables[i] = p.to
	}
	return tables
}

// table copies the remaining rows of a table.
func (c *copier) table(ctx context.Context, p pair) error {
	at := c.position.Tables[p.from.Name]
	resumed := at != nil
	if at == nil {
		at = &tablePosition{}
		c.position.Tables[p.from.Name] = at
	}
	total, err := c.from.Count(ctx, p.from)
	if err != nil {
		return err
	}
	after, err := at.key(p)
	if err != nil {
		return err
	}
	for !at.Done {
		rows, err := c.from.Page(ctx, p.from, after)
		if err != nil {
			return err
		}
		at.Done, at.Rows = len(rows) == 0, at.Rows+int64(len(rows))
		if !at.Done {
			after = p.keyOf(rows[len(rows)-1])
			if at.After, err = encodeKey(after); err != nil {
				return err
			}
		}
		c.position.Altered += p.translate(rows, c.storable)
		if err := c.put(ctx, p.to, rows); err != nil {
			return err
		}
		if len(rows) > 0 || total == 0 {
			c.o.Report(Step{Phase: "copy", Table: p.from.Name, Rows: at.Rows, Total: total, Resumed: resumed})
		}
	}
	return nil
}

func (c *copier) put(ctx context.Context, t Table, rows []Row) error {
	text, err := json.Marshal(c.position)
	if err != nil {
		return fmt.Errorf("writing the position: %w", err)
	}
	return c.to.Put(ctx, t, rows, text)
}

// storable is the form of a string that both sides can store.
func (c *copier) storable(text string) string { return c.to.Storable(c.from.Storable(text)) }

// verify compares both sides table by table.
func (c *copier) verify(ctx context.Context) (*Result, error) {
	result := &Result{Altered: c.position.Altered}
	for _, p := range c.pairs {
		total, err := c.from.Count(ctx, p.from)
		if err != nil {
			return nil, err
		}
		report := func(before int64) func(int64) {
			return func(rows int64) {
				c.o.Report(Step{Phase: "verify", Table: p.from.Name, Rows: before + rows, Total: 2 * total})
			}
		}
		source, err := c.sum(ctx, c.from, p.from, p, report(0))
		if err != nil {
			return nil, fmt.Errorf("reading the table %s of the source again: %w", p.from.Name, err)
		}
		copied, err := c.sum(ctx, c.to, p.to, p, report(total))
		if err != nil {
			return nil, fmt.Errorf("reading the table %s of the copy: %w", p.from.Name, err)
		}
		if source != copied {
			return nil, fmt.Errorf("%w: the table %s has %d rows there and %d here, and their checksums are %.16s and %.16s; "+
				"the source was changed between two attempts: copy it into a new database", ErrDiffers, p.from.Name, source.Rows, copied.Rows, source, copied)
		}
		result.Tables = append(result.Tables, TableResult{Name: p.from.Name, Sum: source})
	}
	return result, nil
}

// key is the position as values; nil = the beginning.
func (p *tablePosition) key(of pair) ([]Value, error) {
	if p.After == nil {
		return nil, nil
	}
	key := make([]Value, len(p.After))
	for i, raw := range p.After {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&key[i]); err != nil {
			return nil, fmt.Errorf("reading the position of the unfinished copy: %w", err)
		}
		if n, ok := key[i].(json.Number); ok {
			whole, err := n.Int64()
			if err != nil {
				return nil, fmt.Errorf("reading the position of the unfinished copy: %w", err)
			}
			key[i] = whole
		}
	}
	if len(key) != len(of.from.Key) {
		return nil, errors.New("the position of the unfinished copy is one of another schema: copy into a new database")
	}
	return key, nil
}

func encodeKey(key []Value) ([]json.RawMessage, error) {
	encoded := make([]json.RawMessage, len(key))
	for i, v := range key {
		switch v.(type) {
		case int64, string:
		default:
			return nil, fmt.Errorf("a key has a value of %T, which a position cannot keep", v)
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("writing the position: %w", err)
		}
		encoded[i] = text
	}
	return encoded, nil
}

// Sum is the number of rows of a table and a checksum of their content that does not depend on
// their order.
type Sum struct {
	Rows int64
	// lanes are sums over the rows: each row adds its SHA-256, as four numbers.
	lanes [4]uint64
}

// String is the checksum in 64 hexadecimal digits.
func (s Sum) String() string {
	var raw [32]byte
	for i, lane := range s.lanes {
		binary.BigEndian.PutUint64(raw[8*i:], lane)
	}
	return hex.EncodeToString(raw[:])
}

// add counts a row. Its values are in their common form, in the order of their columns' names. In
// loose columns NULL and the empty string are equal.
func (s *Sum) add(row Row, columns []summed, storable func(string) string, buffer []byte) []byte {
	buffer = buffer[:0]
	for _, c := range columns {
		v := row[c.place]
		if text, ok := v.(string); ok {
			v = storable(text)
		}
		if c.loose && v == nil {
			v = ""
		}
		buffer = appendValue(buffer, v)
	}
	digest := sha256.Sum256(buffer)
	for i := range s.lanes {
		s.lanes[i] += binary.BigEndian.Uint64(digest[8*i:])
	}
	s.Rows++
	return buffer
}

// summed is a column of a row to add.
type summed struct {
	place int
	loose bool
}

// inNames are the columns of both sides in the order of their names, so that a checksum is the same
// for every engine.
func (p pair) inNames() []summed {
	columns, loose := make([]summed, len(p.from.Columns)), p.loose()
	for i := range columns {
		columns[i] = summed{i, loose[i]}
	}
	slices.SortFunc(columns, func(a, b summed) int {
		return strings.Compare(p.from.Columns[a.place].Name, p.from.Columns[b.place].Name)
	})
	return columns
}

// appendValue writes a value so that different rows have different bytes: its kind, and for strings
// the length.
func appendValue(b []byte, v Value) []byte {
	switch v := v.(type) {
	case int64:
		return binary.BigEndian.AppendUint64(append(b, 'i'), uint64(v)) //nolint:gosec // the bits, not the number
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 'f'), math.Float64bits(v))
	case string:
		return append(binary.BigEndian.AppendUint64(append(b, 't'), uint64(len(v))), v...)
	case []byte:
		return append(binary.BigEndian.AppendUint64(append(b, 'b'), uint64(len(v))), v...)
	default:
		return append(b, '0')
	}
}

// sum reads a whole table. The columns of t are in the order of the source on both sides, so that
// equal rows have equal sums.
func (c *copier) sum(ctx context.Context, side Side, t Table, p pair, read func(rows int64)) (Sum, error) {
	var (
		s       Sum
		buffer  []byte
		after   []Value
		columns = p.inNames()
	)
	keys := pair{from: t}
	for {
		rows, err := side.Page(ctx, t, after)
		if err != nil || len(rows) == 0 {
			return s, err
		}
		for _, row := range rows {
			buffer = s.add(row, columns, c.storable, buffer)
		}
		after = keys.keyOf(rows[len(rows)-1])
		read(s.Rows)
	}
}
