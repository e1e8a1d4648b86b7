package transfer_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/transfer"
	"laneway/internal/testpg"
)

// A table or column that only one engine has cannot be copied. This test fails when a migration adds one to one engine alone.
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

// PostgreSQL cannot store every string of SQLite. Such a string is copied as PostgreSQL would have stored it, and counted.
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
