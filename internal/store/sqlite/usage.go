package sqlite

import (
	"context"

	"laneway/internal/usage"
)

var _ usage.Store = (*Store)(nil)

// largest is where sums end. SQLite turns a sum of two integers that does not fit into a floating point number, which min compares exactly.
const largest = `9223372036854775807`

const (
	addCounterSQL = `
		INSERT INTO usage_counters AS c (day, principal, agent, model, job, turns, requests, input_tokens, output_tokens, cached_tokens, cost)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
		turns = c.turns + excluded.turns, requests = c.requests + excluded.requests,
		input_tokens = min(c.input_tokens + excluded.input_tokens, ` + largest + `), output_tokens = min(c.output_tokens + excluded.output_tokens, ` + largest + `),
		cached_tokens = min(c.cached_tokens + excluded.cached_tokens, ` + largest + `), cost = min(c.cost + excluded.cost, ` + largest + `)`
	addTotalSQL = `INSERT INTO usage_totals AS t (day, scope, name, tokens, cost) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET tokens = min(t.tokens + excluded.tokens, ` + largest + `), cost = min(t.cost + excluded.cost, ` + largest + `)`
	noteBatchSQL = `INSERT INTO usage_writers AS w (writer, batch, day) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET batch = excluded.batch, day = excluded.day WHERE w.batch < excluded.batch`
)

// AddUsage adds a batch and reads totals; see the port.
func (s *Store) AddUsage(ctx context.Context, b usage.Batch, day string, read []usage.Scope) (map[usage.Scope]usage.Spent, error) {
	return result(ctx, s.write, ordinary("count what agents use"), func(ctx context.Context, t *tx) (map[usage.Scope]usage.Spent, error) {
		if err := t.addUsage(ctx, &b); err != nil {
			return nil, err
		}
		spent := make(map[usage.Scope]usage.Spent, len(read))
		for _, scope := range read {
			var one usage.Spent
			err := t.one(ctx, `SELECT tokens, cost FROM usage_totals WHERE day = ? AND scope = ? AND name = ?`, day, scope.Kind, scope.Name).
				Scan(&one.Tokens, &one.Cost)
			switch {
			case err == nil:
				spent[scope] = one
			case !none(err):
				return nil, err
			}
		}
		return spent, nil
	})
}

func (t *tx) addUsage(ctx context.Context, b *usage.Batch) error {
	if len(b.Records) == 0 {
		return nil
	}
	fresh, err := t.exec(ctx, noteBatchSQL, b.Writer, b.Number, b.Day)
	if err != nil || fresh == 0 {
		return err
	}
	for _, r := range b.Records {
		if _, err := t.exec(ctx, addCounterSQL, r.Day, r.Principal, r.Agent, r.Model, r.Job,
			r.Turns, r.Requests, r.InputTokens, r.OutputTokens, r.CachedTokens, r.Cost); err != nil {
			return err
		}
	}
	for day, totals := range b.Totals() {
		for scope, spent := range totals {
			if _, err := t.exec(ctx, addTotalSQL, day, scope.Kind, scope.Name, spent.Tokens, spent.Cost); err != nil {
				return err
			}
		}
	}
	return nil
}

// sumOf sums a column up to the largest integer. sum alone fails beyond it, so the column is summed in two parts.
func sumOf(column string) string {
	return `min(sum(` + column + ` / 1000000000) * 1000000000 + sum(` + column + ` % 1000000000), ` + largest + `)`
}

// usageSQL sums the counters by one column. ?1 from, ?2 to, ?3 principal, ?4 job, ?5 limit.
func usageSQL(by usage.Grouping) string {
	const (
		head  = `SELECT day, `
		order = ` GROUP BY day, name ORDER BY day DESC, total(input_tokens) + total(output_tokens) DESC, name LIMIT +?5`
	)
	tail := ` AS name, sum(turns), sum(requests), ` + sumOf(`input_tokens`) + `, ` + sumOf(`output_tokens`) + `, ` + sumOf(`cached_tokens`) + `, ` + sumOf(`cost`) + `
		FROM usage_counters WHERE day BETWEEN ?1 AND ?2 AND (?3 = '' OR principal = ?3) AND (?4 = '' OR job = ?4)`
	switch by {
	case usage.ByPrincipal:
		return head + `principal` + tail + order
	case usage.ByAgent:
		return head + `agent` + tail + order
	case usage.ByModel:
		return head + `model` + tail + order
	case usage.ByJob:
		return head + `job` + tail + ` AND job <> ''` + order
	case usage.ByNothing:
	}
	return head + `''` + tail + order
}

// UsageRows sums counters; see the port.
func (s *Store) UsageRows(ctx context.Context, q usage.Query) (list []usage.Row, err error) {
	err = s.view(ctx, "read what agents use", func(ctx context.Context, v querier) error {
		rows, err := v.query(ctx, usageSQL(q.By), q.From, q.To, q.Principal, q.Job, q.Most())
		list, err = collect(rows, err, func(row scanner) (r usage.Row, err error) {
			err = row.Scan(&r.Day, &r.Name, &r.Turns, &r.Requests, &r.InputTokens, &r.OutputTokens, &r.CachedTokens, &r.Cost)
			return r, err
		})
		return err
	})
	return list, err
}

// PruneUsage deletes old counters; see the port.
func (s *Store) PruneUsage(ctx context.Context, before string, limit int) (int, error) {
	return result(ctx, s.write, ordinary("remove old counters of usage"), func(ctx context.Context, t *tx) (int, error) {
		left := int64(limit)
		for _, text := range []string{
			`DELETE FROM usage_counters WHERE (day, principal, agent, model, job) IN
				(SELECT day, principal, agent, model, job FROM usage_counters WHERE day < ? LIMIT +?)`,
			`DELETE FROM usage_totals WHERE (day, scope, name) IN (SELECT day, scope, name FROM usage_totals WHERE day < ? LIMIT +?)`,
			`DELETE FROM usage_writers WHERE writer IN (SELECT writer FROM usage_writers WHERE day < ? LIMIT +?)`,
		} {
			n, err := t.exec(ctx, text, before, left)
			if err != nil {
				return 0, err
			}
			if left -= n; left == 0 {
				break
			}
		}
		return limit - int(left), nil
	})
}
