package transfer_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/transfer"
	"laneway/internal/testpg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a store of one engine, which is opened for each copy.
type place struct {
	name   string
	source func(context.Context) (side, error)
	target func(context.Context) (side, error)
}

// side is what the adapters return.
type side interface {
	transfer.Target
	Close() error
}

func newSQLite(t *testing.T) place {
	t.Helper()
	cfg := sqlite.Config{Path: filepath.Join(t.TempDir(), "laneway.db")}
	return place{
		"sqlite:" + cfg.Path,
		func(ctx context.Context) (side, error) { return opened(sqlite.OpenSource(ctx, cfg)) },
		func(ctx context.Context) (side, error) { return opened(sqlite.OpenTarget(ctx, cfg)) },
	}
}

func newPostgres(t *testing.T) place {
	t.Helper()
	url := testpg.Empty(t)
	return place{
		url,
		func(ctx context.Context) (side, error) { return opened(postgres.OpenSource(ctx, url)) },
		func(ctx context.Context) (side, error) { return opened(postgres.OpenTarget(ctx, url)) },
	}
}

// opened keeps a nil side nil.
func opened[S side](s S, err error) (side, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func open(t *testing.T, how func(context.Context) (side, error)) side {
	t.Helper()
	s, err := how(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shut(t *testing.T, s side) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func tables(t *testing.T, s side) []transfer.Table {
	t.Helper()
	list, err := s.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// fill writes rows into every table of an empty store, as its catalog describes them. Strings differ in each row, to satisfy unique indexes, and are equal for
// the same row of two tables, so that references hold. loose are the columns whose NULL is an empty string on the other side: some of their rows have none.
func fill(t *testing.T, p place, rows int) {
	t.Helper()
	s := open(t, p.target)
	defer shut(t, s)
	list := tables(t, s)
	for _, table := range inOrder(list) {
		page := make([]transfer.Row, rows)
		for i := range page {
			page[i] = make(transfer.Row, len(table.Columns))
			for j, c := range table.Columns {
				page[i][j] = sample(table, c, i)
			}
		}
		if err := s.Put(t.Context(), table, page, []byte("{}")); err != nil {
			t.Fatalf("filling %s: %v", table.Name, err)
		}
	}
	if err := s.Finish(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}

// inOrder puts tables after those that they reference; one level is enough for a test.
func inOrder(list []transfer.Table) []transfer.Table {
	var first, then []transfer.Table
	for _, table := range list {
		if len(table.References) > 0 {
			then = append(then, table)
			continue
		}
		first = append(first, table)
	}
	return append(first, then...)
}

func sample(table transfer.Table, c transfer.Column, i int) transfer.Value {
	key := strings.Contains(" "+strings.Join(table.Key, " ")+" ", " "+c.Name+" ")
	switch {
	case c.Nullable && i%3 == 0:
		return nil
	case c.Kind == transfer.Text:
		return fmt.Sprintf("row %06d ß 😀\n\"'\\", i)
	case c.Kind == transfer.Bytes:
		return []byte{0, byte(i), 255}
	case c.Kind == transfer.Number:
		return float64(i) / 3
	case key || c.Name == "place": // unique in one of the engines
		return int64(i)
	case strings.HasSuffix(c.Name, "_at") || strings.HasSuffix(c.Name, "_id"):
		return int64(1)<<53 + int64(i) // above the precision of a float
	default:
		return int64(i % 2) // a boolean of the other engine
	}
}

// copied copies and returns the tables of the result by name.
func copied(t *testing.T, from, to place, o transfer.Options) (map[string]transfer.Sum, error) {
	t.Helper()
	source := open(t, from.source)
	defer shut(t, source)
	target := open(t, to.target)
	defer shut(t, target)
	result, err := transfer.Copy(t.Context(), source, target, o)
	if err != nil {
		return nil, err
	}
	sums := map[string]transfer.Sum{}
	for _, table := range result.Tables {
		sums[table.Name] = table.Sum
	}
	return sums, nil
}
