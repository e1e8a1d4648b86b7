package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// run is a run row with the transcript that it writes to.
type run struct {
	store.Run
	sessionID string
}

// runColumns are read by fields, in this order.
const runColumns = `id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, attempt, crashes, state, cause, error, detail, coalesce(stop_by, ''),
	queued_at, started_at, ended_at, input_tokens, output_tokens, model, provider`

func (u *run) fields() []any {
	return []any{
		&u.ID,
		keyColumn{&u.Session},
		&u.sessionID, &u.SeqFrom, &u.SeqTo, &u.Lane, &u.Owner, &u.Epoch, &u.Attempt, &u.Crashes,
		&u.State, &u.Cause, &u.Error, &u.Detail, &u.StopBy,
		timeColumn{&u.QueuedAt},
		timeColumn{&u.StartedAt},
		timeColumn{&u.EndedAt},
		&u.Usage.InputTokens, &u.Usage.OutputTokens, &u.Usage.Model, &u.Usage.Provider,
	}
}

func scanRun(row scanner) (*run, error) {
	u := &run{}
	err := row.Scan(u.fields()...)
	return u, err
}

// findRun reads a run; known is false when there is none.
func (t *tx) findRun(ctx context.Context, id string) (u *run, known bool, err error) {
	u, err = scanRun(packed{t.one(ctx, `SELECT `+asOne+runColumns+column+` FROM runs WHERE id = ?`, id)})
	if none(err) {
		return nil, false, nil
	}
	return u, err == nil, err
}

// holdRun is the fence of a run, in one statement: the claim holds, and the run runs under exactly this claim. It returns the id of the transcript
// that the run writes to.
func (t *tx) holdRun(ctx context.Context, c store.Claim, runID string) (r *row, transcript string, err error) {
	r = &row{}
	row := t.one(ctx, `SELECT `+asOne+rowColumns+`, runs.session_id`+column+` FROM sessions s LEFT JOIN nodes n ON n.id = s.owner
		JOIN runs ON runs.id = ? AND runs.session_key = s.key AND runs.state IN ('running', 'yielded') AND runs.owner = ? AND runs.epoch = ? WHERE s.key = ?`,
		t.now, runID, c.Node, c.Epoch, c.Session.String())
	err = packed{row}.Scan(append(r.fields(), &transcript)...)
	if none(err) || err == nil && !r.heldBy(c) {
		return nil, "", chat.ErrFenced
	}
	return r, transcript, err
}

// RunByID reads a run; chat.ErrNotFound.
func (s *Store) RunByID(ctx context.Context, id string) (out store.Run, err error) {
	err = s.view(ctx, "find a run", func(ctx context.Context, q querier) error {
		u, err := scanRun(q.one(ctx, `SELECT `+runColumns+` FROM runs WHERE id = ?`, id))
		if none(err) {
			return chat.ErrNotFound
		}
		out = u.Run
		return err
	})
	return out, err
}

// endStoppingOfDead ends the stopping runs of dead nodes: their goroutines have ended with their process.
func (t *tx) endStoppingOfDead(ctx context.Context) error {
	_, err := t.exec(ctx, `
		UPDATE runs SET state = 'stopped', ended_at = ? WHERE state IN ('running', 'stopping', 'yielded') AND state = 'stopping'
		AND NOT EXISTS (SELECT 1 FROM nodes WHERE id = runs.owner AND lease_until > ?)`, t.now, t.now)
	return err
}
