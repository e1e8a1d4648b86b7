package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	to       Target
	o        Options
	pairs    []pair
	position position
}

// Copy makes to equal to from, and verifies it. An interrupted copy continues. Errors wrap [ErrUnlike], [ErrNotEmpty], [ErrOtherSource] or [ErrDiffers], or are
// those of a side; after an error the call may be repeated.
func Copy(ctx context.Context, from Side, to Target, o Options) (*Result, error) {
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
