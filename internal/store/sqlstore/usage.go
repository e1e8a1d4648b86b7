package sqlstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"laneway/internal/store"
	"laneway/internal/usage"
)

// Usage counts what agents use.
type Usage struct{ db Engine }

var _ usage.Store = Usage{}

// largest bounds sums, and part divides a sum into two parts that cannot overflow.
const (
	largest = `9223372036854775807`
	part    = `1000000000`
)

// added is a saturating counter: on overflow it becomes the largest number.
func added(column string) string {
	return column + ` = CASE WHEN c.` + column + ` > ` + largest + ` - excluded.` + column + ` THEN ` + largest + ` ELSE c.` + column + ` + excluded.` + column + ` END`
}

// sumOf sums a column up to the largest integer. Quotients and remainders are summed separately,
// because the whole sum may overflow.
func sumOf(column string) string {
	const q = `CAST(sum(%/` + part + `) AS bigint)`
	const r = `CAST(sum(% - %/` + part + `*` + part + `) AS bigint)`
	text := `CASE WHEN ` + q + ` + ` + r + `/` + part + ` >= ` + largest + `/` + part + ` THEN ` + largest + ` ELSE ` + q + `*` + part + ` + ` + r + ` END`
	return strings.ReplaceAll(text, "%", column)
}

func addCountersSQL() string {
	return `{set day text, principal text, agent text, model text, job text, turns int, requests int, input int, output int, cached int, cost int, unreported int}
		INSERT INTO usage_counters AS c (day, principal, agent, model, job, turns, requests, input_tokens, output_tokens, cached_tokens, cost, unreported)
		SELECT v.day, v.principal, v.agent, v.model, v.job, v.turns, v.requests, v.input, v.output, v.cached, v.cost, v.unreported {from} WHERE true
		ON CONFLICT (day, principal, agent, model, job) DO UPDATE SET turns = c.turns + excluded.turns, requests = c.requests + excluded.requests, ` +
		added("input_tokens") + `, ` + added("output_tokens") + `, ` + added("cached_tokens") + `, ` + added("cost") + `, ` + added("unreported")
}

func addTotalsSQL() string {
	return `{set day text, scope text, name text, tokens int, cost int}
		INSERT INTO usage_totals AS c (day, scope, name, tokens, cost) SELECT v.day, v.scope, v.name, v.tokens, v.cost {from} WHERE true
		ON CONFLICT (day, scope, name) DO UPDATE SET ` + added("tokens") + `, ` + added("cost")
}

const (
	noteBatchSQL = `INSERT INTO usage_writers AS w (writer, batch, day) VALUES ($1, $2, $3)
		ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, day = excluded.day WHERE w.batch < excluded.batch`
	readTotalsSQL = `{set scope text, name text}
		SELECT t.scope, t.name, t.tokens, t.cost FROM usage_totals t {and} WHERE t.day = $1 AND t.scope = v.scope AND t.name = v.name`
)

// AddUsage adds a batch and reads totals; see usage.Store.
func (s Usage) AddUsage(ctx context.Context, b usage.Batch, day string, read []usage.Scope) (map[usage.Scope]usage.Spent, error) {
	scopes := make(Set, 0, len(read))
	for _, scope := range read {
		scopes = append(scopes, []any{string(scope.Kind), scope.Name})
	}
	in := s.db.Update
	if len(b.Records) == 0 {
		in = s.db.View
	}
	return result(ctx, in, "count what agents use", func(ctx context.Context, tx Tx) (map[usage.Scope]usage.Spent, error) {
		spent := make(map[usage.Scope]usage.Spent, len(read))
		if err := addUsage(ctx, tx, &b); err != nil {
			return nil, err
		}
		err := tx.Query(ctx, readTotalsSQL, func(r Row) error {
			var (
				kind  string
				scope usage.Scope
				one   usage.Spent
			)
			err := r.Scan(&kind, &scope.Name, &one.Tokens, &one.Cost)
			scope.Kind = usage.Kind(kind)
			spent[scope] = one
			return err
		}, day, scopes)
		return spent, err
	})
}

