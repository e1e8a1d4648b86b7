package sqlstore

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// previewBytes is how much of an answer a list shows.
const previewBytes = 200

const (
	// runMembersSQL are the messages of runs. Its form keeps PostgreSQL from reading all unfinished
	// messages, see startableSQL.
	runMembersSQL = `{set key text, run text} SELECT i.session_key, i.seq, COALESCE(i.message_id, '') {from} CROSS JOIN LATERAL (
			SELECT session_key, seq, message_id, state, run_id FROM inbox WHERE session_key = v.key AND ended_at IS NULL OFFSET 0) i
		WHERE i.state = 'running' AND i.run_id = v.run ORDER BY i.session_key, i.seq`
	runMembersOnSQLite = `{set key text, run text} SELECT i.session_key, i.seq, COALESCE(i.message_id, '') FROM inbox i {and}
		WHERE i.session_key = v.key AND i.ended_at IS NULL AND i.state <> 'done' AND i.state = 'running' AND i.run_id = v.run ORDER BY i.session_key, i.seq`

	endMembersSQL = `{set key text, seq int, outcome text, reason text, lead int, notice text, run text, n int}
		UPDATE inbox AS i SET state = 'done', outcome = v.outcome, reason = v.reason, merged_into = NULLIF(v.lead, 0), ended_at = {now},
			notice_id = CASE WHEN v.notice = '' THEN i.notice_id
				ELSE COALESCE(i.notice_id, (SELECT o.id FROM outbox o WHERE o.run_id = v.run AND o.n = v.n), v.notice) END
		{from} WHERE i.session_key = v.key AND i.seq = v.seq`
	// Messages that wait again keep their run.
	waitMembersSQL = `{set key text, seq int} UPDATE inbox AS i SET state = 'waiting' {from} WHERE i.session_key = v.key AND i.seq = v.seq`
	mergedSQL      = `{set key text, seq int} SELECT i.session_key, i.seq, COALESCE(i.message_id, ''), i.state, COALESCE(i.outcome, ''), i.reason, COALESCE(i.run_id, ''),
			COALESCE(i.merged_into, 0), i.lane, i.principal, i.channel, i.external_id, i.body, i.accepted_at
		FROM inbox i {and} WHERE i.session_key = v.key AND i.seq = v.seq`
	mergedBeforeSQL = `SELECT ` + messageColumns + ` FROM inbox WHERE session_key = $1 AND seq >= $2 AND run_id = $3 AND outcome = 'merged' ORDER BY seq`

	endRunsSQL = `{set id text, state text, cause text, error text, detail text, input int, output int, model text, provider text, still bool, outside bool, requests int, limited int}
		UPDATE runs AS r SET state = v.state, cause = v.cause, error = v.error, detail = v.detail, ended_at = CASE WHEN v.still THEN NULL ELSE {now} END,
			input_tokens = v.input, output_tokens = v.output, model = v.model, provider = v.provider, outside = r.outside OR v.outside,
			requests = v.requests, limited = v.limited {from} WHERE r.id = v.id`

	// rememberSQL is saveRowsSQL with the columns about the last ended run, which lists show.
	rememberSQL = `{set key text, owner text, taken int, done int, waiting int, entry int, run text, state text, cause text, error text, tokens int, preview text}
		UPDATE sessions AS s SET owner = NULLIF(v.owner, ''), taken_seq = v.taken, done_seq = v.done, waiting = v.waiting, transcript_seq = v.entry,
			updated_at = {now}, last_run_id = v.run, last_state = v.state, last_cause = v.cause, last_error = v.error, total_tokens = s.total_tokens + v.tokens,
			preview = CASE WHEN v.preview = '' THEN s.preview ELSE v.preview END {from} WHERE s.key = v.key`
)

// Finish ends a run; see store.Store.
func (s Inbox) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if p.Outcome == "" && !p.Requeue {
		return store.Finished{}, chat.Errorf(chat.CodeInvalid, "a run that ends needs an outcome")
	}
	o := &finishOp{p: p}
	bytes := sizeOf(p.Transcript)
	for i := range p.Outgoing {
		bytes += len(p.Outgoing[i].Text)
	}
	if p.Cron != nil {
		bytes += min(len(p.Cron.Summary), cron.MaxSummary) + len(p.Cron.Error)
	}
	if err := s.finishes.do(ctx, o, bytes); err != nil {
		return store.Finished{}, err
	}
	return o.out, nil
}

