package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"laneway/internal/usage"
)

var _ usage.Store = (*Store)(nil)

// largest is where sums end. The sum of two bigint fails beyond it, that of numeric does not.
const largest = `9223372036854775807`

const (
	// addUsageSQL adds a batch unless its writer has written it. $1 writer, $2 number, $3 day, $4 counters, $5 totals. The rows come in one order, so that
	// no two writers wait for each other.
	addUsageSQL = `
WITH fresh AS (
	INSERT INTO usage_writers AS w (writer, batch, day) VALUES ($1, $2, $3)
	ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, day = excluded.day WHERE w.batch < excluded.batch RETURNING 1
), counters AS (
	INSERT INTO usage_counters AS c (day, principal, agent, model, job, turns, requests, input_tokens, output_tokens, cached_tokens, cost)
	SELECT d, p, a, m, j, t, r, i, o, h, k
	FROM jsonb_to_recordset($4::jsonb) AS n (d text, p text, a text, m text, j text, t bigint, r bigint, i bigint, o bigint, h bigint, k bigint)
	WHERE EXISTS (SELECT 1 FROM fresh)
	ON CONFLICT (day, principal, agent, model, job) DO UPDATE SET turns = c.turns + excluded.turns, requests = c.requests + excluded.requests,
		input_tokens = least(c.input_tokens::numeric + excluded.input_tokens, ` + largest + `),
		output_tokens = least(c.output_tokens::numeric + excluded.output_tokens, ` + largest + `),
		cached_tokens = least(c.cached_tokens::numeric + excluded.cached_tokens, ` + largest + `), cost = least(c.cost::numeric + excluded.cost, ` + largest + `)
	RETURNING 1
)
INSERT INTO usage_totals AS t (day, scope, name, tokens, cost)
SELECT d, s, m, n, k FROM jsonb_to_recordset($5::jsonb) AS r (d text, s text, m text, n bigint, k bigint)
WHERE EXISTS (SELECT 1 FROM fresh) AND (SELECT count(*) FROM counters) >= 0
ON CONFLICT (day, scope, name) DO UPDATE SET tokens = least(t.tokens::numeric + excluded.tokens, ` + largest + `),
	cost = least(t.cost::numeric + excluded.cost, ` + largest + `)`

	// totalsSQL reads totals. $1 day, $2 scopes, $3 names.
	totalsSQL = `
SELECT t.scope, t.name, t.tokens, t.cost FROM unnest($2::text[], $3::text[]) AS w (scope, name)
JOIN usage_totals t ON t.day = $1 AND t.scope = w.scope AND t.name = w.name`

	// pruneUsageSQL deletes old rows of the three tables. $1 day, $2 limit of each.
	pruneCountersSQL = `DELETE FROM usage_counters WHERE ctid = ANY (ARRAY(SELECT ctid FROM usage_counters WHERE day < $1 LIMIT $2))`
	pruneTotalsSQL   = `DELETE FROM usage_totals WHERE ctid = ANY (ARRAY(SELECT ctid FROM usage_totals WHERE day < $1 LIMIT $2))`
	pruneWritersSQL  = `DELETE FROM usage_writers WHERE ctid = ANY (ARRAY(SELECT ctid FROM usage_writers WHERE day < $1 LIMIT $2))`
)

// counterRow and totalRow are rows of a batch on their way to the database.
type (
	counterRow struct {
		Day       string `json:"d"`
		Principal string `json:"p"`
		Agent     string `json:"a"`
		Model     string `json:"m"`
		Job       string `json:"j"`
		Turns     int64  `json:"t"`
		Requests  int64  `json:"r"`
		Input     int64  `json:"i"`
		Output    int64  `json:"o"`
		Cached    int64  `json:"h"`
		Cost      int64  `json:"k"`
	}
	totalRow struct {
		Day    string `json:"d"`
		Scope  string `json:"s"`
		Name   string `json:"m"`
		Tokens int64  `json:"n"`
		Cost   int64  `json:"k"`
	}
)