func addUsage(ctx context.Context, tx Tx, b *usage.Batch) error {
	if len(b.Records) == 0 {
		return nil
	}
	fresh, err := tx.Exec(ctx, noteBatchSQL, b.Writer, b.Number, b.Day)
	if err != nil || fresh == 0 {
		return err
	}
	counters := make(Set, 0, len(b.Records))
	for _, r := range b.Records {
		counters = append(counters, []any{
			r.Day, r.Principal, r.Agent, r.Model, r.Job, r.Turns, r.Requests, r.InputTokens, r.OutputTokens, r.CachedTokens, int64(r.Cost),
			r.Unreported.Milliseconds(),
		})
	}
	if _, err := tx.Exec(ctx, addCountersSQL(), counters); err != nil {
		return err
	}
	type total struct {
		day, kind, name string
		usage.Spent
	}
	var totals []total
	for day, scopes := range b.Totals() {
		for scope, spent := range scopes {
			totals = append(totals, total{day, string(scope.Kind), scope.Name, spent})
		}
	}
	// Sorted, so that two transactions cannot deadlock.
	slices.SortFunc(totals, func(a, b total) int {
		return cmp.Or(strings.Compare(a.day, b.day), strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
	})
	rows := make(Set, 0, len(totals))
	for _, t := range totals {
		rows = append(rows, []any{t.day, t.kind, t.name, t.Tokens, int64(t.Cost)})
	}
	_, err = tx.Exec(ctx, addTotalsSQL(), rows)
	return err
}

// usageColumn is the column of a grouping; it is never text from a caller.
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

// UsageRows sums counters; see usage.Store.
func (s Usage) UsageRows(ctx context.Context, q usage.Query) ([]usage.Row, error) {
	column, only := usageColumn(q.By)
	text := `SELECT day, ` + column + ` AS name, CAST(sum(turns) AS bigint), CAST(sum(requests) AS bigint), ` +
		sumOf("input_tokens") + `, ` + sumOf("output_tokens") + `, ` + sumOf("cached_tokens") + `, ` + sumOf("cost") + `, ` + sumOf("unreported") + `
		FROM usage_counters WHERE day BETWEEN $1 AND $2 AND ($3 = '' OR principal = $3) AND ($4 = '' OR job = $4)` + only + `
		GROUP BY 1, 2 ORDER BY day DESC, sum(input_tokens * 1.0) + sum(output_tokens * 1.0) DESC, 2 {limit $5}`
	return list(ctx, s.db, query{"read what agents use", text, []any{q.From, q.To, q.Principal, q.Job, q.Most()}}, func(r Row) (u usage.Row, err error) {
		var unreported int64
		err = r.Scan(&u.Day, &u.Name, &u.Turns, &u.Requests, &u.InputTokens, &u.OutputTokens, &u.CachedTokens, &u.Cost, &unreported)
		u.Unreported = time.Duration(min(unreported, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		return u, err
	})
}

// PruneUsage deletes old counters; see usage.Store.
func (s Usage) PruneUsage(ctx context.Context, before string, limit int) (int, error) {
	return result(ctx, s.db.Update, "remove old counters of usage", func(ctx context.Context, tx Tx) (n int, err error) {
		for _, text := range []string{
			`WITH old AS MATERIALIZED (SELECT day, principal, agent, model, job FROM usage_counters WHERE day < $1 {limit $2})
				DELETE FROM usage_counters WHERE (day, principal, agent, model, job) IN (SELECT day, principal, agent, model, job FROM old)`,
			`WITH old AS MATERIALIZED (SELECT day, scope, name FROM usage_totals WHERE day < $1 {limit $2})
				DELETE FROM usage_totals WHERE (day, scope, name) IN (SELECT day, scope, name FROM old)`,
			`WITH old AS MATERIALIZED (SELECT writer FROM usage_writers WHERE day < $1 {limit $2})
				DELETE FROM usage_writers WHERE (writer) IN (SELECT writer FROM old)`,
		} {
			done, err := tx.Exec(ctx, text, before, limit-n)
			if err != nil {
				return n, err
			}
			if n += int(done); n >= limit {
				return n, nil
			}
		}
		return n, nil
	})
}

// Ratios are the measured ratios between token counts and estimates.
type Ratios struct{ db Engine }

// TokenRatios lists all ratios; see store.Store.
func (s Ratios) TokenRatios(ctx context.Context) ([]store.TokenRatio, error) {
	return list(ctx, s.db, query{
		"read how endpoints count tokens", `SELECT endpoint, model, permille FROM token_ratios ORDER BY endpoint, model`, nil,
	}, func(r Row) (t store.TokenRatio, err error) {
		err = r.Scan(&t.Endpoint, &t.Model, &t.Permille)
		return t, err
	})
}

const saveRatiosSQL = `{set endpoint text, model text, permille int}
	INSERT INTO token_ratios (endpoint, model, permille) SELECT v.endpoint, v.model, v.permille {from} WHERE true
	ON CONFLICT (endpoint, model) DO UPDATE SET permille = excluded.permille`

// SaveTokenRatios stores ratios; see store.Store.
func (s Ratios) SaveTokenRatios(ctx context.Context, list []store.TokenRatio) error {
	rows := make(Set, 0, len(list))
	for _, t := range list {
		rows = append(rows, []any{t.Endpoint, t.Model, t.Permille})
	}
	return s.db.Update(ctx, "keep how endpoints count tokens", func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, saveRatiosSQL, rows)
		return err
	})
}
