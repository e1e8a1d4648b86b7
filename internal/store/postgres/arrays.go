package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// arrayCodec is pgx's array codec with its own plans for []string and []int64, the columns of the statements of groups and claims. pgx makes an interface value
// of each element and grows the buffer many times, which was a quarter of the allocations of a fire.
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

// room makes room for n bytes. A full buffer at least doubles, because further arrays of the statement follow.
func room(buf []byte, n int) []byte {
	if cap(buf)-len(buf) < n {
		n = max(n, cap(buf))
	}
	return slices.Grow(buf, n)
}

// arrayHeaderBytes is the length of the header of an array with one dimension.
const arrayHeaderBytes = 20

// appendArrayHeader appends the header of an array without NULLs whose index starts at 1.
func appendArrayHeader(buf []byte, element uint32, n int) []byte {
	for _, v := range [...]uint32{1, 0, element, uint32(n), 1} { //nolint:gosec // a message has room for fewer than 4 G elements
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	return buf
}
