package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// beginFirstSQL records the start of first attempts, which need not be read. The value of text is
// as in cron.EncodeAttempts.
const beginFirstSQL = `{set run text, node text, quoted text, message text}
	UPDATE cron_run_logs AS l SET state = 'running', attempt = 1, started_at = {now}, node = v.node, run_id = v.message,
		attempts = '[{"attempt":1,"startedAtMs":' || {now} || ',"node":' || v.quoted || '}]'
	{from} WHERE l.id = v.run AND l.state = 'queued' AND l.attempt = 0`

// BeginAttempts records in the ledger the start of attempts whose messages have become runs, and
// reads their jobs. It calls job for those that exist and can be decoded, at the latest at the end
// of the transaction. First attempts cause no query of their own.
func (s Cron) BeginAttempts(ctx context.Context, tx Tx, list []store.StartParams, job func(i int, j cron.Job)) error {
	var (
		first Set
		again []string
		of    = map[string][]int{}
	)
	for i := range list {
		if list[i].Cron == nil {
			continue
		}
		begin := beginOn(&list[i])
		if _, id, _, err := cron.ParseRunID(begin.RunID); err == nil {
			of[id] = append(of[id], i)
		}
		if begin.Attempt > 1 {
			again = append(again, begin.RunID)
			continue
		}
		quoted, err := encode(begin.Node)
		if err != nil {
			return err
		}
		first = append(first, []any{begin.RunID, begin.Node, quoted, list[i].RunID})
	}
	if len(first) > 0 {
		if err := tx.Later(ctx, beginFirstSQL, nil, first); err != nil {
			return err
		}
	}
	if err := beginAgain(ctx, tx, again, list); err != nil {
		return err
	}
	return s.readJobsOf(ctx, tx, of, job)
}

// beginOn is the start of an attempt, on the node that starts its message unless another is named.
func beginOn(p *store.StartParams) cron.AttemptStart {
	begin := *p.Cron
	begin.Node = cmp.Or(begin.Node, p.Node)
	return begin
}

func beginAgain(ctx context.Context, tx Tx, ids []string, list []store.StartParams) error {
	if len(ids) == 0 {
		return nil
	}
	now, rows, err := runsNow(ctx, tx, ids)
	if err != nil {
		return err
	}
	var begun []loggedRun
	for i := range list {
		if list[i].Cron == nil || list[i].Cron.Attempt <= 1 {
			continue
		}
		r, ok := rows[list[i].Cron.RunID]
		if !ok || r.State != cron.RunQueued {
			continue
		}
		r.Run, _ = r.Began(beginOn(&list[i]), fromMillis(now))
		r.message = list[i].RunID
		begun = append(begun, r)
	}
	return storeRuns(ctx, tx, begun...)
}

func (s Cron) readJobsOf(ctx context.Context, tx Tx, of map[string][]int, job func(i int, j cron.Job)) error {
	if len(of) == 0 {
		return nil
	}
	which, arg := idIn(slices.Collect(maps.Keys(of)))
	scan := s.scanner()
	return tx.Later(ctx, readJob+which, func(r Row) error {
		j, err := scan(r)
		if err != nil || j.broken != "" {
			return err
		}
		for _, i := range of[j.ID] {
			job(i, j.Clone())
		}
		return nil
	}, arg)
}

// Ends are the ends of attempts in one transaction. Jobs are locked before sessions, as everywhere.
type Ends struct {
	cron Cron
	list []*cron.AttemptEnd
	jobs map[string]storedJob
	rows map[string]loggedRun
	now  int64
}

// jobOfEnd is the job that the end of an attempt changes; "" when it changes none.
func jobOfEnd(e *cron.AttemptEnd) string {
	if e.Job == nil || !e.State.Final() {
		return ""
	}
	_, job, _, err := cron.ParseRunID(e.RunID)
	if err != nil {
		return ""
	}
	return job
}

