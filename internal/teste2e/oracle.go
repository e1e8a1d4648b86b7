package teste2e

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"laneway/internal/store"
)

// Oracle reads the database of a gateway directly: the content of the rows, whichever process wrote them.
type Oracle struct {
	tb testing.TB
	db *sql.DB
}

// OpenOracle opens the database of an installation; url "" = its SQLite file, which a gateway may be using.
func OpenOracle(tb testing.TB, g *Gateway, url string) *Oracle {
	tb.Helper()
	driver, dsn := "pgx", url
	if url == "" {
		driver, dsn = "sqlite", "file:"+g.SQLite()+"?mode=ro&_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	o := &Oracle{tb: tb, db: db}
	tb.Cleanup(o.Close)
	return o
}

// Close ends the connections before the end of the test.
func (o *Oracle) Close() { _ = o.db.Close() }

// Count runs a query with one number as its answer.
func (o *Oracle) Count(query string) int {
	o.tb.Helper()
	var n int
	if err := o.db.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		o.tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// Rows runs a query and returns every row as one line of text.
func (o *Oracle) Rows(query string) []string {
	o.tb.Helper()
	rows, err := o.db.QueryContext(context.Background(), query)
	if err != nil {
		o.tb.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		o.tb.Fatal(err)
	}
	var out []string
	for rows.Next() {
		values, ptrs := make([]any, len(cols)), make([]any, len(cols))
		for i := range values {
			ptrs[i] = &values[i]
		}
		if err := rows.Scan(ptrs...); err != nil {
			o.tb.Fatal(err)
		}
		var line []string
		for _, v := range values {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			line = append(line, fmt.Sprint(v))
		}
		out = append(out, strings.Join(line, "|"))
	}
	if err := rows.Err(); err != nil {
		o.tb.Fatal(err)
	}
	return out
}

// Check checks every invariant; a row is a violation. lease is the longest lease of a node of the test.
func (o *Oracle) Check(lease time.Duration) {
	o.tb.Helper()
	now := time.Now().UnixMilli()
	values := map[string]string{
		"now": strconv.FormatInt(now, 10), "gone": strconv.FormatInt(now-(lease+5*time.Second).Milliseconds(), 10),
		"drain": strconv.FormatInt(now-time.Minute.Milliseconds(), 10), "since": strconv.FormatInt(now-24*time.Hour.Milliseconds(), 10),
		"main": "30", "subagent": "50", "team": "100", "cron": "30", "cap": "10", "secret": "'never-a-secret'",
		"jobs": "1000000", "keep": strconv.FormatInt(now-32*24*time.Hour.Milliseconds(), 10),
	}
	for _, inv := range store.Invariants() {
		text := inv.SQL
		for _, name := range inv.Params {
			text = strings.ReplaceAll(text, ":"+name, values[name])
		}
		if bad := o.Rows(text); len(bad) > 0 {
			o.tb.Errorf("%s is violated (%s): %s", inv.ID, inv.Rule, strings.Join(bad[:min(len(bad), 5)], "; "))
		}
	}
}
