package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
)

// Sum is the number of rows of a table and a checksum of their content that does not depend on their order.
type Sum struct { //nolint:recvcheck // add changes it, the others only look at it
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

// add counts a row. Its values are in their common form, in the order of their columns' names. In loose columns NULL and the empty string are equal.
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

// inNames are the columns of both sides in the order of their names, so that a checksum is the same for every engine.
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

// appendValue writes a value so that different rows have different bytes: its kind, and for strings the length.
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

// sum reads a whole table. The columns of t are in the order of the source on both sides, so that equal rows have equal sums.
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