// LockEnds locks the jobs that the ends of attempts change, before their sessions are locked. With
// wait it waits for locks; several ends in one transaction do not.
func (s Cron) LockEnds(ctx context.Context, tx Tx, list []*cron.AttemptEnd, wait bool) (*Ends, error) {
	e := &Ends{cron: s, list: list, jobs: map[string]storedJob{}, rows: map[string]loggedRun{}}
	var ids []string
	for _, end := range list {
		if id := jobOfEnd(end); id != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return e, nil
	}
	which, arg := idIn(ids)
	lock := ` ORDER BY id {skip}`
	if wait {
		lock = ` ORDER BY id {lock}`
	}
	scan := s.scanner()
	return e, tx.Later(ctx, readJobAlone+which+lock, func(r Row) error {
		j, err := scan(r)
		e.jobs[j.ID] = j
		return err
	}, arg)
}

// Read reads the rows of the ledger. The caller has locked their sessions.
func (e *Ends) Read(ctx context.Context, tx Tx) error {
	ids := make([]string, len(e.list))
	for i, end := range e.list {
		ids[i] = end.RunID
	}
	which, arg := idIn(ids)
	scan := logScanner(&e.now)
	return tx.Later(ctx, `SELECT `+logColumns+`, {now} FROM cron_run_logs WHERE `+which, func(row Row) error {
		r, err := scan(row)
		e.rows[r.ID] = r
		return err
	}, arg)
}

// Ready selects the ends with a held fence that this transaction can write: it holds the locks of
// their jobs, and each job occurs once. An end whose job is locked by another transaction or was
// removed is left to a transaction that waits.
func (e *Ends) Ready(held []bool) []bool {
	ready, used := make([]bool, len(e.list)), map[string]bool{}
	for i, end := range e.list {
		job := jobOfEnd(end)
		_, locked := e.jobs[job]
		ready[i] = held[i] && !used[job] && (locked || job == "")
		if ready[i] && job != "" {
			used[job] = true
		}
	}
	return ready
}

// Write writes the end of an attempt into the ledger and into its job. Read must have completed. A
// row whose attempt has ended is not changed: a repetition must not apply the change to the job
// again.
func (e *Ends) Write(ctx context.Context, tx Tx, written map[int]string) error {
	var (
		runs   []loggedRun
		counts Set
	)
	for i, end := range e.list {
		node, ok := written[i]
		r, known := e.rows[end.RunID]
		if !ok || !known {
			continue
		}
		now := fromMillis(e.now)
		if r.Run, ok = r.Ended(end, node, now); !ok {
			continue
		}
		runs = append(runs, r)
		old, ok := e.jobs[jobOfEnd(end)]
		if !ok || old.broken != "" {
			continue
		}
		next := end.Job(old.Clone(), r.Run, now)
		switch {
		case next == nil:
			if err := removeJob(ctx, tx, old.ID); err != nil {
				return err
			}
		case cron.SameBesidesCounters(&old.Job, next):
			counts = append(counts, counters(next))
		default:
			if _, err := storeJob(ctx, tx, old, *next); err != nil {
				return err
			}
		}
	}
	if err := storeRuns(ctx, tx, runs...); err != nil || len(counts) == 0 {
		return err
	}
	return tx.Later(ctx, countersSQL, nil, counts)
}

// removeJob deletes a job; its ledger stays.
func removeJob(ctx context.Context, tx Tx, id string) error {
	if err := releaseNames(ctx, tx, id); err != nil {
		return err
	}
	return tx.Later(ctx, `DELETE FROM cron_jobs WHERE id = $1`, nil, id)
}

// waitAgain makes the runs of interrupted attempts wait again. Their messages were running.
func waitAgain(ctx context.Context, tx Tx, messages []string) error {
	return changeRunsOf(ctx, tx, messages, func(r *loggedRun, now int64) (changed bool) {
		r.Run, changed = r.WaitsAgain(fromMillis(now))
		return changed
	})
}

// endRunsOf ends the runs of messages that got an outcome without running, and adds their rows to
// the messages.
func endRunsOf(ctx context.Context, tx Tx, ended []store.Waiting) error {
	messages := make([]string, len(ended))
	at := make(map[string]int, len(ended))
	for i := range ended {
		messages[i] = ended[i].MessageID
		at[ended[i].MessageID] = i
	}
	return changeRunsOf(ctx, tx, messages, func(r *loggedRun, now int64) (changed bool) {
		m := &ended[at[r.message]]
		r.Run, changed = r.EndedWaiting(m.Outcome, m.Reason, fromMillis(now))
		if r.State.Final() {
			run := r.Run
			m.CronRun = &run
		}
		return changed
	})
}