// usageArgs are the arguments of addUsageSQL.
func usageArgs(b usage.Batch) ([]any, error) {
	counters := make([]counterRow, 0, len(b.Records))
	for _, r := range b.Records {
		counters = append(counters, counterRow{
			r.Day, clean(r.Principal), clean(r.Agent), clean(r.Model), clean(r.Job),
			r.Turns, r.Requests, r.InputTokens, r.OutputTokens, r.CachedTokens, int64(r.Cost),
		})
	}
	var totals []totalRow
	for day, scopes := range b.Totals() {
		for scope, spent := range scopes {
			totals = append(totals, totalRow{day, string(scope.Kind), clean(scope.Name), spent.Tokens, int64(spent.Cost)})
		}
	}
	slices.SortFunc(totals, func(a, b totalRow) int {
		return cmp.Or(strings.Compare(a.Day, b.Day), strings.Compare(a.Scope, b.Scope), strings.Compare(a.Name, b.Name))
	})
	added, err := json.Marshal(counters)
	if err != nil {
		return nil, fmt.Errorf("encoding counters of usage: %w", err)
	}
	sums, err := json.Marshal(totals)
	if err != nil {
		return nil, fmt.Errorf("encoding totals of usage: %w", err)
	}
	return []any{b.Writer, b.Number, b.Day, string(added), string(sums)}, nil
}

// AddUsage adds a batch and reads totals, see usage.Store. One round trip.
func (s *Store) AddUsage(ctx context.Context, b usage.Batch, day string, read []usage.Scope) (map[usage.Scope]usage.Spent, error) {
	args, err := usageArgs(b)
	if err != nil {
		return nil, err
	}
	kinds, names := make([]string, 0, len(read)), make([]string, 0, len(read))
	for _, scope := range read {
		kinds, names = append(kinds, string(scope.Kind)), append(names, clean(scope.Name))
	}
	var spent map[usage.Scope]usage.Spent
	err = s.do(ctx, "counting what agents use", func(ctx context.Context) error {
		spent = make(map[usage.Scope]usage.Spent, len(read))
		batch := &pgx.Batch{}
		if len(b.Records) > 0 {
			batch.Queue(addUsageSQL, args...)
		}
		if len(read) > 0 {
			batch.Queue(totalsSQL, day, kinds, names).Query(func(rows pgx.Rows) error {
				var scope usage.Scope
				var one usage.Spent
				_, err := pgx.ForEachRow(rows, []any{&scope.Kind, &scope.Name, &one.Tokens, &one.Cost}, func() error {
					spent[scope] = one
					return nil
				})
				return err
			})
		}
		if batch.Len() == 0 {
			return nil
		}
		return send(ctx, s.pool, batch)
	})
	return spent, err
}

// usageColumn is the column of a grouping; it is never text of a caller.
func usageColumn(by usage.Grouping) (column, only string) {
	switch by {
	case usage.ByPrincipal:
		return "principal", ""
	case usage.ByAgent:
		return "agent", ""
	case usage.ByModel:
		return "model", ""
	case usage.ByJob:
		return "job", " AND job <> ''"
	case usage.ByNothing:
	}
	return "''", ""
}

// sumOf sums a column up to the largest bigint.
func sumOf(column string) string { return "least(sum(" + column + "), " + largest + ")::bigint" }

// UsageRows sums counters, see usage.Store.
func (s *Store) UsageRows(ctx context.Context, q usage.Query) (list []usage.Row, err error) {
	column, only := usageColumn(q.By)
	text := `
SELECT day, ` + column + ` AS name, sum(turns)::bigint, sum(requests)::bigint, ` + sumOf("input_tokens") + `, ` + sumOf("output_tokens") + `,
	` + sumOf("cached_tokens") + `, ` + sumOf("cost") + `
FROM usage_counters WHERE day BETWEEN $1 AND $2 AND ($3 = '' OR principal = $3) AND ($4 = '' OR job = $4)` + only + `
GROUP BY 1, 2 ORDER BY day DESC, sum(input_tokens) + sum(output_tokens) DESC, 2 LIMIT $5`
	err = s.do(ctx, "reading what agents use", func(ctx context.Context) error {
		list = nil
		rows, err := s.pool.Query(ctx, text, q.From, q.To, clean(q.Principal), clean(q.Job), q.Most())
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r usage.Row, err error) {
			err = row.Scan(&r.Day, &r.Name, &r.Turns, &r.Requests, &r.InputTokens, &r.OutputTokens, &r.CachedTokens, &r.Cost)
			return r, err
		})
		return err
	})
	return list, err
}

// PruneUsage deletes old counters, see usage.Store.
func (s *Store) PruneUsage(ctx context.Context, before string, limit int) (n int, err error) {
	err = s.do(ctx, "removing old counters of usage", func(ctx context.Context) error {
		n = 0
		for _, text := range []string{pruneCountersSQL, pruneTotalsSQL, pruneWritersSQL} {
			done, err := s.pool.Exec(ctx, text, before, limit-n)
			if err != nil {
				return err
			}
			if n += int(done.RowsAffected()); n >= limit {
				return nil
			}
		}
		return nil
	})
	return n, err
}
