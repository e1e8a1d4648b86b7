package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// hold is the fence of every write by a turn: it reads the session and proves that the claim still holds, by the store's clock.
func (t *tx) hold(ctx context.Context, c store.Claim) (*row, error) {
	r, ok, err := t.find(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	if !ok || r.owner != c.Node || r.epoch != c.Epoch || !r.ownerAlive {
		return nil, chat.ErrFenced
	}
	return r, nil
}

// Start turns waiting messages into a run; see the port.
func (s *Store) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	return result(ctx, s.write, ordinary("start a run"), func(ctx context.Context, t *tx) (store.Started, error) {
		return t.start(ctx, &p)
	})
}

func (t *tx) start(ctx context.Context, p *store.StartParams) (out store.Started, err error) {
	r, err := t.hold(ctx, p.Claim)
	if err != nil {
		return out, err
	}
	u, known, err := t.findRun(ctx, p.RunID)
	if err != nil {
		return out, err
	}
	if known && u.Session != p.Session {
		return out, chat.Errorf(chat.CodeConflict, "the run %s belongs to another session", p.RunID)
	}
	if known && u.State == store.RunRunning {
		return t.again(ctx, r, u) // the answer to an earlier call was lost
	}
	list, err := t.startable(ctx, r.key, p.Seqs)
	if err != nil || len(list) == 0 {
		return out, err
	}
	if u, err = t.begin(ctx, p, r, u, list); err != nil {
		return out, err
	}
	if u.Attempt == 1 {
		if out.Entries, err = t.append(ctx, r, u.sessionID, p.Transcript); err != nil {
			return out, err
		}
	}
	for i := range list {
		out.Seqs = append(out.Seqs, list[i].Seq)
	}
	if err := t.describe(ctx, r, u, &out); err != nil {
		return out, err
	}
	err = t.save(ctx, r)
	return out, err
}

// begin writes the run row of a first or later attempt, and takes the messages.
func (t *tx) begin(ctx context.Context, p *store.StartParams, r *row, u *run, list []store.Waiting) (*run, error) {
	from, to := list[0].Seq, list[len(list)-1].Seq
	if u == nil {
		u = &run{sessionID: r.id}
		u.ID, u.Attempt, u.SeqFrom, u.SeqTo = p.RunID, 1, from, to
		at, err := t.notAfterLater(ctx, r, to)
		if err != nil {
			return nil, err
		}
		u.StartedAt = instant(at)
		_, err = t.exec(ctx, `
			INSERT INTO runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?)`,
			p.RunID, r.key, r.id, from, to, p.Lane, p.Node, p.Epoch, millis(list[0].AcceptedAt), at)
		if err != nil {
			return nil, err
		}
	} else {
		u.Attempt, u.StartedAt = u.Attempt+1, instant(t.now)
		_, err := t.exec(ctx, `
			UPDATE runs SET lane = ?, owner = ?, epoch = ?, attempt = attempt + 1, state = 'running', cause = '', started_at = ?, ended_at = NULL WHERE id = ?`,
			p.Lane, p.Node, p.Epoch, t.now, p.RunID)
		if err != nil {
			return nil, err
		}
	}
	return u, t.take(ctx, r, p.RunID, list)
}

// take marks messages as taken by a run.
func (t *tx) take(ctx context.Context, r *row, runID string, list []store.Waiting) error {
	for i := range list {
		seq := list[i].Seq
		if _, err := t.exec(ctx, `UPDATE inbox SET state = 'running', run_id = ? WHERE session_key = ? AND seq = ?`, runID, r.key, seq); err != nil {
			return err
		}
		r.waiting--
		r.takenSeq = max(r.takenSeq, seq)
	}
	return nil
}

// notAfterLater keeps first attempts in the order of their messages in the table, whichever Start came first. When no later
// message was taken there is nothing to look for.
func (t *tx) notAfterLater(ctx context.Context, r *row, seqTo int64) (int64, error) {
	if r.takenSeq <= seqTo {
		return t.now, nil
	}
	at := t.now
	err := t.one(ctx, `SELECT min(?, coalesce(min(started_at), ?)) FROM runs WHERE session_key = ? AND seq_from > ? AND attempt = 1`,
		t.now, t.now, r.key, seqTo).Scan(&at)
	return at, err
}

// again is the answer for a run that runs already under this claim.
func (t *tx) again(ctx context.Context, r *row, u *run) (out store.Started, err error) {
	rows, err := t.query(ctx, `SELECT seq FROM inbox WHERE session_key = ? AND state <> 'done' AND state = 'running' AND run_id = ? ORDER BY seq`, r.key, u.ID)
	out.Seqs, err = collect(rows, err, func(row scanner) (seq int64, err error) {
		err = row.Scan(&seq)
		return seq, err
	})
	if err != nil {
		return out, err
	}
	err = t.describe(ctx, r, u, &out)
	return out, err
}

func (t *tx) describe(ctx context.Context, r *row, u *run, out *store.Started) error {
	out.Attempt, out.Crashes, out.StopBy, out.StartedAt = u.Attempt, u.Crashes, u.StopBy, u.StartedAt
	out.SessionID, out.Principal = u.sessionID, r.principal
	return t.one(ctx, `SELECT notes FROM sessions WHERE key = ?`, r.key).Scan(jsonColumn{&out.Notes})
}

// Join adds waiting messages to a running run. The range of the run stays what it began with: messages of other runs may lie between.
func (s *Store) Join(ctx context.Context, p store.StartParams) ([]int64, error) {
	return result(ctx, s.write, ordinary("join a run"), func(ctx context.Context, t *tx) ([]int64, error) {
		r, u, err := t.holdRun(ctx, p.Claim, p.RunID)
		if err != nil {
			return nil, err
		}
		list, err := t.startable(ctx, r.key, p.Seqs)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		if err := t.take(ctx, r, p.RunID, list); err != nil {
			return nil, err
		}
		if _, err := t.append(ctx, r, u.sessionID, p.Transcript); err != nil {
			return nil, err
		}
		seqs := make([]int64, 0, len(list))
		for i := range list {
			seqs = append(seqs, list[i].Seq)
		}
		return seqs, t.save(ctx, r)
	})
}
