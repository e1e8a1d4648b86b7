package cli

import (
	"context"
	"os"
	"strings"
	"testing"

	"laneway/internal/app"
	"laneway/internal/config"
)

// usedDatabase refuses a step back that is not forced, and counts forced ones.
type usedDatabase struct{ forced int }

func (d *usedDatabase) Migrate(_ context.Context, _ config.Config, _ string, force bool) ([]migration, error) {
	if !force {
		return nil, &app.LiveNodesError{Nodes: []string{"node-1"}}
	}
	d.forced++
	return nil, nil
}

func TestMigrateDownAsksBeforeItForces(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct{ code, forced int }{"y\n": {exitOK, 1}, "n\n": {exitFailure, 0}, "": {exitFailure, 0}} {
		b, db := newBench(answer, "LANEWAY_DATA", t.TempDir()), &usedDatabase{}
		b.env.migrate, b.env.terminal = db, &console{in: os.Stdin, out: os.Stdout}
		b.run(t, want.code, "migrate", "down", "--force")
		if db.forced != want.forced || !strings.Contains(b.stderr.String(), "node-1") {
			t.Errorf("answer %q: %d steps; %s", answer, db.forced, b.stderr.String())
		}
	}
}
