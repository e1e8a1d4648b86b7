package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The three statements of BenchmarkStatements. Each is a transaction of its own and contains its fence: node, epoch and lease.
const (
	bareNow = `(date_part('epoch', clock_timestamp()) * 1000)::bigint`

	bareAccept = `
WITH s AS (
	INSERT INTO sessions AS s (key, agent, principal, session_id, lane, owner, epoch, last_seq, waiting, created_at, updated_at, last_message_at)
	VALUES ($1, 'main', 'gateway', $1, 'main', 'n1', 1, 1, 1, ` + bareNow + `, ` + bareNow + `, ` + bareNow + `)
	ON CONFLICT (key) DO UPDATE SET last_seq = s.last_seq + 1, waiting = s.waiting + 1, updated_at = excluded.updated_at, last_message_at = excluded.updated_at
	RETURNING last_seq, updated_at
)
INSERT INTO inbox (session_key, seq, message_id, channel, principal, sender, body, lane, state, node, accepted_at)
SELECT $1, last_seq, $2, 'web', 'gateway', '{}', '{"text":"a question"}', 'main', 'waiting', 'n1', updated_at FROM s RETURNING seq`

	bareFence = `UPDATE sessions s SET transcript_seq = transcript_seq + 1, updated_at = ` + bareNow + `, %s
	WHERE key = $1 AND owner = 'n1' AND epoch = 1 AND EXISTS (SELECT 1 FROM nodes WHERE id = 'n1' AND lease_until > ` + bareNow + `)
	RETURNING session_id, transcript_seq, updated_at AS now`

	bareEntry = `
	INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, at) SELECT $1, s.session_id, s.transcript_seq, $2, %s, s.now FROM s`
)

var (
	bareStart = `
WITH s AS (` + fmt.Sprintf(bareFence, "taken_seq = $3, waiting = waiting - 1") + `
), b AS (
	UPDATE inbox SET state = 'running', run_id = $2 FROM s WHERE session_key = $1 AND seq = $3 AND state = 'waiting' AND ended_at IS NULL RETURNING accepted_at
), r AS (
	INSERT INTO runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at)
	SELECT $2, $1, s.session_id, $3, $3, 'main', 'n1', 1, 'running', b.accepted_at, s.now FROM s, b
)` + fmt.Sprintf(bareEntry, "'user', 'a question'")

	bareEnd = `
WITH s AS (` + fmt.Sprintf(bareFence, "done_seq = $3, last_run_id = $2, last_state = 'ok', preview = 'an answer'") + `
), b AS (
	UPDATE inbox SET state = 'done', outcome = 'answered', ended_at = s.now FROM s WHERE session_key = $1 AND seq = $3 AND ended_at IS NULL
), r AS (
	UPDATE runs SET state = 'ok', ended_at = s.now FROM s WHERE id = $2 AND state = 'running'
), o AS (
	INSERT INTO outbox (id, run_id, session_key, channel, chat_id, payload, next_at, created_at) SELECT $2, $2, $1, 'web', $1, 'an answer', s.now, s.now FROM s
)` + fmt.Sprintf(bareEntry, "'assistant', 'an answer'")
)

// BenchmarkStatements is a lower bound for the cost of a turn on these tables: an accept, a start and an end of one statement each. It omits the other cases of
// the store (a full queue, a dead owner, a repeated message, a second attempt) and shared transactions. BenchmarkCost/turn in the same run shows the cost of
// the store.
func BenchmarkStatements(b *testing.B) {
	for _, workers := range []int{16, 30, 32, 128} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { benchStatements(b, workers) })
	}
}

func benchStatements(b *testing.B, workers int) {
	b.Helper()
	m := newMeter(b)
	m.open(b) // registers the node
	cfg, err := pgxpool.ParseConfig(m.url)
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = 16 // as in the store
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	share(b, workers, numbers(-workers, 0), func(i int) error { return bareTurn(b.Context(), pool, workers, i) })
	m.begin(b)
	b.ResetTimer()
	share(b, workers, numbers(0, b.N), func(i int) error { return bareTurn(b.Context(), pool, workers, i) })
	m.report(b)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}

// bareTurn is a turn in the session of its worker.
func bareTurn(ctx context.Context, pool *pgxpool.Pool, workers, i int) error {
	key, id := fmt.Sprintf("agent:main:w%d", (i+workers)%workers), fmt.Sprintf("m-%d", i)
	var seq int64
	if err := pool.QueryRow(ctx, bareAccept, key, id).Scan(&seq); err != nil {
		return err
	}
	for _, statement := range []string{bareStart, bareEnd} {
		tag, err := pool.Exec(ctx, statement, key, id, seq)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return errors.New("the fence does not hold")
		}
	}
	return nil
}

// numbers returns the integers in [from, to).
func numbers(from, to int) []int {
	list := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}
