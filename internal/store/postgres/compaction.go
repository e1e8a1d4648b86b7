package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// compactTime bounds a compaction.
const compactTime = 10 * time.Minute

var errCompactTime = errors.New("the compaction took too long")

// tablesSQL lists the tables with their sizes including indexes, their dead rows, and whether this role may vacuum them.
const tablesSQL = `SELECT quote_ident(c.relname), pg_total_relation_size(c.oid), pg_stat_get_dead_tuples(c.oid), pg_has_role(c.relowner, 'USAGE')
	FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1`

type table struct {
	name       string
	size, dead int64
	mine       bool
}

// Compact vacuums every table, on a connection of its own. The space of deleted and replaced rows becomes free for new ones, free space at the end of a table
// is returned to the disk, and the statistics are updated. It runs concurrently with reads and writes (no FULL) and skips a table that another vacuum is
// processing. It checks ctx between the tables. It stops after ten minutes, and the next compaction continues.
func (s *Store) Compact(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, compactTime, errCompactTime)
	defer cancel()
	cfg := s.pool.Config().ConnConfig.Copy()
	cfg.RuntimeParams["statement_timeout"] = "0"   // ctx bounds it
	cfg.RuntimeParams["vacuum_cost_delay"] = "1ms" // leave disk bandwidth to turns
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", fmt.Errorf("compacting the database: %w", translate(err))
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	report, err := compact(ctx, conn)
	switch {
	case errors.Is(context.Cause(ctx), errCompactTime):
		return report + "; the rest is for the next time", nil
	case ctx.Err() != nil:
		return report, context.Cause(ctx)
	case err != nil:
		return report, fmt.Errorf("compacting the database: %w", translate(err))
	}
	return report, nil
}

func compact(ctx context.Context, conn *pgx.Conn) (string, error) {
	before, err := tables(ctx, conn)
	if err != nil {
		return "", err
	}
	done, refused, dead := 0, 0, int64(0)
	for _, t := range before {
		if !t.mine {
			refused++
			continue
		}
		if _, err = conn.Exec(ctx, `VACUUM (ANALYZE, SKIP_LOCKED) `+t.name); err != nil {
			break
		}
		done, dead = done+1, dead+t.dead
	}
	report := fmt.Sprintf("%d tables vacuumed, about %d dead rows in them", done, dead)
	if refused > 0 {
		report += fmt.Sprintf("; %d left out, because they belong to another role", refused)
	}
	if err != nil {
		return report, err
	}
	after, err := tables(ctx, conn)
	if err != nil {
		return report, err
	}
	return fmt.Sprintf("%.1f MiB given back to the disk, %s", float64(max(total(before)-total(after), 0))/(1<<20), report), nil
}

func tables(ctx context.Context, conn *pgx.Conn) ([]table, error) {
	rows, err := conn.Query(ctx, tablesSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		return t, row.Scan(&t.name, &t.size, &t.dead, &t.mine)
	})
}

func total(list []table) (bytes int64) {
	for _, t := range list {
		bytes += t.size
	}
	return bytes
}
