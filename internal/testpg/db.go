// Package testpg provides a real Postgres for tests, and each test with a separate database.
//
// # Where the server comes from
//
// [Provide] tries these in order and reports which one it used:
//
//  1. TEST_DATABASE_URL: a server that is already running; its user must be allowed to create
//     databases.
//  2. Server binaries ($PG_BIN, /usr/lib/postgresql/*/bin, PATH): a private cluster in a temporary
//     directory, reachable through a unix socket only. Postgres refuses to run as root, so root's
//     cluster runs as `postgres` or `nobody`.
//  3. docker compose: a container, bound to a free port of the loopback address.
//
// When none works the error names the three ways. No test is skipped silently. The command
// cmd/testpg wraps this around any other command:
//
//	go run ./cmd/testpg -- go test ./...
//
// # What a test writes
//
//	url := testpg.DB(t)            // an empty, migrated database; dropped when the test ends
//
// The database is a file copy of a template which is migrated once per schema and server. The
// template's name contains a hash of the migrations, so working copies with different schemas may
// share one server. An advisory lock keeps parallel test binaries from building it twice.
//
// A test that must stop or kill the server starts a separate one with [Private], without an effect
// on other tests.
//
// # How it ends
//
// [Server.Stop] ends the server and removes its directory. On Linux the kernel also ends the server
// when the process that started it is killed before it can clean up. The package starts one
// goroutine per private server, which waits for the process and ends with it.
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
	"os/user"
	"strconv"
	"strings"
	"syscall"
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

// DB makes an empty, migrated database and returns its address. It is dropped when the test ends,
// even while clients are connected. Under -short the test is skipped. Without TEST_DATABASE_URL it
// fails and states how to get a server. Call it from the goroutine of the test.
func DB(tb testing.TB) string {
	tb.Helper()
	return DBOn(tb, server(tb))
}

// server returns the address of the server for tests.
func server(tb testing.TB) string {
	tb.Helper()
	skipShort(tb)
	admin := os.Getenv(URLVariable) // the launcher passes the address in this variable
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

// Private starts a server that belongs to the test alone and may be killed; it ends with the test.
// It needs the server programs on this machine and fails the test if they are missing.
func Private(tb testing.TB, cfg ServerConfig) *Server {
	tb.Helper()
	skipShort(tb)
	if cfg.BinDir == "" {
		dir, err := findBinaries(os.Getenv("PG_BIN")) // where the developer has them
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

// copyDatabase copies files rather than pages through the log, which is several times faster; older
// servers always copy files.
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

// ensureTemplate returns the name of the migrated template, which it makes if it does not exist. It
// becomes visible under its name only when it is complete.
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

// withAdmin gives fn a connection to the maintenance database. Each call opens a connection, so
// none stays open.
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

// rolePassword is for servers that require a password; the private cluster does not.
const rolePassword = "of-a-test-role"

// Role makes a role that may log in and nothing else. It is dropped when the test ends, after the
// databases that were made later: so call it before [DB] or [Empty].
func Role(tb testing.TB) string {
	tb.Helper()
	admin := server(tb)
	name := uniqueName("laneway_r_")
	do := func(ctx context.Context, sql string) error {
		return withAdmin(ctx, admin, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, sql)
			return err
		})
	}
	if err := do(tb.Context(), fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", name, rolePassword)); err != nil {
		tb.Fatalf("making a role for the test: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), dropTimeout)
		defer cancel()
		if err := do(ctx, "DROP ROLE "+name); err != nil {
			tb.Errorf("dropping the role of the test: %v", err)
		}
	})
	return name
}

// As returns the address of a database for another role.
func As(target, role string) string {
	u, err := url.Parse(target)
	if err != nil {
		return target
	}
	u.User = url.UserPassword(role, rolePassword)
	return u.String()
}

// account is the account that the server runs as. A nil credential means that of this process.
type account struct {
	cred *syscall.Credential
}

// unprivileged finds an account for root, because Postgres refuses to run as root.
func unprivileged() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID != nil || errGID != nil || uid == 0 {
			continue
		}
		return account{cred: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("root cannot run Postgres and there is no account `postgres` or `nobody`: run the tests as another user")
}

// give makes the account the owner of dir.
func (a account) give(dir string) error {
	if a.cred == nil {
		return nil
	}
	if err := os.Chown(dir, int(a.cred.Uid), int(a.cred.Gid)); err != nil {
		return fmt.Errorf("handing %s to the server's account: %w", dir, err)
	}
	return nil
}
