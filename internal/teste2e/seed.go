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

// migrated is the content of a SQLite file with every migration and no row. A gateway that applies the migrations itself needs twice the
// processor time for its start; that is tested with [Gateway] fresh, and in the start-up matrices.
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

// seed creates the data directory of an installation, with a migrated database, if it does not exist.
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

// sharedServer are the settings for a process whose PostgreSQL server many processes share. It plans each statement at its first use,
// instead of all statements of turns on each connection, and opens few connections, because connecting and planning are the main cost for
// the server. Of the two connections, one is for turns and one for everything else; [Gateway.AtOnce] allows two of a kind.
func sharedServer(database string) []string {
	separator := "?"
	if strings.Contains(database, "?") {
		separator = "&"
	}
	return []string{"LANEWAY_DATABASE_URL=" + database + separator + "pool_min_conns=0", "LANEWAY_DATABASE_CONNS=" + testrun.Size("2", "20")}
}
