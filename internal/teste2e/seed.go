package teste2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"laneway/internal/testrun"
)

// migrated is the content of a SQLite file that the migrations made: every migration, no row. A gateway that applies the migrations itself
// needs twice the processor time for its start; what that does is tested where [Gateway] is fresh, and in the start-up matrices.
var migrated = sync.OnceValues(func() (text []byte, err error) {
	dir, err := os.MkdirTemp("", "laneway-e2e-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := migrateInside(filepath.Join(dir, "data")); err != nil {
		return nil, fmt.Errorf("migrating: %w", err)
	}
	return os.ReadFile(filepath.Join(dir, "data", "laneway.db"))
})

// seed makes the data directory of an installation that has none, with a migrated database.
func (g *Gateway) seed() error {
	data := filepath.Join(g.Dir, "data")
	if _, err := os.Stat(data); g.fresh || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := migrated()
	if err != nil {
		return fmt.Errorf("making the database of a test: %w", err)
	}
	return errors.Join(os.Mkdir(data, 0o700), os.WriteFile(g.SQLite(), text, 0o600))
}

// sharedServer are the settings for a process whose PostgreSQL server many processes share: it plans each statement where it is first used, instead of all
// of turns on each connection, and opens few connections. What a process costs the server is above all connecting and planning. Two connections are one
// for turns and one for everything else; where much happens at once, see [Gateway.AtOnce], two of a kind meet.
func sharedServer(database string) []string {
	separator := "?"
	if strings.Contains(database, "?") {
		separator = "&"
	}
	return []string{"LANEWAY_DATABASE_URL=" + database + separator + "pool_min_conns=0", "LANEWAY_DATABASE_CONNS=" + testrun.Size("2", "20")}
}
