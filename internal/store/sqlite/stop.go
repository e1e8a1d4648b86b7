package sqlite

import (
	"cmp"
	"context"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Stop records a stop; see the port. It goes to the front of the writer's queue. A session that does not exist has nothing to stop.
func (s *Store) Stop(ctx context.Context, p store.StopParams) (store.Stopped, error) {
	return result(ctx, s.write, urgent("stop"), func(ctx context.Context, t *tx) (store.Stopped, error) {
		r, ok, err := t.find(ctx, p.Session)
		if err != nil || !ok {
			return store.Stopped{}, err
		}
		return t.stop(ctx, r, &p)
	})
}

func (t *tx) stop(ctx context.Context, r *row, p *store.StopParams) (out store.Stopped, err error) {
	var runs []*run
	if out.Waiting, runs, err = t.met(ctx, r, p); err != nil {
		return out, err
	}
	if err := t.end(ctx, r, out.Waiting, ending{outcome: chat.OutcomeStopped, reason: p.Reason}); err != nil {
		return out, err
	}
	for _, u := range runs {
		// The first requester stays recorded.
		if _, err := t.exec(ctx, `UPDATE runs SET stop_by = coalesce(stop_by, ?) WHERE id = ?`, cmp.Or(p.By, p.Reason, "stop"), u.ID); err != nil {
			return out, err
		}
		out.Running = append(out.Running, store.RunningRun{RunID: u.ID, Node: u.Owner})
	}
	if p.Scope == store.StopAll {
		r.stopSeq = r.lastSeq
		out.Cutoff = r.stopSeq
	}
	if _, err := t.settle(ctx, r); err != nil {
		return out, err
	}
	err = t.save(ctx, r)
	return out, err
}

// met finds what a stop selects.
func (t *tx) met(ctx context.Context, r *row, p *store.StopParams) ([]store.Waiting, []*run, error) {
	running, err := t.running(ctx, r.key)
	if err != nil {
		return nil, nil, err
	}
	switch p.Scope {
	case store.StopAll:
		list, err := queued(ctx, t, r.key, unlimited)
		return list, running, err
	case store.StopRun:
		return t.named(ctx, r, p.MessageID, running)
	case store.StopOne:
	default:
		return nil, nil, chat.Errorf(chat.CodeInvalid, "unknown stop scope %q: want one, run or all", p.Scope)
	}
	running = slices.DeleteFunc(running, func(u *run) bool { return u.StopBy != "" })
	if len(running) > 0 {
		return nil, running[:1], nil
	}
	list, err := queued(ctx, t, r.key, 1)
	return list, nil, err
}

// unlimited makes SQLite apply no LIMIT.
const unlimited = -1

// named finds the waiting message or the run that an id names; a message that a run has taken selects the run.
func (t *tx) named(ctx context.Context, r *row, id string, running []*run) ([]store.Waiting, []*run, error) {
	runID := id
	m, err := scanMessage(t.one(ctx, `SELECT `+messageColumns+` FROM inbox WHERE message_id = ? AND session_key = ?`, id, r.key))
	switch {
	case none(err):
	case err != nil:
		return nil, nil, err
	case m.State == store.StateHeld || m.State == store.StateWaiting:
		return []store.Waiting{m}, nil, nil
	case m.State == store.StateRunning:
		runID = m.RunID
	}
	return nil, slices.DeleteFunc(running, func(u *run) bool { return u.ID != runID }), nil
}

// running reads the running runs of a session, oldest first.
func (t *tx) running(ctx context.Context, key string) ([]*run, error) {
	rows, err := t.query(ctx, `SELECT `+runColumns+` FROM runs INDEXED BY runs_open
		WHERE session_key = ? AND state IN ('running', 'stopping', 'yielded') AND state <> 'stopping' ORDER BY seq_from`, key)
	return collect(rows, err, scanRun)
}
