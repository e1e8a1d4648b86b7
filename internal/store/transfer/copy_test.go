package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/store"
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
	transfer.Side
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

// fill writes rows into every table of an empty store, as its catalog describes them. Strings
// differ in each row, to satisfy unique indexes, and are equal for the same row of two tables, so
// that references hold. loose are the columns whose NULL is an empty string on the other side: some
// of their rows have none.
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

// A table or column that only one engine has cannot be copied. This test fails when a migration
// adds one to one engine alone.
func TestBothEnginesHaveTheSameTables(t *testing.T) {
	t.Parallel()
	large, small := open(t, newPostgres(t).target), open(t, newSQLite(t).target)
	defer shut(t, small)
	defer shut(t, large)
	if err := transfer.Alike(tables(t, small), tables(t, large)); err != nil {
		t.Error(err)
	}
	if n := len(tables(t, small)); n < 15 {
		t.Errorf("the catalog has %d tables; the test looks at nothing", n)
	}
}

func TestEveryTableIsCopiedThereAndBack(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	const rows = transfer.PageRows + 200
	for _, direction := range []struct {
		name       string
		from, over func(*testing.T) place
	}{{"from sqlite", newSQLite, newPostgres}, {"from postgres", newPostgres, newSQLite}} {
		t.Run(direction.name, func(t *testing.T) {
			t.Parallel()
			first, second, third := direction.from(t), direction.over(t), direction.from(t)
			fill(t, first, rows)
			there, err := copied(t, first, second, transfer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			back, err := copied(t, second, third, transfer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(there, back) {
				t.Errorf("there %v\nback %v", there, back)
			}
			for name, sum := range there {
				if sum.Rows != rows {
					t.Errorf("the table %s has %d rows, want %d", name, sum.Rows, rows)
				}
			}
		})
	}
}

// A copy that ends in the middle of a table continues after the last committed page.
func TestAnInterruptedCopyGoesOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	for _, direction := range []struct {
		name     string
		from, to func(*testing.T) place
	}{{"to postgres", newSQLite, newPostgres}, {"to sqlite", newPostgres, newSQLite}} {
		t.Run(direction.name, func(t *testing.T) {
			t.Parallel()
			from, to := direction.from(t), direction.to(t)
			fill(t, from, 2*transfer.PageRows)
			source, target := open(t, from.source), open(t, to.target)
			ctx, cancel := context.WithCancel(t.Context())
			_, err := transfer.Copy(ctx, source, target, transfer.Options{Report: func(s transfer.Step) {
				if s.Table == "inbox" && s.Rows == transfer.PageRows {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("the first attempt: %v", err)
			}
			shut(t, source)
			shut(t, target)
			if err := asGateway(t, to); !errors.Is(err, transfer.ErrUnfinished) {
				t.Errorf("a gateway on an unfinished copy: %v", err)
			}
			var first transfer.Step
			pages := 0
			if _, err = copied(t, from, to, transfer.Options{Report: func(s transfer.Step) {
				if s.Phase == "copy" && s.Table == "inbox" {
					if pages++; pages == 1 {
						first = s
					}
				}
			}}); err != nil {
				t.Fatal(err)
			}
			if !first.Resumed || first.Rows != 2*transfer.PageRows || pages != 1 {
				t.Errorf("the second attempt began with %+v and took %d pages", first, pages)
			}
			if err := asGateway(t, to); err != nil {
				t.Errorf("a gateway on the finished copy: %v", err)
			}
		})
	}
}

// asGateway opens a store as a gateway does.
func asGateway(t *testing.T, p place) error {
	t.Helper()
	if path, ok := strings.CutPrefix(p.name, "sqlite:"); ok {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			return err
		}
		return s.Close()
	}
	s, err := postgres.Open(t.Context(), postgres.Config{URL: p.name})
	if err != nil {
		return err
	}
	return s.Close()
}

func TestACopyRefusesWhatItWouldDestroy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	from, full := newSQLite(t), newPostgres(t)
	fill(t, from, 3)
	fill(t, full, 3)
	if _, err := copied(t, from, full, transfer.Options{}); !errors.Is(err, transfer.ErrNotEmpty) {
		t.Errorf("a target with rows: %v", err)
	}
	other, to := newSQLite(t), newPostgres(t)
	fill(t, other, 3)
	half(t, from, to)
	if _, err := copied(t, other, to, transfer.Options{}); !errors.Is(err, transfer.ErrOtherSource) {
		t.Errorf("the unfinished copy of another store: %v", err)
	}
	if _, err := copied(t, from, to, transfer.Options{}); err != nil {
		t.Errorf("finishing it: %v", err)
	}
}

// half copies until the last table and stops.
func half(t *testing.T, from, to place) {
	t.Helper()
	source, target := open(t, from.source), open(t, to.target)
	defer shut(t, source)
	defer shut(t, target)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := transfer.Copy(ctx, source, target, transfer.Options{Report: func(s transfer.Step) {
		if s.Table == "sessions" {
			cancel()
		}
	}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("stopping half-way: %v", err)
	}
}

// Rows that the source received after the position are found by the comparison, and not skipped.
func TestASourceThatChangedBetweenTwoAttemptsIsNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	from, to := newSQLite(t), newPostgres(t)
	fill(t, from, 3)
	half(t, from, to)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: strings.TrimPrefix(from.name, "sqlite:")})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.CreateCredential(t.Context(), store.Credential{Name: "a-late-one", Scopes: []string{"operator.read"}, Visible: "all"}, store.ChangedBy{Who: "test"}), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := copied(t, from, to, transfer.Options{}); !errors.Is(err, transfer.ErrDiffers) {
		t.Errorf("the second attempt: %v", err)
	}
}

