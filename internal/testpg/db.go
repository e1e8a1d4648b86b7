package testpg

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/store/postgres"
	"laneway/migrations"
)

const (
	// templateLock keeps two processes from building one template; the number means nothing.
	templateLock = 7_226_152_391
	dropTimeout  = 30 * time.Second
	// codeBusy means that another client is connected to the template.
	codeBusy = "55006"
	// codeSyntax is the error of servers before 15 for STRATEGY.
	codeSyntax = "42601"
)

// DB makes an empty, migrated database and returns its address. It is dropped when the test ends, even while clients are connected.
// Under -short the test is skipped. Without TEST_DATABASE_URL it fails and states how to get a server. Call it from the goroutine of the test.
func DB(tb testing.TB) string {
	tb.Helper()
	return DBOn(tb, server(tb))
}

// server returns the address of the server for tests.
func server(tb testing.TB) string {
	tb.Helper()
	skipShort(tb)
	admin := os.Getenv(URLVariable) //nolint:forbidigo // the launcher passes the address in this variable
	if admin == "" {
		tb.Fatalf("this test needs Postgres: run it by `go run ./cmd/testpg -- go test ./...`, or set %s", URLVariable)
	}
	return admin
}

// skipShort skips a test that needs PostgreSQL, only under -short.
func skipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs PostgreSQL")
	}
}

// DBOn is DB on a server of the caller's choice.
func DBOn(tb testing.TB, admin string) string {
	tb.Helper()
	target, err := create(tb.Context(), admin)
	if err != nil {
		tb.Fatalf("making a database for the test: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), dropTimeout)
		defer cancel()
		if err := drop(ctx, admin, target); err != nil {
			tb.Errorf("dropping the database of the test: %v", err)
		}
	})
	return target
}

// Empty makes a database without any schema, dropped when the test ends.
func Empty(tb testing.TB) string {
	tb.Helper()
	admin := server(tb)
	name := uniqueName("laneway_e_")
	err := withAdmin(tb.Context(), admin, func(conn *pgx.Conn) error {
		_, err := conn.Exec(tb.Context(), "CREATE DATABASE "+name)
		return err
	})
	if err != nil {
		tb.Fatalf("making a database for the test: %v", err)
	}
	target := withName(admin, name)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), dropTimeout)
		defer cancel()
		if err := drop(ctx, admin, target); err != nil {
			tb.Errorf("dropping the database of the test: %v", err)
		}
	})
	return target
}

// Private starts a server that belongs to the test alone and may be killed; it ends with the test. It needs the server programs on
// this machine and fails the test if they are missing.
func Private(tb testing.TB, cfg ServerConfig) *Server {
	tb.Helper()
	skipShort(tb)
	if cfg.BinDir == "" {
		dir, err := findBinaries(os.Getenv("PG_BIN")) //nolint:forbidigo // where the developer has them
		if err != nil {
			tb.Fatalf("this test starts a Postgres of its own: %v; install the server programs or name their directory in PG_BIN", err)
		}
		cfg.BinDir = dir
	}
	s, err := StartServer(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func create(ctx context.Context, admin string) (string, error) {
	name := uniqueName("laneway_t_")
	err := withAdmin(ctx, admin, func(conn *pgx.Conn) error {
		template, err := ensureTemplate(ctx, conn, admin)
		if err != nil {
			return err
		}
		return copyDatabase(ctx, conn, name, template)
	})
	return withName(admin, name), err
}

// copyDatabase copies files rather than pages through the log, which is several times faster; older servers always copy files.
func copyDatabase(ctx context.Context, conn *pgx.Conn, name, template string) error {
	sql := "CREATE DATABASE " + name + " TEMPLATE " + template
	_, err := conn.Exec(ctx, sql+" STRATEGY FILE_COPY")
	if hasCode(err, codeSyntax) {
		_, err = conn.Exec(ctx, sql)
	}
	if err != nil {
		return fmt.Errorf("copying the template: %w", err)
	}
	return nil
}

// ensureTemplate returns the name of the migrated template, which it makes if it does not exist. It becomes visible under its
// name only when it is complete.
func ensureTemplate(ctx context.Context, conn *pgx.Conn, admin string) (string, error) {
	name, err := templateName()
	if err != nil {
		return "", err
	}
	if there, err := exists(ctx, conn, name); there || err != nil {
		return name, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(templateLock)); err != nil {
		return "", fmt.Errorf("waiting for the template: %w", err)
	}
	if there, err := exists(ctx, conn, name); there || err != nil {
		return name, err // the lock ends with the connection
	}
	draft := name + "_draft"
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + draft, "CREATE DATABASE " + draft} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("making the template: %w", err)
		}
	}
	if _, err := postgres.MigrateUp(ctx, withName(admin, draft), nil); err != nil {
		return "", fmt.Errorf("migrating the template: %w", err)
	}
	return name, rename(ctx, conn, draft, name)
}

// rename waits until the connection of the migration has also ended in the server.
func rename(ctx context.Context, conn *pgx.Conn, from, to string) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := conn.Exec(ctx, "ALTER DATABASE "+from+" RENAME TO "+to)
		if !hasCode(err, codeBusy) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("naming the template: %w", context.Cause(ctx))
		}
	}
}

func exists(ctx context.Context, conn *pgx.Conn, name string) (bool, error) {
	var there bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", name).Scan(&there)
	return there, err
}

// templateName changes with every byte of the migrations.
func templateName() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations.Postgres, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.Postgres, path)
		_, _ = sum.Write([]byte(path)) // a hash never fails
		_, _ = sum.Write(text)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the migrations: %w", err)
	}
	return "laneway_tpl_" + hex.EncodeToString(sum.Sum(nil))[:16], nil
}

func drop(ctx context.Context, admin, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return fmt.Errorf("reading the address: %w", err)
	}
	return withAdmin(ctx, admin, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+strings.TrimPrefix(u.Path, "/")+" WITH (FORCE)")
		return err
	})
}

// withAdmin gives fn a connection to the maintenance database. Each call opens a connection, so none stays open.
func withAdmin(ctx context.Context, admin string, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return fmt.Errorf("connecting to the test server: %w", err)
	}
	return errors.Join(fn(conn), conn.Close(context.WithoutCancel(ctx)))
}

// withName returns the address of another database of the same server.
func withName(admin, name string) string {
	u, err := url.Parse(admin)
	if err != nil {
		return admin
	}
	u.Path = "/" + name
	return u.String()
}

// uniqueName returns a name that is unique among all processes that share the server.
func uniqueName(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

func hasCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}
