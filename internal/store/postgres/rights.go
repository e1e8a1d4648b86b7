package postgres

import "context"

// Rights are the rights of the store's role beyond reading and writing rows, and the rights that it lacks.
type Rights struct {
	// Role is its name.
	Role string
	// Superuser: all rights, whatever is granted.
	Superuser bool
	// OwnsLog: it owns audit_log, or is a member of the role that does, and can grant itself every right on it.
	OwnsLog bool
	// ChangesLog: it may update, delete or truncate audit_log.
	ChangesLog bool
	// Lacks are required rights that were not granted, such as `UPDATE on sessions`.
	Lacks []string
}

// rightsSQL reads only the tables of the program, which it finds by their owner: other tables of the schema do not matter.
const rightsSQL = `
WITH log AS (
	SELECT oid, relowner, relnamespace FROM pg_class WHERE oid = 'audit_log'::regclass
), needed AS (
	SELECT t.oid, t.relname, p FROM pg_class t
		JOIN log ON log.relnamespace = t.relnamespace AND log.relowner = t.relowner
		CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
	WHERE t.relkind = 'r' AND NOT (t.relname = 'audit_log' AND p IN ('UPDATE', 'DELETE')) AND NOT (t.relname = '` + versionTable + `' AND p <> 'SELECT')
)
SELECT current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), pg_has_role(current_user, log.relowner, 'USAGE'),
	has_table_privilege(log.oid, 'UPDATE, DELETE, TRUNCATE'),
	ARRAY(SELECT p || ' on ' || relname FROM needed WHERE NOT has_table_privilege(oid, p) ORDER BY relname, p)
FROM log`

// Rights reads the rights of the role from the database.
func (s *Store) Rights(ctx context.Context) (r Rights, err error) {
	err = s.do(ctx, "reading the rights of the role", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, rightsSQL).Scan(&r.Role, &r.Superuser, &r.OwnsLog, &r.ChangesLog, &r.Lacks)
	})
	return r, err
}
