package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"laneway/internal/store/sqlstore"
)

// defaultWarm is one connection for each kind of group, so that a first burst needs neither connecting nor planning.
const defaultWarm = 4

// turnStatements are the statements of turns, which every connection for them has planned before its first use.
func turnStatements() []string {
	d := sqlstore.Postgres()
	list := []string{}
	for _, text := range sqlstore.TurnTexts() {
		list = append(list, d.Of(text).SQL)
	}
	return list
}

// plannedConns is how many connections for turns are planned before they are used. A URL with pool_min_conns=0 requests none, which the configuration of a pool
// cannot distinguish from a URL without it.
func plannedConns(cfg Config, pc *pgxpool.Config) int {
	if cfg.WarmConns != 0 {
		return max(cfg.WarmConns, 0)
	}
	if cc, err := pgconn.ParseConfig(cfg.URL); err == nil && cc.RuntimeParams["pool_min_conns"] != "" {
		return int(pc.MinConns)
	}
	return defaultWarm
}

// warm keeps n connections open and makes each new connection of the pool plan the statements of turns; for 0 it does neither. The plans of a connection take
// some 30 ms, which would otherwise delay the first operations of a burst. A statement that cannot be planned, for example before a migration, fails again
// where it is used, with an error that names the reason; so a failure here is only logged.
func warm(pc *pgxpool.Config, n int, log *slog.Logger) {
	if n < 1 {
		return
	}
	pc.MinConns = min(int32(min(n, 10_000)), pc.MaxConns)
	first := pc.AfterConnect
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := first(ctx, conn); err != nil {
			return err
		}
		for _, sql := range turnStatements() {
			if err := plan(ctx, conn, sql); err != nil {
				log.DebugContext(ctx, "a statement cannot be planned ahead", "err", translate(err))
				return ctx.Err()
			}
		}
		return nil
	}
}

// plan prepares a statement and makes its plan, without running it. A connection has one generic plan per statement (setSession), which EXPLAIN makes and
// keeps.
func plan(ctx context.Context, conn *pgx.Conn, sql string) error {
	prepared, err := conn.Prepare(ctx, sql, sql)
	if err != nil {
		return err
	}
	explain := "EXPLAIN EXECUTE " + pgx.Identifier{prepared.Name}.Sanitize()
	if n := len(prepared.ParamOIDs); n > 0 {
		explain += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
	}
	if _, err := conn.PgConn().Exec(ctx, explain).ReadAll(); err != nil {
		return fmt.Errorf("planning a statement: %w", err)
	}
	return nil
}
