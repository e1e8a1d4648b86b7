package app

import (
	"context"
	"strings"

	"laneway/internal/store/postgres"
)

// examineRole checks whether the role of the database has the permissions of a gateway, and whether it could rewrite the audit log. SQLite
// has no roles.
func examineRole(ctx context.Context, s commandStore) []Finding {
	db, ok := s.(*postgres.Store)
	if !ok {
		return nil
	}
	r, err := db.Rights(ctx)
	if err != nil {
		return []Finding{{Failure, "the rights of the database role cannot be read: " + err.Error(), ""}}
	}
	found := roleFindings(r)
	l, err := db.ConnLimit(ctx)
	if err != nil {
		return append(found, Finding{Failure, "the limit of connections of the database role cannot be read: " + err.Error(), ""})
	}
	if l.Limit > 0 && l.Limit < l.Wanted {
		found = append(found, Finding{Warning, l.Sentence(l.Wanted), "see docs/operations.md"})
	}
	return found
}

// roleFindings compares the permissions with those that a gateway needs. A missing one breaks a function; an extra one lets an attacker
// hide changes.
func roleFindings(r postgres.Rights) []Finding {
	const cure = "give the gateway a role of its own; see docs/operations.md"
	var found []Finding
	if len(r.Lacks) > 0 {
		found = append(found, Finding{
			Failure, "the database role " + r.Role + " lacks " + strings.Join(r.Lacks[:min(len(r.Lacks), rowsPerRule)], ", "),
			"grant it with the role that owns the tables; see docs/operations.md",
		})
	}
	switch {
	case r.Superuser:
		return append(found, Finding{Warning, "the database role " + r.Role + " is a superuser", cure})
	case r.OwnsLog:
		return append(found, Finding{Warning, "the database role " + r.Role + " owns audit_log and can rewrite it", cure})
	case r.ChangesLog:
		return append(found, Finding{Warning, "the database role " + r.Role + " may change and remove rows of audit_log", "run: REVOKE UPDATE, DELETE, TRUNCATE ON audit_log FROM " + r.Role})
	case len(found) > 0:
		return found
	default:
		return []Finding{{Weight: Fine, Text: "the database role " + r.Role + " may add to audit_log and change nothing in it"}}
	}
}