// finishOp is one Finish in progress.
type finishOp struct {
	p   store.FinishParams
	out store.Finished
}

// Name implements operation.
func (o *finishOp) Name() string { return o.p.Session.String() }

// member is a message of a run.
type member struct {
	seq int64
	id  string
}

// leader is the number of the message that gave the run its id, else of the newest message.
func leader(list []member, runID string) (seq int64) {
	for _, m := range list {
		if seq = m.seq; m.id == runID {
			break
		}
	}
	return seq
}

// finishing is one transaction that ends runs.
type finishing struct {
	tx       Tx
	alone    bool
	sessions *sessionRows
	runs     map[string]runRow
	members  map[string][]member // by session
	rest     map[string]rest
	ends     *Ends
	ready    []bool         // by end: it can be written
	end      map[int]int    // from operations to their ends
	written  map[int]string // ends that are written, with the node that wrote each

	outgoing                              []store.Outgoing
	ended, waits, closed, entries, memory Set
	merged                                Set
	mergedOf                              map[string]*finishOp
	journals, again                       []string
	changed                               []*sessionRow
}

func (s Inbox) finishAll(ctx context.Context, tx Tx, ops []*finishOp, alone bool) (done []bool, err error) {
	f := &finishing{
		tx: tx, alone: alone, runs: map[string]runRow{}, members: map[string][]member{}, end: map[int]int{}, written: map[int]string{},
		mergedOf: map[string]*finishOp{},
	}
	if err := f.read(ctx, s.cron, ops); err != nil {
		return nil, err
	}
	done = make([]bool, len(ops))
	for i, o := range ops {
		o.out = store.Finished{}
		if done[i], err = f.finish(ctx, i, o); err != nil {
			return nil, err
		}
	}
	return done, f.write(ctx)
}

// read locks the jobs and then the sessions, and reads what the decisions need, in one round trip.
func (f *finishing) read(ctx context.Context, jobs Cron, ops []*finishOp) (err error) {
	var (
		keys, ids []string
		of        Set
		ends      []*cron.AttemptEnd
	)
	for i, o := range ops {
		keys, ids, of = append(keys, o.Name()), append(ids, o.p.RunID), append(of, []any{o.Name(), o.p.RunID})
		if o.p.Cron != nil {
			f.end[i] = len(ends)
			ends = append(ends, o.p.Cron)
		}
	}
	if len(ends) > 0 {
		if f.ends, err = jobs.LockEnds(ctx, f.tx, ends, f.alone); err != nil {
			return err
		}
	}
	if f.sessions, err = lockRows(ctx, f.tx, keys, f.alone); err != nil {
		return err
	}
	err = f.tx.Later(ctx, f.tx.PerEngine(runMembersSQL, runMembersOnSQLite), func(r Row) error {
		var (
			key string
			m   member
		)
		err := r.Scan(&key, &m.seq, &m.id)
		f.members[key] = append(f.members[key], m)
		return err
	}, of)
	if err != nil {
		return err
	}
	if f.rest, err = readRest(ctx, f.tx, of); err != nil {
		return err
	}
	if len(ends) > 0 {
		if err := f.ends.Read(ctx, f.tx); err != nil {
			return err
		}
	}
	f.runs, err = runsByID(ctx, f.tx, ids)
	if err != nil || len(ends) == 0 {
		return err
	}
	held := make([]bool, len(ends))
	for i, end := range f.end {
		held[end] = f.holds(ops[i].p.Claim, ops[i].p.RunID) != nil
	}
	f.ready = f.ends.Ready(held)
	return nil
}

// holds is the fence of a run: it returns the session when the claim holds and the run runs under
// it.
func (f *finishing) holds(c store.Claim, runID string) *sessionRow {
	if u := f.runs[runID]; !u.under(c) {
		return nil
	}
	return f.sessions.heldBy(c)
}

