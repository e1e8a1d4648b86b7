package sqlstore

import (
	"maps"
	"testing"

	"laneway/internal/chat"
)

// TestATextBecomesAStatementOfEachEngine uses every mark once.
func TestATextBecomesAStatementOfEachEngine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, postgres, sqlite string }{
		{"parameters", `SELECT $1, $12`, `SELECT $1, $12`, `SELECT ?1, ?12`},
		{"the clock is the parameter after the others", `SELECT {now} - $1`, `SELECT COALESCE($2::bigint, (date_part('epoch', now()) * 1000)::bigint) - $1`, `SELECT ?2 - ?1`},
		{"locks", `SELECT 1 {lock}`, `SELECT 1 FOR UPDATE`, `SELECT 1 `},
		{"locks that skip locked rows", `SELECT 1 {skip}`, `SELECT 1 FOR UPDATE SKIP LOCKED`, `SELECT 1 `},
		{"locks of one table", `SELECT 1 {skip s}`, `SELECT 1 FOR UPDATE OF s SKIP LOCKED`, `SELECT 1 `},
		{
			"the start of the database", `SELECT {booted} < {now}`,
			`SELECT CASE WHEN $1::bigint IS NULL THEN (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint ELSE 0 END < COALESCE($1::bigint, (date_part('epoch', now()) * 1000)::bigint)`,
			`SELECT 0 < ?1`,
		},
		{"limits", `SELECT 1 {limit $1}`, `SELECT 1 LIMIT $1`, `SELECT 1 LIMIT +?1`},
		{"lists", `x {in $1}`, `x = ANY($1::text[])`, `x IN (SELECT value FROM json_each(?1))`},
		{"lists of numbers", `x {ints $1}`, `x = ANY($1::bigint[])`, `x IN (SELECT value FROM json_each(?1))`},
		{"JSON", `{json i.body} ->> 'text'`, `i.body::json ->> 'text'`, `i.body ->> 'text'`},
		{"functions of several values", `{least}(a, {greatest}(b, c))`, `least(a, greatest(b, c))`, `min(a, max(b, c))`},
		{"booleans of an index", `WHERE {true enabled}`, `WHERE enabled`, `WHERE enabled = 1`},
		{
			"row sets", `{set a text, b int} UPDATE t SET x = v.b, y = v.a, z = v.b {from} WHERE k = $1`,
			` UPDATE t SET x = v.b, y = v.a, z = v.b FROM (SELECT * FROM ROWS FROM (json_to_recordset($2::json) AS (a text, b bigint)) WITH ORDINALITY AS v(a, b, row_n) WHERE row_n BETWEEN 1 AND 1000000) v WHERE k = $1`,
			` UPDATE t SET x = ?2, y = ?3, z = ?2  WHERE k = ?1`,
		},
		{
			"rows to insert", `{set a text} INSERT INTO t (x, y) SELECT v.a, NULLIF(v.a, '') {from} WHERE true ON CONFLICT DO NOTHING`,
			` INSERT INTO t (x, y) SELECT v.a, NULLIF(v.a, '') FROM (SELECT * FROM ROWS FROM (json_to_recordset($1::json) AS (a text)) WITH ORDINALITY AS v(a, row_n) WHERE row_n BETWEEN 1 AND 1000000) v WHERE true ON CONFLICT DO NOTHING`,
			` INSERT INTO t (x, y) VALUES (?1, NULLIF(?1, '')) ON CONFLICT DO NOTHING`,
		},
		{
			"row sets beside a table", `{set a bool} SELECT 1 FROM t {and} WHERE t.a = v.a`,
			` SELECT 1 FROM t , (SELECT * FROM ROWS FROM (json_to_recordset($1::json) AS (a boolean)) WITH ORDINALITY AS v(a, row_n) WHERE row_n BETWEEN 1 AND 1000000) v WHERE t.a = v.a`, ` SELECT 1 FROM t  WHERE t.a = ?1`,
		},
	} {
		if got := Postgres().Of(c.text).SQL; got != c.postgres {
			t.Errorf("%s, PostgreSQL:\n got %s\nwant %s", c.name, got, c.postgres)
		}
		if got := SQLite().Of(c.text).SQL; got != c.sqlite {
			t.Errorf("%s, SQLite:\n got %s\nwant %s", c.name, got, c.sqlite)
		}
	}
}

func TestAnUnknownMarkIsRefused(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a template with the mark {unknown} became a statement")
		}
	}()
	Postgres().Of(`SELECT {unknown}`)
}

// TestARowHasTheOrderOfItsUse covers a column that is used twice and one that is not used.
func TestARowHasTheOrderOfItsUse(t *testing.T) {
	t.Parallel()
	s := SQLite().Of(`{set a text, b int, c bool} SELECT v.c, v.a, v.c WHERE $1`)
	got := map[int]any{}
	bind := func(n int, v any) error {
		got[n] = v
		return nil
	}
	err := s.Parameters([]any{"first", 2, true}, bind)
	if want := map[int]any{2: true, 3: "first"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("parameters are %v, %v, want %v", got, err, want)
	}
	if err := s.Parameters([]any{"too", "few"}, bind); err == nil {
		t.Error("a row with two values was accepted for three columns")
	}
	if _, _, err := s.Split([]any{"x"}); err == nil {
		t.Error("a statement with a row set ran without one")
	}
}

func TestOnlyAReadingStatementMayNotWrite(t *testing.T) {
	t.Parallel()
	for text, writes := range map[string]bool{` SELECT 1`: false, `INSERT INTO t VALUES (1)`: true, `WITH a AS (SELECT 1) UPDATE t SET x = 1`: true} {
		if got := SQLite().Of(text).Writes; got != writes {
			t.Errorf("Writes of %q = %v, want %v", text, got, writes)
		}
	}
}

func TestKeysReadBack(t *testing.T) {
	t.Parallel()
	for _, key := range []chat.SessionKey{
		chat.MainKey("main"), chat.PeerKey("a-b", "telegram:7", "group", "-100", "5"), {Agent: "x", Rest: "api:://:"},
	} {
		if got := parseKey(key.String()); got != key {
			t.Errorf("got %+v, want %+v", got, key)
		}
	}
}
