package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// one reads exactly one row; pgx.ErrNoRows when there is none.
func one[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, err
	}
	return pgx.CollectExactlyOneRow(rows, scan)
}

// orNone replaces pgx.ErrNoRows by notFound.
func orNone(err, notFound error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return notFound
	}
	return err
}

// MessageByID finds a message by its id; chat.ErrNotFound.
func (s *Store) MessageByID(ctx context.Context, id string) (store.Waiting, error) {
	var out store.Waiting
	err := s.do(ctx, "reading a message", func(ctx context.Context) (err error) {
		out, err = one(ctx, s, scanWaiting, `SELECT `+waitingColumns+` FROM inbox i WHERE i.message_id = $1`, id)
		return orNone(err, chat.ErrNotFound)
	})
	return out, err
}

// joinedAhead is how far after its run a message may lie that joined it.
const joinedAhead = 1000

// filesOfRunsSQL reads the messages of the range in which those of the runs lie. Parameters: $1 the session, $2 the runs, $3 joinedAhead.
const filesOfRunsSQL = `
WITH named AS MATERIALIZED (SELECT id, seq_from, seq_to FROM runs WHERE session_key = $1 AND id = ANY($2::text[]))
SELECT i.run_id, i.body::json ->> 'attachments' FROM inbox i
WHERE i.session_key = $1 AND i.seq BETWEEN (SELECT min(seq_from) FROM named) AND (SELECT max(seq_to) FROM named) + $3::bigint
	AND i.run_id IN (SELECT id FROM named) AND i.body::json ->> 'attachments' IS NOT NULL
ORDER BY i.seq`

// FilesOfRuns lists the files that came with the messages of runs; see the port.
func (s *Store) FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (map[string][]chat.Attachment, error) {
	var found map[string][]chat.Attachment
	err := s.do(ctx, "looking for files of messages", func(ctx context.Context) error {
		found = map[string][]chat.Attachment{}
		rows, err := s.pool.Query(ctx, filesOfRunsSQL, key.String(), runs, joinedAhead)
		if err != nil {
			return err
		}
		var run, text string
		_, err = pgx.ForEachRow(rows, []any{&run, &text}, func() error {
			var files []chat.Attachment
			if err := json.Unmarshal([]byte(text), &files); err != nil {
				return err
			}
			found[run] = append(found[run], files...)
			return nil
		})
		return err
	})
	return found, err
}

// within selects of the rows of a query the first ones whose bytes together are at most budget, at least one. The query has an order and a
// limit, and its column page_size is the bytes of a row; budget is a number or a parameter. The result has the columns of the query, page_n
// (the position of a row, to order by) and page_upto. The server computes lengths without reading the texts, and sends the texts of the
// selected rows only.
func within(query, budget string) string {
	return `(SELECT * FROM (SELECT *, row_number() OVER page_w AS page_n, sum(page_size) OVER page_w AS page_upto FROM (` + query + `) page_all
	WINDOW page_w AS (ROWS UNBOUNDED PRECEDING)) page_sum WHERE page_upto <= ` + budget + ` OR page_upto = page_size)`
}

// readBytes is store.ReadBytes in a statement.
func readBytes() string { return strconv.Itoa(store.ReadBytes) }

// PendingInputs lists the waiting messages of a session, oldest first, and returns the number of all of them.
func (s *Store) PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]store.Waiting, int, error) {
	const from = ` FROM inbox i WHERE i.session_key = $1 AND i.ended_at IS NULL AND i.state IN ('held', 'waiting')`
	page := `SELECT ` + waitingColumns + ` FROM ` +
		within(`SELECT i.*, octet_length(i.body) AS page_size`+from+` AND i.seq > $2 ORDER BY i.seq LIMIT $3`, readBytes()) + ` i ORDER BY page_n`
	var (
		out   []store.Waiting
		total int
	)
	err := s.do(ctx, "listing what waits", func(ctx context.Context) error {
		out = nil
		b := &pgx.Batch{}
		b.Queue(`SELECT count(*)`+from, key.String()).QueryRow(func(row pgx.Row) error { return row.Scan(&total) })
		b.Queue(page, key.String(), after, max(limit, 0)).Query(collect(&out, scanWaiting))
		return send(ctx, s.pool, b)
	})
	return out, total, err
}

// RunByID reads a run; chat.ErrNotFound.
func (s *Store) RunByID(ctx context.Context, id string) (store.Run, error) {
	var out store.Run
	err := s.do(ctx, "reading a run", func(ctx context.Context) (err error) {
		out, err = one(ctx, s, scanRun, `SELECT `+runColumns+` FROM runs r WHERE r.id = $1`, id)
		return orNone(err, chat.ErrNotFound)
	})
	return out, err
}

// CountUnfinished counts messages without an outcome.
func (s *Store) CountUnfinished(ctx context.Context) (int, error) {
	var n int
	err := s.do(ctx, "counting unfinished messages", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `SELECT count(*) FROM inbox WHERE ended_at IS NULL`).Scan(&n)
	})
	return n, err
}
