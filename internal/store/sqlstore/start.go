package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

const (
	readRunRows = `SELECT ` + runColumns + ` FROM runs WHERE `
	runsByIDSQL = readRunRows + `id {in $1}`
	runByIDSQL  = readRunRows + `id = $1`

	// startableSQL selects the waiting ones of some messages; the others have an outcome or run. It
	// omits ended_at IS NULL: with outdated statistics, the planner of PostgreSQL would read all
	// unfinished messages instead of these by key.
	startableSQL = `{set key text, seq int} SELECT i.session_key, i.seq, i.accepted_at FROM inbox i {and}
		WHERE i.session_key = v.key AND i.seq = v.seq AND i.state = 'waiting'`

	runMessagesSQL = `{set key text, seq int, run text} UPDATE inbox AS i SET state = 'running', run_id = v.run {from} WHERE i.session_key = v.key AND i.seq = v.seq`

	putRunsSQL = `{set id text, key text, transcript text, first int, last int, lane text, owner text, epoch int, queued int, started int}
		INSERT INTO runs AS r (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at, stop_by)
		SELECT v.id, v.key, v.transcript, v.first, v.last, v.lane, v.owner, v.epoch, 'running', v.queued, v.started, '' {from} WHERE true
		ON CONFLICT (id) DO UPDATE SET lane = excluded.lane, owner = excluded.owner, epoch = excluded.epoch, attempt = r.attempt + 1, state = 'running', cause = '',
			started_at = excluded.started_at, ended_at = NULL`

	// startedLaterSQL is when the first attempts of later messages began. It keeps first attempts
	// in the order of their messages in the table, whichever Start was committed first.
	startedLaterSQL = `SELECT COALESCE(min(r.started_at), 0) FROM inbox i JOIN runs r ON r.id = i.run_id
		WHERE i.session_key = $1 AND i.seq > $2 AND r.attempt = 1 AND r.seq_from > $2`

	firstWaitingSQL = `SELECT seq` + queuedFrom + ` AND seq <= $2 ORDER BY seq {limit $3}`

	membersSQL = `SELECT seq FROM inbox WHERE session_key = $1 AND {open} AND state = 'running' AND run_id = $2 ORDER BY seq`

	recordInputSQL = `{set n int} INSERT INTO turn_rounds (run_id, round, kind, n, body) SELECT $1, $2, '` + store.RowInput + `', v.n, '' {from} WHERE true`

	// joinedSQL are messages that an earlier call joined to a run: they have higher numbers than
	// the first messages of the run.
	joinedSQL = `SELECT i.seq FROM inbox i JOIN runs r ON r.id = i.run_id
		WHERE i.session_key = $1 AND i.seq {ints $2} AND i.state = 'running' AND i.run_id = $3 AND i.seq > r.seq_to ORDER BY i.seq`
)

// Start turns waiting messages into a run; see store.Store.
func (s Inbox) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	o := &startOp{p: p}
	if err := s.starts.do(ctx, o, sizeOf(p.Transcript)); err != nil {
		return store.Started{}, err
	}
	return o.out, nil
}

// sizeOf is how many bytes of text entries have.
func sizeOf(entries []chat.TranscriptEntry) (n int) {
	for i := range entries {
		n += len(entries[i].Text)
	}
	return n
}

// startOp is one Start in progress, or with begin one Begin.
type startOp struct {
	p     store.StartParams
	out   store.Started
	begin *beginning
}

// Name implements operation.
func (o *startOp) Name() string { return o.p.Session.String() }

// starting is one transaction that starts runs.
type starting struct {
	tx       Tx
	alone    bool
	sessions *sessionRows
	runs     map[string]runRow
	waiting  map[string][]store.Waiting // by session: what can start, with number and time

	taken, begun, entries Set
	changed               []*sessionRow
	started               []*startOp
}

