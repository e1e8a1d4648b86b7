package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// hold is the fence of every write by a turn: it reads the session and proves that the claim still holds, by the store's clock.
func (t *tx) hold(ctx context.Context, c store.Claim) (*row, error) {
	r, ok, err := t.find(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	if !ok || !r.heldBy(c) {
		return nil, chat.ErrFenced
	}
	return r, nil
}

// heldBy reports whether a claim holds the session.
func (r *row) heldBy(c store.Claim) bool {
	return r.owner == c.Node && r.epoch == c.Epoch && r.ownerAlive
}

// Start turns waiting messages into a run; see the port.
func (s *Store) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	return result(ctx, s.write, ordinary("start a run"), func(ctx context.Context, t *tx) (store.Started, error) {
		return t.start(ctx, s.Cron, &p)
	})
}

func (t *tx) start(ctx context.Context, jobs sqlstore.Cron, p *store.StartParams) (out store.Started, err error) {
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
		return t.startedBefore(ctx, r, u, p)
	}
	before := r.takenSeq
	taken, err := t.markTaken(ctx, r, p)
	if err != nil || len(taken) == 0 {
		return out, err
	}
	if known {
		err = t.restart(ctx, p, u)
	} else {
		u, err = t.begin(ctx, p, r, taken, before)
	}
	if err != nil {
		return out, err
	}
	if u.Attempt == 1 {
		if out.Entries, err = t.append(ctx, r, u.sessionID, p.Transcript); err != nil {
			return out, err
		}
	}
	if p.Cron != nil {
		err := jobs.BeginAttempts(ctx, t.shared(), []store.StartParams{*p}, func(_ int, j cron.Job) { out.Job = &j })
		if err != nil {
			return out, err
		}
	}
	out.Seqs = seqsOf(taken)
	r.describeRun(u, &out)
	err = t.save(ctx, r)
	return out, err
}

// taken is a message that a run has just taken.
type taken struct{ seq, acceptedAt int64 }

func seqsOf(list []taken) []int64 {
	seqs := make([]int64, 0, len(list))
	for _, m := range list {
		seqs = append(seqs, m.seq)
	}
	return seqs
}

// markTaken marks those of the named messages that wait as taken by the run; the others have an outcome or run.
func (t *tx) markTaken(ctx context.Context, r *row, p *store.StartParams) ([]taken, error) {
	list := make([]taken, 0, len(p.Seqs))
	for _, seq := range p.Seqs {
		m := taken{seq: seq}
		err := t.change(ctx, `
			UPDATE inbox SET state = 'running', run_id = ? WHERE session_key = ? AND seq = ? AND state IN ('held', 'waiting')
			RETURNING accepted_at`, p.RunID, r.key, seq).Scan(&m.acceptedAt)
		if none(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, m)
		r.waiting--
		r.takenSeq = max(r.takenSeq, seq)
	}
	return list, nil
}

// begin writes the row of a run that did not exist. before is taken_seq without the messages of this run.
func (t *tx) begin(ctx context.Context, p *store.StartParams, r *row, list []taken, before int64) (*run, error) {
	u := &run{sessionID: r.id}
	u.Attempt, u.SeqFrom, u.SeqTo = 1, list[0].seq, list[len(list)-1].seq
	at := t.now
	if before > u.SeqTo { // otherwise no later message was taken, and there is nothing to look for
		var err error
		if at, err = t.notAfterLater(ctx, r, u.SeqTo); err != nil {
			return nil, err
		}
	}
	u.StartedAt = instant(at)
	_, err := t.exec(ctx, `
		INSERT INTO runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?)`,
		p.RunID, r.key, r.id, u.SeqFrom, u.SeqTo, p.Lane, p.Node, p.Epoch, list[0].acceptedAt, at)
	return u, err
}

// notAfterLater keeps first attempts in the order of their messages in the table, whichever Start came first.
func (t *tx) notAfterLater(ctx context.Context, r *row, seqTo int64) (at int64, err error) {
	err = t.one(ctx, `SELECT min(?1, coalesce(min(started_at), ?1)) FROM runs WHERE session_key = ?2 AND seq_from > ?3 AND attempt = 1`,
		t.now, r.key, seqTo).Scan(&at)
	return at, err
}

// restart begins a further attempt of a run.
func (t *tx) restart(ctx context.Context, p *store.StartParams, u *run) error {
	u.Attempt++
	u.StartedAt = instant(t.now)
	_, err := t.exec(ctx, `
		UPDATE runs SET lane = ?, owner = ?, epoch = ?, attempt = ?, state = 'running', cause = '', started_at = ?, ended_at = NULL WHERE id = ?`,
		p.Lane, p.Node, p.Epoch, u.Attempt, t.now, p.RunID)
	return err
}

// startedBefore returns the result of an earlier Start for a run that runs already under this claim.
func (t *tx) startedBefore(ctx context.Context, r *row, u *run, p *store.StartParams) (out store.Started, err error) {
	rows, err := t.query(ctx, `SELECT seq FROM inbox WHERE session_key = ? AND state <> 'done' AND state = 'running' AND run_id = ? ORDER BY seq`, r.key, u.ID)
	out.Seqs, err = collect(rows, err, func(row scanner) (seq int64, err error) {
		err = row.Scan(&seq)
		return seq, err
	})
	r.describeRun(u, &out)
	if err == nil && u.Attempt == 1 {
		out.Entries, err = sqlstore.RunEntries(ctx, t.shared(), u.Session.String(), u.ID, len(p.Transcript))
	}
	return out, err
}

func (r *row) describeRun(u *run, out *store.Started) {
	out.Attempt, out.Crashes, out.StopBy, out.StartedAt = u.Attempt, u.Crashes, u.StopBy, u.StartedAt
	out.SessionID, out.Principal, out.Notes = u.sessionID, r.principal, r.notes
}

// Join adds waiting messages to a running run. The range of the run stays what it began with: messages of other runs may lie between.
func (s *Store) Join(ctx context.Context, p store.StartParams) ([]int64, error) {
	return result(ctx, s.write, ordinary("join a run"), func(ctx context.Context, t *tx) ([]int64, error) {
		r, transcript, err := t.holdRun(ctx, p.Claim, p.RunID)
		if err != nil {
			return nil, err
		}
		list, err := t.markTaken(ctx, r, &p)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return t.joinedBefore(ctx, &p)
		}
		if _, err := t.append(ctx, r, transcript, p.Transcript); err != nil {
			return nil, err
		}
		if p.Round > 0 {
			if err := sqlstore.RecordInput(ctx, t.shared(), p.RunID, p.Round, seqsOf(list)); err != nil {
				return nil, err
			}
		}
		return seqsOf(list), t.save(ctx, r)
	})
}

// joinedBefore are the messages of a repeated Join that joined the run in the first call: they have higher numbers than those it began with.
func (t *tx) joinedBefore(ctx context.Context, p *store.StartParams) (joined []int64, err error) {
	for _, seq := range p.Seqs {
		var one int64
		err := t.one(ctx, `
			SELECT i.seq FROM inbox i JOIN runs r ON r.id = i.run_id
			WHERE i.session_key = ? AND i.seq = ? AND i.state = 'running' AND i.run_id = ? AND i.seq > r.seq_to`,
			p.Session.String(), seq, p.RunID).Scan(&one)
		switch {
		case err == nil:
			joined = append(joined, one)
		case !none(err):
			return nil, err
		}
	}
	return joined, nil
}
