package sqlstore

import (
	"cmp"
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	runningRunsSQL = `SELECT ` + runColumns + ` FROM runs {by runs_open} WHERE session_key = $1 AND {running} AND state <> 'stopping' ORDER BY seq_from`

	// The first requester stays recorded.
	stopRunsSQL = `UPDATE runs SET stop_by = $2 WHERE id {in $1} AND COALESCE(stop_by, '') = ''`
)

// Stop records a stop; see store.Inbox. It does not wait for turns.
func (s Inbox) Stop(ctx context.Context, p store.StopParams) (store.Stopped, error) {
	return result(ctx, control(s.db, Stop), "stop", func(ctx context.Context, tx Tx) (out store.Stopped, err error) {
		key := p.Session.String()
		runs, err := meets(ctx, tx, &p, &out)
		if err != nil {
			return out, err
		}
		ids := make([]string, len(runs))
		for i, u := range runs {
			ids[i] = u.ID
			out.Running = append(out.Running, store.RunningRun{RunID: u.ID, Node: u.Owner})
		}
		if len(ids) > 0 {
			if err := tx.Later(ctx, stopRunsSQL, nil, ids, cmp.Or(p.By, p.Reason, "stop")); err != nil {
				return out, err
			}
		}
		if err := endMessages(ctx, tx, key, out.Waiting, ending{outcome: chat.OutcomeStopped, reason: p.Reason}); err != nil {
			return out, err
		}
		if p.Scope == store.StopAll {
			_, err = one(ctx, tx, `UPDATE sessions SET stop_seq = last_seq WHERE key = $1 RETURNING stop_seq`, into(&out.Cutoff), key)
			if err != nil {
				return out, err
			}
		}
		return out, settle(ctx, tx, []string{key})
	})
}

// meets locks the session and reads what a stop selects: the runs, and the waiting messages.
func meets(ctx context.Context, tx Tx, p *store.StopParams, out *store.Stopped) (runs []store.Run, err error) {
	key := p.Session.String()
	if _, err := lockRows(ctx, tx, []string{key}, true); err != nil {
		return nil, err
	}
	running, err := all(ctx, tx, runningRunsSQL, func(r Row) (store.Run, error) {
		u, err := scanRun(r)
		return u.Run, err
	}, key)
	if err != nil {
		return nil, err
	}
	which, args := ` ORDER BY seq`, []any{key}
	switch p.Scope { //nolint:exhaustive // the others read all
	case store.StopOne:
		which = ` ORDER BY seq LIMIT 1`
	case store.StopRun:
		which, args = ` AND message_id = $2`, append(args, p.MessageID)
	}
	waiting, err := all(ctx, tx, `SELECT `+messageColumns+queuedFrom+which, scanMessage, args...)
	if err != nil {
		return nil, err
	}
	named, err := namedRun(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	runs, out.Waiting, err = p.Meets(running, waiting, named)
	return runs, err
}

// namedRun is the run that the id of a stop names: the run of a running message with this id, else the run with this id.
func namedRun(ctx context.Context, tx Tx, p *store.StopParams) (run string, err error) {
	if p.Scope != store.StopRun {
		return "", nil
	}
	_, err = one(ctx, tx, `SELECT run_id FROM inbox WHERE message_id = $1 AND session_key = $2 AND state = 'running'`, into(&run), p.MessageID, p.Session.String())
	return cmp.Or(run, p.MessageID), err
}

// EndStopping ends a run whose goroutine has returned; see store.Inbox.
func (s Inbox) EndStopping(ctx context.Context, c store.Claim, runID string) error {
	return s.db.Update(ctx, "end a stopped run", func(ctx context.Context, tx Tx) error {
		key := c.Session.String()
		sessions, err := lockRows(ctx, tx, []string{key}, true)
		if err != nil {
			return err
		}
		left, err := readRest(ctx, tx, Set{{key, runID}})
		if err != nil {
			return err
		}
		stopping, err := one(ctx, tx, `SELECT 1 FROM runs WHERE id = $1 AND session_key = $2 AND state = 'stopping'`, func(Row) error { return nil }, runID, key)
		if err != nil || !stopping {
			return err
		}
		r := sessions.heldBy(c)
		if r == nil {
			return chat.ErrFenced
		}
		if err := tx.Later(ctx, `UPDATE runs SET state = 'stopped', ended_at = {now} WHERE id = $1`, nil, runID); err != nil {
			return err
		}
		r.settle(left[key].oldest)
		r.release(left[key].active)
		return saveRows(ctx, tx, r)
	})
}
