package app

import (
	"strings"
	"testing"

	"laneway/internal/store/postgres"
)

func TestTheRoleOfTheDatabaseIsWeighed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rights postgres.Rights
		want   string
		says   []string
	}{
		"as recommended": {postgres.Rights{}, "ok", []string{"may add to audit_log and change nothing in it"}},
		"superuser":      {postgres.Rights{Superuser: true, OwnsLog: true, ChangesLog: true}, "warning", []string{"is a superuser", "docs/operations.md"}},
		"owner":          {postgres.Rights{OwnsLog: true, ChangesLog: true}, "warning", []string{"owns audit_log", "docs/operations.md"}},
		"too many":       {postgres.Rights{ChangesLog: true}, "warning", []string{"may change and remove rows of audit_log", "REVOKE UPDATE, DELETE, TRUNCATE ON audit_log FROM gw"}},
		"too few":        {postgres.Rights{Lacks: []string{"DELETE on inbox", "SELECT on runs"}}, "failure", []string{"lacks DELETE on inbox, SELECT on runs", "grant it"}},
		"both":           {postgres.Rights{ChangesLog: true, Lacks: []string{"DELETE on inbox"}}, "failure warning", []string{"lacks DELETE on inbox", "rows of audit_log"}},
	} {
		tc.rights.Role = "gw"
		found := roleFindings(tc.rights)
		if weights(found) != tc.want {
			t.Errorf("%s: %+v, want %s", name, found, tc.want)
		}
		var text strings.Builder
		for _, f := range found {
			text.WriteString(f.Text + "; " + f.Cure + "\n")
		}
		for _, s := range tc.says {
			if !strings.Contains(text.String(), s) {
				t.Errorf("%s: %q does not say %q", name, text.String(), s)
			}
		}
	}
}