// changeRunsOf changes the rows whose current attempt is one of the messages. Messages without a
// job cost nothing.
func changeRunsOf(ctx context.Context, tx Tx, messages []string, change func(r *loggedRun, now int64) bool) error {
	of := map[string]string{} // run → message
	ids := make([]string, 0, len(messages))
	for _, m := range messages {
		if id := cron.RunOfMessage(m); id != "" {
			of[id], ids = m, append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	now, rows, err := runsNow(ctx, tx, ids)
	if err != nil {
		return err
	}
	var changed []loggedRun
	for _, id := range ids {
		if r, ok := rows[id]; ok && r.message == of[id] && change(&r, now) {
			changed = append(changed, r)
		}
	}
	return storeRuns(ctx, tx, changed...)
}

// runsNow reads rows of the ledger, and the store's clock for what changes in them.
func runsNow(ctx context.Context, tx Tx, ids []string) (now int64, rows map[string]loggedRun, err error) {
	if now, err = tx.Now(ctx); err == nil {
		rows, err = readRuns(ctx, tx, ids)
	}
	return now, rows, err
}

const (
	// dueRetriesSQL finds runs whose next attempt is due, with the message of the last attempt.
	dueRetriesSQL = `SELECT ` + logColumns + ` FROM cron_run_logs WHERE next_attempt_at <= {now} AND state = 'retrying' AND ` + ofAgents + `
		ORDER BY next_attempt_at, id {limit $3} {skip}`
	lastMessagesSQL = `SELECT message_id, lane, principal, channel, external_id, params_hash, body FROM inbox WHERE message_id {in $1}`
)

// retries puts the next attempts of runs into the inbox.
func (c *claiming) retries(ctx context.Context, tx Tx) error {
	rows, err := all(ctx, tx, dueRetriesSQL, logScanner(), number(c.p.Agents == nil), c.p.Agents, c.p.Limit+1)
	if len(rows) > c.p.Limit {
		rows, c.out.More = rows[:c.p.Limit], true
	}
	if err != nil || len(rows) == 0 {
		return err
	}
	if c.now, err = tx.Now(ctx); err != nil {
		return err
	}
	last, err := lastMessages(ctx, tx, rows)
	if err != nil {
		return err
	}
	var names takenNames
	for i := range rows {
		names.ask(parseKey(rows[i].SessionKey), rows[i].Owner, rows[i].JobID)
	}
	if err := names.read(ctx, tx); err != nil {
		return err
	}
	var place []cron.Launched
	for i := range rows {
		r := &rows[i]
		if names.has(parseKey(r.SessionKey), r.JobID) {
			r.Run, _ = r.EndedWaiting(chat.OutcomeFailed, "", fromMillis(c.now))
			r.Run = r.Taken()
			c.refused = append(c.refused, r.Run)
			continue
		}
		m, ok := last[r.message]
		if !ok {
			r.Run, _ = r.EndedWaiting(chat.OutcomeFailed, "the message of its last attempt does not exist any more", fromMillis(c.now))
			c.out.Finished = append(c.out.Finished, r.Run)
			continue
		}
		m.Session = parseKey(r.SessionKey)
		r.Run, m = r.Retried(c.node, m)
		r.message = m.ID
		place = append(place, cron.Launched{Run: r.Run, Message: m})
	}
	if err := storeRuns(ctx, tx, rows...); err != nil {
		return err
	}
	return c.place(ctx, tx, place)
}

func lastMessages(ctx context.Context, tx Tx, rows []loggedRun) (map[string]chat.Message, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].message
	}
	last := make(map[string]chat.Message, len(rows))
	err := tx.Query(ctx, lastMessagesSQL, func(r Row) error {
		var m chat.Message
		err := r.Scan(&m.ID, &m.Lane, &m.Principal, &m.Channel, &m.ExternalID, &m.ParamsHash, jsonColumn{&m.Content})
		last[m.ID] = m
		return err
	}, ids)
	return last, err
}
