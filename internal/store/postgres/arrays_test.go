package postgres

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestArraysAreEncodedAsPgxDoes compares the encodings byte for byte.
func TestArraysAreEncodedAsPgxDoes(t *testing.T) {
	t.Parallel()
	ours, theirs := pgtype.NewMap(), pgtype.NewMap()
	useArrayCodec(ours)
	for _, c := range []struct {
		oid  uint32
		list any
	}{
		{pgtype.TextArrayOID, []string(nil)},
		{pgtype.TextArrayOID, []string{}},
		{pgtype.TextArrayOID, []string{""}},
		{pgtype.TextArrayOID, []string{"a", "", "NULL", `{"b"}`, "ключ", strings.Repeat("long ", 10_000)}},
		{pgtype.Int8ArrayOID, []int64(nil)},
		{pgtype.Int8ArrayOID, []int64{}},
		{pgtype.Int8ArrayOID, []int64{0, -1, 1 << 62, -1 << 63}},
		{pgtype.BoolArrayOID, []bool{true, false}},
		{pgtype.VarcharArrayOID, []string{"another type"}},
	} {
		for _, before := range [][]byte{nil, []byte("before"), make([]byte, 3, 4096)} {
			got, gotErr := ours.Encode(c.oid, pgtype.BinaryFormatCode, c.list, bytes.Clone(before))
			want, wantErr := theirs.Encode(c.oid, pgtype.BinaryFormatCode, c.list, bytes.Clone(before))
			if gotErr != nil || wantErr != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
				t.Errorf("%T of %v after %d bytes: got %d bytes %v, pgx has %d %v", c.list, c.list, len(before), len(got), gotErr, len(want), wantErr)
			}
		}
		got, gotErr := ours.Encode(c.oid, pgtype.TextFormatCode, c.list, nil)
		want, wantErr := theirs.Encode(c.oid, pgtype.TextFormatCode, c.list, nil)
		if gotErr != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%v as text: got %q %v, pgx has %q %v", c.list, got, gotErr, want, wantErr)
		}
	}
}
