package testpg

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
)

// rolePassword is for servers that require a password; the private cluster does not.
const rolePassword = "of-a-test-role"

// Role makes a role that may log in and nothing else. It is dropped when the test ends, after the databases that were made later: so call
// it before [DB] or [Empty].
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