func (s Inbox) startAll(ctx context.Context, tx Tx, ops []*startOp, alone bool) (done []bool, err error) {
	b := &starting{tx: tx, alone: alone}
	if err := b.read(ctx, ops); err != nil {
		return nil, err
	}
	done = make([]bool, len(ops))
	for i, o := range ops {
		o.out = store.Started{}
		if o.begin != nil {
			done[i], err = b.begin(ctx, o)
		} else {
			done[i], err = b.start(ctx, o)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := b.write(ctx, s.cron); err != nil {
		return nil, err
	}
	for _, o := range ops {
		if o.begin != nil {
			o.begin.out.Started = o.out
		}
	}
	return done, nil
}

func (b *starting) read(ctx context.Context, ops []*startOp) (err error) {
	var (
		keys, ids []string
		messages  Set
	)
	for _, o := range ops {
		keys = append(keys, o.Name())
		if o.begin != nil {
			continue
		}
		ids = append(ids, o.p.RunID)
		for _, seq := range o.p.Seqs {
			messages = append(messages, []any{o.Name(), seq})
		}
	}
	if b.sessions, err = lockRows(ctx, b.tx, keys, b.alone); err != nil {
		return err
	}
	if err := b.readBeginnings(ctx, ops, len(ids) == 0); err != nil || len(ids) == 0 {
		b.waiting, b.runs = map[string][]store.Waiting{}, map[string]runRow{}
		return err
	}
	if b.waiting, err = readStartable(ctx, b.tx, messages); err != nil {
		return err
	}
	b.runs, err = runsByID(ctx, b.tx, ids)
	return err
}

// runsByID reads runs. A single run, the usual case, needs no list.
func runsByID(ctx context.Context, tx Tx, ids []string) (map[string]runRow, error) {
	text, arg := runsByIDSQL, any(ids)
	if len(ids) == 1 {
		text, arg = runByIDSQL, ids[0]
	}
	runs := make(map[string]runRow, len(ids))
	return runs, tx.Query(ctx, text, func(r Row) error {
		u, err := scanRun(r)
		runs[u.ID] = u
		return err
	}, arg)
}

// readStartable reads which messages of the set, each a row (key, seq), can start; the result is
// available after the next Query.
func readStartable(ctx context.Context, tx Tx, messages Set) (map[string][]store.Waiting, error) {
	list := make(map[string][]store.Waiting, len(messages))
	return list, tx.Later(ctx, startableSQL, func(r Row) error {
		var (
			key string
			m   store.Waiting
		)
		err := r.Scan(&key, &m.Seq, instant{&m.AcceptedAt})
		list[key] = append(list[key], m)
		return err
	}, messages)
}

// take marks the startable messages of a session as taken by a run, and returns their numbers.
func (b *starting) take(r *sessionRow, runID string) (seqs []int64) {
	list := b.waiting[r.key]
	slices.SortFunc(list, func(a, c store.Waiting) int { return cmp.Compare(a.Seq, c.Seq) })
	for _, m := range list {
		seqs = append(seqs, m.Seq)
		b.taken = append(b.taken, []any{r.key, m.Seq, runID})
		r.waiting--
		r.takenSeq = max(r.takenSeq, m.Seq)
	}
	return seqs
}

// start decides about one run. Among several, it leaves unusual ones to a transaction of their own.
func (b *starting) start(ctx context.Context, o *startOp) (done bool, err error) {
	p := &o.p
	r := b.sessions.heldBy(p.Claim)
	u, known := b.runs[p.RunID]
	switch {
	case r == nil && b.alone:
		return false, chat.ErrFenced
	case r == nil || !b.alone && known && (u.Session != p.Session || u.State == store.RunRunning):
		return false, nil
	case known && u.Session != p.Session:
		return false, chat.Errorf(chat.CodeConflict, "the run %s belongs to another session", p.RunID)
	case known && u.State == store.RunRunning:
		return true, b.startedBefore(ctx, o, r, u)
	case len(b.waiting[r.key]) == 0:
		return true, nil
	}
	before, queued := r.takenSeq, b.waiting[r.key]
	last := int64(0)
	for _, m := range queued {
		last = max(last, m.Seq)
	}
	at := b.sessions.now
	switch {
	case known:
		u.Attempt++
	case before > last: // otherwise no later message was taken, and no query is needed
		if !b.alone {
			return false, nil
		}
		var later int64
		if _, err := one(ctx, b.tx, startedLaterSQL, into(&later), r.key, last); err != nil {
			return false, err
		}
		if later > 0 {
			at = min(at, later)
		}
		fallthrough
	default:
		u = runRow{transcript: r.id}
		u.Attempt = 1
	}
	u.StartedAt = fromMillis(at)
	o.out.Seqs = b.take(r, p.RunID)
	queuedAt := millis(queued[0].AcceptedAt)
	b.begun = append(b.begun, []any{p.RunID, r.key, u.transcript, o.out.Seqs[0], last, p.Lane, p.Node, p.Epoch, queuedAt, at})
	if u.Attempt == 1 {
		to := addition{Session: r.key, Transcript: u.transcript, After: r.transcriptSeq, At: b.sessions.now}
		added, rows, err := to.rows(p.EntriesOf(o.out.Seqs))
		if err != nil {
			return false, err
		}
		o.out.Entries = added
		b.entries = append(b.entries, rows...)
		r.transcriptSeq += int64(len(added))
	}
	r.describe(u, &o.out)
	b.change(r)
	b.started = append(b.started, o)
	return true, nil
}

func (r *sessionRow) describe(u runRow, out *store.Started) {
	out.Attempt, out.Crashes, out.StopBy, out.StartedAt = u.Attempt, u.Crashes, u.StopBy, u.StartedAt
	out.SessionID, out.Principal, out.Notes, out.Preview, out.Outside = u.transcript, r.principal, r.notes, u.Preview, u.Outside
	out.Program = u.Program
}

// startedBefore returns the result of an earlier Start for a run that is already running.
func (b *starting) startedBefore(ctx context.Context, o *startOp, r *sessionRow, u runRow) (err error) {
	o.out.Seqs, err = all(ctx, b.tx, membersSQL, scanNumber, r.key, u.ID)
	r.describe(u, &o.out)
	if err == nil && u.Attempt == 1 {
		o.out.Entries, err = runEntries(ctx, b.tx, r.key, u.ID, len(o.p.Transcript))
	}
	return err
}

func scanNumber(r Row) (n int64, err error) {
	err = r.Scan(&n)
	return n, err
}

func (b *starting) write(ctx context.Context, jobs Cron) error {
	if len(b.started) == 0 {
		return saveRows(ctx, b.tx, b.changed...)
	}
	if err := b.tx.Later(ctx, runMessagesSQL, nil, b.taken); err != nil {
		return err
	}
	if err := b.tx.Later(ctx, putRunsSQL, nil, b.begun); err != nil {
		return err
	}
	if err := addEntries(ctx, b.tx, b.entries); err != nil {
		return err
	}
	if err := saveRows(ctx, b.tx, b.changed...); err != nil {
		return err
	}
	attempts := make([]store.StartParams, len(b.started))
	for i, o := range b.started {
		attempts[i] = o.p
		if o.p.Cron != nil && o.out.Attempt > 1 { // a drain or a crash has interrupted an earlier attempt of this message
			begin := *o.p.Cron
			begin.Attempt = max(begin.Attempt, o.out.Attempt)
			attempts[i].Cron = &begin
		}
	}
	return jobs.BeginAttempts(ctx, b.tx, attempts, func(i int, j cron.Job) { b.started[i].out.Job = &j })
}

// Join adds waiting messages to a running run; see store.Store. The range of the run does not
// change, because messages of other runs may lie between.
func (s Inbox) Join(ctx context.Context, p store.StartParams) ([]int64, error) {
	return result(ctx, func(ctx context.Context, doing string, change func(ctx context.Context, tx Tx) error) error {
		return s.db.Turn(ctx, doing, Alone, change)
	}, "join a run", func(ctx context.Context, tx Tx) (seqs []int64, err error) {
		b := &starting{tx: tx, alone: true}
		if err := b.read(ctx, []*startOp{{p: p}}); err != nil {
			return nil, err
		}
		r, u := b.sessions.heldBy(p.Claim), b.runs[p.RunID]
		if r == nil || !u.under(p.Claim) {
			return nil, chat.ErrFenced
		}
		if err := b.firstOnly(ctx, r, p.Seqs); err != nil {
			return nil, err
		}
		if seqs = b.take(r, p.RunID); len(seqs) == 0 {
			return all(ctx, tx, joinedSQL, scanNumber, r.key, p.Seqs, p.RunID)
		}
		if err := tx.Later(ctx, runMessagesSQL, nil, b.taken); err != nil {
			return nil, err
		}
		to := addition{Session: r.key, Transcript: u.transcript, After: r.transcriptSeq, At: b.sessions.now}
		added, rows, err := to.rows(p.EntriesOf(seqs))
		if err != nil {
			return nil, err
		}
		r.transcriptSeq += int64(len(added))
		if err := addEntries(ctx, tx, rows); err != nil {
			return nil, err
		}
		if p.Round > 0 {
			inputs := make(Set, len(seqs))
			for i, seq := range seqs {
				inputs[i] = []any{seq}
			}
			if err := tx.Later(ctx, recordInputSQL, nil, p.RunID, p.Round, inputs); err != nil {
				return nil, err
			}
		}
		return seqs, saveRows(ctx, tx, r)
	})
}

// firstOnly leaves out the messages that would overtake another one, which waits and is not among
// seqs.
func (b *starting) firstOnly(ctx context.Context, r *sessionRow, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	waiting, err := all(ctx, b.tx, firstWaitingSQL, scanNumber, r.key, slices.Max(seqs), len(seqs)+1)
	if err != nil {
		return err
	}
	for _, seq := range waiting {
		if !slices.Contains(seqs, seq) {
			b.waiting[r.key] = slices.DeleteFunc(b.waiting[r.key], func(m store.Waiting) bool { return m.Seq > seq })
			break
		}
	}
	return nil
}

// under reports whether a run runs under a claim.
func (u *runRow) under(c store.Claim) bool {
	return u.Session == c.Session && u.Owner == c.Node && u.Epoch == c.Epoch && (u.State == store.RunRunning || u.State == store.RunYielded)
}

// TurnTexts are the statements of accepts, starts and finishes, without the rare ones.
func TurnTexts() []string {
	return []string{
		makeRowsSQL, lockRowsSQL, rowsSQL, takersSQL, acceptedSQL, addMessagesSQL, saveRowsSQL,
		startableSQL, runsByIDSQL, runMessagesSQL, putRunsSQL, insertEntriesSQL,
		runMembersSQL, restSQL, addOutgoingSQL, endMembersSQL, endRunsSQL, rememberSQL,
	}
}

const (
	// lockRootSQL serializes the counting of the sub-turns of one tree across the replicas on which
	// their parents run.
	lockRootSQL = `SELECT 1 FROM runs WHERE id = $1 FOR NO KEY UPDATE`

	treeSQL = `SELECT COALESCE((SELECT COALESCE(stop_by, '') <> '' FROM runs WHERE id = $1), false),
		(SELECT count(*) FROM inbox WHERE parent = $1), (SELECT count(*) FROM inbox WHERE root = $2), EXISTS (SELECT 1 FROM inbox WHERE message_id = $3)`

	markTaskSQL = `UPDATE inbox SET parent = $2, root = $3, announce = $4 WHERE message_id = $1`
)

// Spawn accepts the message of a sub-turn; see store.Tasks.
func (s Inbox) Spawn(ctx context.Context, p store.SpawnParams) (store.Accepted, error) {
	return result(ctx, func(ctx context.Context, doing string, change func(ctx context.Context, tx Tx) error) error {
		return s.db.Turn(ctx, doing, Alone, change)
	}, "accept a sub-turn", func(ctx context.Context, tx Tx) (out store.Accepted, err error) {
		if err := fenceRun(ctx, tx, p.Claim, p.RunID); err != nil {
			return out, err
		}
		if text := tx.PerEngine(lockRootSQL, ""); text != "" {
			if err := tx.Later(ctx, text, nil, p.Root); err != nil {
				return out, err
			}
		}
		var (
			stops, known   bool
			children, tree int
		)
		_, err = one(ctx, tx, treeSQL, into(&stops, &children, &tree, &known), p.RunID, p.Root, p.Accept.Message.ID)
		switch {
		case err != nil:
			return out, err
		case known:
			return s.AcceptOn(ctx, tx, p.Accept)
		case stops:
			return out, store.ErrRunStops
		case children >= p.MaxChildren:
			return out, store.ErrManyChildren
		case tree >= p.MaxTree:
			return out, store.ErrManyInTree
		}
		if out, err = s.AcceptOn(ctx, tx, p.Accept); err != nil || out.Duplicate {
			return out, err
		}
		return out, tx.Later(ctx, markTaskSQL, nil, p.Accept.Message.ID, p.RunID, p.Root, number(p.Announce))
	})
}

const (
	// fenceSQL locks the session of a claim that holds. The lock orders the operation after every
	// earlier change of the session, which the following statements therefore see.
	fenceSQL = `SELECT 1 FROM sessions WHERE key = $1 AND owner = $2 AND epoch = $3
		AND EXISTS (SELECT 1 FROM nodes WHERE id = $2 AND lease_until > {now}) {lock}`

	// underClaim selects a run that runs under a claim. $1 run, $2 session, $3 node, $4 epoch.
	underClaim = `id = $1 AND (session_key = $2) IS TRUE AND owner = $3 AND epoch = $4 AND state IN ('running', 'yielded')`
)

// fenceRun is the fence for writes of a run: the claim holds, and the run runs under it.
// chat.ErrFenced otherwise.
func fenceRun(ctx context.Context, tx Tx, c store.Claim, runID string) error {
	holds := false
	err := tx.Later(ctx, fenceSQL, func(Row) error { holds = true; return nil }, c.Session.String(), c.Node, c.Epoch)
	if err != nil {
		return err
	}
	runs, err := one(ctx, tx, `SELECT 1 FROM runs WHERE `+underClaim, func(Row) error { return nil }, runID, c.Session.String(), c.Node, c.Epoch)
	if err == nil && (!holds || !runs) {
		err = chat.ErrFenced
	}
	return err
}