// finish decides about one run. Among several, it leaves those that it cannot end to a transaction
// of their own.
func (f *finishing) finish(ctx context.Context, i int, o *finishOp) (done bool, err error) {
	p := &o.p
	r, u := f.holds(p.Claim, p.RunID), f.runs[p.RunID]
	end, isEnd := f.end[i]
	switch {
	case r == nil:
		if !f.alone {
			return false, nil
		}
		return true, f.finishedBefore(ctx, o, u)
	case isEnd && !f.ready[end] && !f.alone: // its job is locked, or the job of another end of this transaction
		return false, nil
	case isEnd:
		f.written[end] = p.Node
	}
	notice, err := f.send(p)
	if err != nil {
		return false, err
	}
	if p.Requeue {
		f.requeue(o, r)
	} else {
		f.endMembers(o, r, notice)
		if p.Journal {
			f.journals = append(f.journals, p.RunID)
		}
	}
	state := p.State
	if p.StillRunning {
		state = store.RunStopping
	}
	f.closed = append(f.closed, []any{
		p.RunID, state, p.Cause, p.Error, p.Detail, int64(p.Usage.InputTokens), int64(p.Usage.OutputTokens), p.Usage.Model, p.Usage.Provider, p.StillRunning, p.Outside,
		int64(p.Asked.Requests), int64(p.Asked.Limited),
	})
	to := addition{Session: r.key, Transcript: u.transcript, After: r.transcriptSeq, At: f.sessions.now}
	added, rows, err := to.rows(p.Transcript)
	if err != nil {
		return false, err
	}
	f.entries = append(f.entries, rows...)
	r.transcriptSeq += int64(len(added))
	o.out.Entries, o.out.EndedAt = added, fromMillis(f.sessions.now)
	if p.Requeue {
		f.changed = append(f.changed, r)
		return true, nil
	}
	left := f.rest[r.key]
	if p.StillRunning {
		left.active++
	}
	r.settle(left.oldest)
	o.out.Released = r.release(left.active)
	f.memory = append(f.memory, []any{
		r.key, r.owner, r.takenSeq, r.doneSeq, r.waiting, r.transcriptSeq, p.RunID, p.State, p.Cause, p.Error,
		int64(p.Usage.InputTokens + p.Usage.OutputTokens), chat.Cut(chat.CleanText(p.Preview), previewBytes),
	})
	return true, nil
}

// notice is a row to which the messages of a run refer: its id, unless a row with its run and
// number exists.
type notice struct {
	id string
	n  int
}

// send adds the outgoing rows of a run under its epoch and returns its notice.
func (f *finishing) send(p *store.FinishParams) (last notice, err error) {
	for i := range p.Outgoing {
		o := p.Outgoing[i]
		o.RunID, o.Epoch = p.RunID, p.Epoch
		if o.ID == "" {
			if o.ID, err = newID(); err != nil {
				return last, err
			}
		}
		if o.Kind == store.KindNotice {
			last = notice{o.ID, o.N}
		}
		f.outgoing = append(f.outgoing, o)
	}
	return last, nil
}

// endMembers gives the messages of a run their outcomes.
func (f *finishing) endMembers(o *finishOp, r *sessionRow, about notice) {
	p := &o.p
	lead := leader(f.members[r.key], p.RunID)
	for _, m := range f.members[r.key] {
		outcome, into := p.Outcome, int64(0)
		if m.seq != lead && outcome == chat.OutcomeAnswered {
			outcome, into = chat.OutcomeMerged, lead
			f.merged = append(f.merged, []any{r.key, m.seq})
			f.mergedOf[r.key] = o
		}
		f.ended = append(f.ended, []any{r.key, m.seq, string(outcome), p.Cause, into, about.id, p.RunID, int64(about.n)})
	}
}

// requeue makes the messages of a run wait again.
func (f *finishing) requeue(o *finishOp, r *sessionRow) {
	for _, m := range f.members[r.key] {
		f.waits = append(f.waits, []any{r.key, m.seq})
		r.waiting++
		if o.p.Cron == nil {
			f.again = append(f.again, m.id)
		}
	}
}

