package testpg

import (
	"errors"
	"os"
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
