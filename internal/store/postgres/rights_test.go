package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// No connection of a gateway waits without a limit, holds a lock without a limit, or stays idle in a transaction, whatever the defaults of the database are.
func TestEveryConnectionHasItsTimeLimits(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	want := map[string]string{"statement_timeout": "30s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "30s", "default_transaction_isolation": "read committed"}
	for name := range want {
		value := "0"
		if name == "default_transaction_isolation" {
			value = "serializable"
		}
		exec(t, url, fmt.Sprintf(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET %s = %s', current_database()); END $$`, name, value))
	}
	s := open(t, postgres.Config{URL: url, MaxConns: 6})
	defer func() { _ = s.Close() }()
	seen := map[string]int{}
	err := s.EachConnection(t.Context(), func(purpose string, conn *pgx.Conn) error {
		seen[purpose]++
		for name, value := range want {
			var got string
			if err := conn.QueryRow(t.Context(), "SHOW "+name).Scan(&got); err != nil {
				return err
			}
			if got != value {
				t.Errorf("a connection for %s has %s = %s, want %s", purpose, name, got, value)
			}
		}
		return nil
	})
	if err != nil || fmt.Sprint(seen) != "map[everything else:3 heartbeats:1 hints:1 stops:1 turns:3]" {
		t.Errorf("looked at %v, %v", seen, err)
	}
}

func TestRightsOfTheRoleAreRead(t *testing.T) {
	t.Parallel()
	role := testpg.Role(t)
	url := testpg.DB(t)
	as := testpg.As(url, role)
	exec(t, url, `CREATE TABLE of_another_role (n int); ALTER TABLE of_another_role OWNER TO pg_monitor; GRANT SELECT ON laneway_migrations TO `+role)
	look := func(as string) postgres.Rights {
		t.Helper()
		s := open(t, postgres.Config{URL: as})
		defer func() { _ = s.Close() }()
		r, err := s.Rights(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := look(url); !r.Superuser || !r.OwnsLog || !r.ChangesLog || len(r.Lacks) > 0 {
		t.Errorf("the superuser: %+v", r)
	}
	r := look(as)
	if r.Role != role || r.Superuser || r.OwnsLog || r.ChangesLog || !slices.Contains(r.Lacks, "UPDATE on sessions") || !slices.Contains(r.Lacks, "INSERT on audit_log") ||
		slices.ContainsFunc(r.Lacks, func(s string) bool {
			return strings.Contains(s, "another_role") || strings.Contains(s, "migrations") || s == "DELETE on audit_log"
		}) {
		t.Errorf("without any right: %+v", r)
	}
	exec(t, url, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	if r := look(as); r.OwnsLog || !r.ChangesLog || len(r.Lacks) > 0 {
		t.Errorf("with all rights on rows: %+v", r)
	}
	exec(t, url, `REVOKE UPDATE, DELETE ON audit_log FROM `+role)
	if r := look(as); r.ChangesLog || len(r.Lacks) > 0 {
		t.Errorf("with the rights that it needs: %+v", r)
	}
	exec(t, url, `ALTER TABLE audit_log OWNER TO `+role)
	if r := look(as); !r.OwnsLog || r.Superuser {
		t.Errorf("as the owner: %+v", r)
	}
}
