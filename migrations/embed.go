// Package migrations holds the schema of both stores as numbered steps. The files are embedded, so a binary always carries
// the schema that it was built for. internal/store/postgres and internal/store/sqlite run them, with [Up] in this direction.
package migrations

import "embed"

// Postgres holds the steps for Postgres below postgres/.
//
//go:embed postgres/*.sql
var Postgres embed.FS

// SQLite holds the steps for SQLite below sqlite/.
//
//go:embed sqlite/*.sql
var SQLite embed.FS