func TestACopyIsRefusedWhileAGatewayUsesAStore(t *testing.T) {
	t.Parallel()
	path, url := filepath.Join(t.TempDir(), "laneway.db"), testpg.DB(t)
	small, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = small.Close() }()
	if _, err := sqlite.OpenSource(t.Context(), sqlite.Config{Path: path}); !errors.Is(err, sqlite.ErrInUse) {
		t.Errorf("the source is in use: %v", err)
	}
	large, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = large.Close() }()
	if err := large.Register(t.Context(), store.Node{ID: "node-1", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(context.Context, string) (*postgres.Transfer, error){"source": postgres.OpenSource, "target": postgres.OpenTarget} {
		_, err := open(t.Context(), url)
		if live, ok := errors.AsType[*postgres.LiveNodesError](err); !ok || live.Nodes[0] != "node-1" {
			t.Errorf("the %s is in use: %v", name, err)
		}
	}
}

// No gateway can use a source while it is copied.
func TestNoGatewayStartsOnASourceThatIsCopied(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	large, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = large.Close() }()
	source, err := postgres.OpenSource(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := large.Register(ctx, store.Node{ID: "late", Lease: time.Hour}); err == nil {
		t.Error("a gateway joined the source")
	}
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	if err := large.Register(t.Context(), store.Node{ID: "late", Lease: time.Hour}); err != nil {
		t.Errorf("after the copy: %v", err)
	}
}

// PostgreSQL cannot store every string of SQLite. Such a string is copied as PostgreSQL would have
// stored it, and counted.
func TestTextsThatPostgresCannotStoreAreCounted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	from, to := newSQLite(t), newPostgres(t)
	s := open(t, from.target)
	for _, table := range tables(t, s) {
		if table.Name != "credentials" {
			continue
		}
		row := make(transfer.Row, len(table.Columns))
		for i, c := range table.Columns {
			row[i] = sample(table, c, 1)
			if c.Name == "scopes" {
				row[i] = "a\x00b\xff"
			}
		}
		if err := errors.Join(s.Put(t.Context(), table, []transfer.Row{row}, []byte("{}")), s.Finish(t.Context(), nil)); err != nil {
			t.Fatal(err)
		}
	}
	shut(t, s)
	source, target := open(t, from.source), open(t, to.target)
	defer shut(t, source)
	defer shut(t, target)
	result, err := transfer.Copy(t.Context(), source, target, transfer.Options{})
	if err != nil || result.Altered != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}
