package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// controlConns are the connections of a store outside of its pools: heartbeats, stops, and the listener.
	controlConns = 3
	// LeastConns is how many connections a gateway needs: the control connections, one for turns and one for everything else.
	LeastConns = controlConns + 2
)

// ConnLimit is how many connections the database grants to the role.
type ConnLimit struct {
	// Role is its name. Limit is the lower one of the limits of the role and of the database, for all of its connections together; 0 = unlimited, as for a
	// superuser.
	Role  string
	Limit int
	// Wanted is how many connections this store opens at most without the limit.
	Wanted int
}

// Sentence describes the limit that is needed.
func (l ConnLimit) Sentence(wanted int) string {
	return fmt.Sprintf("the database lets the role %s open %d connections; a gateway needs at least %d, and up to %d with this configuration:"+
		" raise CONNECTION LIMIT of the role or of the database, or lower database_conns", l.Role, l.Limit, LeastConns, wanted)
}

// connLimitSQL reads the limits, -1 = unlimited; LEAST ignores NULL.
const connLimitSQL = `
SELECT r.rolname, COALESCE(LEAST(NULLIF(r.rolconnlimit, -1), NULLIF(d.datconnlimit, -1)), 0), r.rolsuper
FROM pg_roles r, pg_database d WHERE r.rolname = session_user AND d.datname = current_database()`

func (s *Store) connLimit(ctx context.Context) (l ConnLimit, err error) {
	err = s.ctrl.use(ctx, func(conn *pgx.Conn) error {
		var super bool
		err := conn.QueryRow(ctx, connLimitSQL).Scan(&l.Role, &l.Limit, &super)
		if super {
			l.Limit = 0
		}
		return err
	})
	return l, err
}

// ConnLimit reads how many connections the role may have.
func (s *Store) ConnLimit(ctx context.Context) (l ConnLimit, err error) {
	err = s.do(ctx, "reading the limit of connections", func(ctx context.Context) (err error) {
		l, err = s.connLimit(ctx)
		return err
	})
	l.Wanted = s.wanted + controlConns
	return l, err
}
