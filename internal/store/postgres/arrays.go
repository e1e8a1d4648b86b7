package postgres

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/store/sqlstore"
)

// arrayCodec is pgx's codec of arrays with plans of its own for []string and []int64, which are the columns of the statements of groups and claims: pgx makes an
// interface value of each element and lets the buffer grow many times, which was a quarter of the allocations of a fire.
type arrayCodec struct{ pgtype.ArrayCodec }

// PlanEncode implements pgtype.Codec.
func (c *arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []string:
			if oid == pgtype.TextArrayOID {
				return textsPlan{}
			}
		case []int64:
			if oid == pgtype.Int8ArrayOID {
				return numbersPlan{}
			}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// useArrayCodec registers the codec on a connection.
func useArrayCodec(m *pgtype.Map) {
	for _, oid := range []uint32{pgtype.TextArrayOID, pgtype.Int8ArrayOID} {
		t, ok := m.TypeForOID(oid)
		if !ok {
			continue
		}
		if c, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: &arrayCodec{*c}})
		}
	}
}

type textsPlan struct{}

// Encode implements pgtype.EncodePlan.
func (textsPlan) Encode(value any, buf []byte) ([]byte, error) {
	list, ok := value.([]string)
	if !ok || list == nil {
		return nil, nil
	}
	size := arrayHeaderBytes
	for _, v := range list {
		size += 4 + len(v)
	}
	buf = appendArrayHeader(room(buf, size), pgtype.TextOID, len(list))
	for _, v := range list {
		buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...) //nolint:gosec // a text of 4 GB does not fit into a message
	}
	return buf, nil
}

type numbersPlan struct{}

// Encode implements pgtype.EncodePlan.
func (numbersPlan) Encode(value any, buf []byte) ([]byte, error) {
	list, ok := value.([]int64)
	if !ok || list == nil {
		return nil, nil
	}
	buf = appendArrayHeader(room(buf, arrayHeaderBytes+12*len(list)), pgtype.Int8OID, len(list))
	for _, v := range list {
		buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(v)) //nolint:gosec // the bits of the number
	}
	return buf, nil
}

// room makes room for n bytes. A full buffer at least doubles: it gets the other arrays of the statement, too.
func room(buf []byte, n int) []byte {
	if cap(buf)-len(buf) < n {
		n = max(n, cap(buf))
	}
	return slices.Grow(buf, n)
}

// arrayHeaderBytes is the length of the header of an array with one dimension.
const arrayHeaderBytes = 20

// appendArrayHeader appends the header of an array without NULLs that begins at 1.
func appendArrayHeader(buf []byte, element uint32, n int) []byte {
	for _, v := range [...]uint32{1, 0, element, uint32(n), 1} { //nolint:gosec // a message has room for fewer than 4 G elements
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	return buf
}

// newGroup is a group whose operations are not in sqlstore yet.
func newGroup[O sqlstore.Operation](s *Store, write func(context.Context, []O) ([]bool, error)) *sqlstore.Group[O] {
	return sqlstore.NewGroup(func(ctx context.Context, ops []O) ([]bool, error) {
		done, err := write(ctx, ops)
		return done, s.shareable(ctx, "run operations together", err)
	})
}

// scanResults reads the rows of a group's statement. The first column of a row is the number of its operation, which is then done.
func scanResults[O any](rows pgx.Rows, ops []O, done []bool, scan func(O, pgx.Row) error) error {
	var i int
	first := []any{&i}
	for rows.Next() {
		if missing := len(rows.FieldDescriptions()) - len(first); missing > 0 {
			first = append(first, make([]any, missing)...)
		}
		if err := rows.Scan(first...); err != nil {
			return err
		}
		if err := scan(ops[i-1], rows); err != nil {
			return err
		}
		done[i-1] = true
	}
	return rows.Err()
}

// columns are the parameters of a group's statement after the clock: the columns of its rows as arrays. For one row they are the plain
// values, because the statement for one row takes them so: most groups have one member, and arrays cost both sides more. A row has text and
// int64 only.
func columns[O any](clock any, ops []O, row func(O) []any) []any {
	first := row(ops[0])
	args := append(make([]any, 0, len(first)+4), clock)
	if len(ops) == 1 {
		return append(args, first...)
	}
	rows := make([][]any, len(ops))
	for i, op := range ops {
		rows[i] = row(op)
	}
	for c, v := range first {
		if _, ok := v.(int64); ok {
			args = append(args, pick[int64](rows, c))
		} else {
			args = append(args, pick[string](rows, c))
		}
	}
	return args
}

func pick[T any](rows [][]any, c int) []T {
	list := make([]T, 0, len(rows))
	for _, row := range rows {
		if v, ok := row[c].(T); ok { // a row of another type would leave the array too short, which the statement refuses
			list = append(list, v)
		}
	}
	return list
}

// column takes one value of each element.
func column[T, V any](list []T, of func(T) V) []V {
	out := make([]V, len(list))
	for i, v := range list {
		out[i] = of(v)
	}
	return out
}