func (f *finishing) write(ctx context.Context) error {
	if len(f.closed) == 0 {
		return nil
	}
	if err := addOutgoing(ctx, f.tx, f.outgoing); err != nil {
		return err
	}
	for _, w := range []struct {
		text string
		rows Set
	}{{endMembersSQL, f.ended}, {waitMembersSQL, f.waits}, {endRunsSQL, f.closed}, {rememberSQL, f.memory}} {
		if len(w.rows) == 0 {
			continue
		}
		if err := f.tx.Later(ctx, w.text, nil, w.rows); err != nil {
			return err
		}
	}
	if err := addEntries(ctx, f.tx, f.entries); err != nil {
		return err
	}
	if err := saveRows(ctx, f.tx, f.changed...); err != nil {
		return err
	}
	if len(f.journals) > 0 {
		if err := f.tx.Later(ctx, `DELETE FROM turn_rounds WHERE run_id {in $1}`, nil, f.journals); err != nil {
			return err
		}
	}
	if len(f.merged) > 0 {
		err := f.tx.Later(ctx, mergedSQL, func(r Row) error {
			m, err := scanMessage(r)
			o := f.mergedOf[m.Session.String()]
			o.out.Merged = append(o.out.Merged, m)
			return err
		}, f.merged)
		if err != nil {
			return err
		}
	}
	if err := waitAgain(ctx, f.tx, f.again); err != nil || f.ends == nil {
		return err
	}
	return f.ends.Write(ctx, f.tx, f.written)
}

// finishedBefore returns the result of an earlier Finish with the same parameters; chat.ErrFenced
// when none exists.
func (f *finishing) finishedBefore(ctx context.Context, o *finishOp, u runRow) (err error) {
	if u.ID == "" {
		return chat.ErrFenced
	}
	key, p := u.Session.String(), o.p
	e := store.EndedRun{Run: u.Run}
	if _, err := one(ctx, f.tx, `SELECT COALESCE(owner, ''), epoch FROM sessions WHERE key = $1`, into(&e.Owner, &e.Epoch), key); err != nil {
		return err
	}
	if e.Entries, err = runEntries(ctx, f.tx, key, u.ID, len(p.Transcript)); err != nil {
		return err
	}
	if e.Merged, err = all(ctx, f.tx, mergedBeforeSQL, scanMessage, key, u.SeqFrom, u.ID); err != nil {
		return err
	}
	now, err := f.tx.Now(ctx)
	if err != nil {
		return err
	}
	p.Cause = chat.CleanText(p.Cause)
	p.Transcript = append([]chat.TranscriptEntry(nil), p.Transcript...)
	for i := range p.Transcript {
		p.Transcript[i].Text = chat.CleanText(p.Transcript[i].Text)
	}
	out, ok := p.Repeats(e, fromMillis(now))
	if !ok {
		return chat.ErrFenced
	}
	o.out = out
	return nil
}

// Journal records what the models of running turns requested and the results.
type Journal struct{ db Engine }

const recordSQL = `INSERT INTO turn_rounds (run_id, round, kind, n, body) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`

// Record commits a row; see store.Journal.
func (s Journal) Record(ctx context.Context, c store.Claim, runID string, row store.JournalRow) error {
	return s.db.Turn(ctx, "record a round", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, recordSQL, nil, runID, row.Round, row.Kind, row.N, row.Body)
	})
}

// RecordPreview commits what shows the unfinished answer of a run; see store.Journal.
func (s Journal) RecordPreview(ctx context.Context, c store.Claim, runID, preview string) error {
	return s.db.Turn(ctx, "record a preview", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE runs SET preview = $2 WHERE id = $1`, nil, runID, preview)
	})
}

// RecordOutside commits that the agent of a run has read text from outside; see store.Journal.
func (s Journal) RecordOutside(ctx context.Context, c store.Claim, runID string) error {
	return s.db.Turn(ctx, "record text from outside", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE runs SET outside = true WHERE id = $1`, nil, runID)
	})
}

// RecordProgram commits which process works for a run; see store.Journal.
func (s Journal) RecordProgram(ctx context.Context, c store.Claim, runID string, p chat.Program) error {
	body, err := encode(p)
	if err != nil {
		return err
	}
	return s.db.Turn(ctx, "record a program", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE runs SET program = $2 WHERE id = $1`, nil, runID, body)
	})
}

// Rounds reads the recorded rounds of a run; see store.Journal.
func (s Journal) Rounds(ctx context.Context, runID string) ([]store.Round, error) {
	rows, err := list(ctx, s.db, query{
		"read the rounds of a run", `SELECT round, kind, n, body FROM turn_rounds WHERE run_id = $1 ORDER BY round, kind, n`, []any{runID},
	}, func(r Row) (row store.JournalRow, err error) {
		err = r.Scan(&row.Round, &row.Kind, &row.N, &row.Body)
		return row, err
	})
	if err != nil {
		return nil, err
	}
	return store.RoundsOf(rows)
}
