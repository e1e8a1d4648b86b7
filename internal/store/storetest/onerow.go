package storetest

import (
	"testing"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// OneRowRunsSQL inserts, into a database of the step before runs had one form, a run that is queued, one that runs and one that has ended, each as one row of the
// ledger. Their node does not exist.
const OneRowRunsSQL = `INSERT INTO cron_run_logs (id, job_id, owner, agent, lane, session_key, scheduled_for, trigger, state, claimed_at, started_at, finished_at,
	attempt, run_id, node, compact, principal, session_id, body, entries, transcript, preview, input_tokens, output_tokens, model) VALUES
	('schedule:j:1', 'j', 'ann', 'main', 'cron', 'agent:main:cron:j:schedule-1', 1, 'schedule', 'queued', 1, NULL, NULL,
		0, 'schedule:j:1', 'gone', 1, 'ann', 't1', '{"text":"work"}', 0, '', '', 0, 0, ''),
	('schedule:j:2', 'j', 'ann', 'main', 'cron', 'agent:main:cron:j:schedule-2', 2, 'schedule', 'running', 2, 3, NULL,
		1, 'schedule:j:2', 'gone', 1, 'ann', 't2', '{"text":"work"}', 1,
		'{"run":"schedule:j:2","role":"user","content":"work","sender":"","tokens":1,"reason":"","command":false}', '', 0, 0, ''),
	('schedule:j:3', 'j', 'ann', 'main', 'cron', 'agent:main:cron:j:schedule-3', 3, 'schedule', 'ok', 3, 4, 5,
		1, 'schedule:j:3', 'gone', 1, 'ann', 't3', '{"text":"work"}', 2,
		'{"run":"schedule:j:3","role":"user","content":"work","sender":"","tokens":1,"reason":"","command":false},' ||
		'{"run":"schedule:j:3","role":"assistant","content":"done","sender":"","tokens":2,"reason":"","command":false,"answer":true}', 'done', 3, 4, 'm')`

// CheckOneRowRuns checks that the runs of [OneRowRunsSQL] are messages with sessions, and that the node takes over those that have not ended.
func CheckOneRowRuns(t *testing.T, s store.Store, node string) {
	t.Helper()
	w := &world{reporter: t, tb: t, ctx: t.Context()}
	key := func(slot string) chat.SessionKey {
		return chat.SessionKey{Agent: "main", Rest: "cron:j:schedule-" + slot}
	}
	tr, err := s.Transcript(w.ctx, store.TranscriptQuery{Session: key("3")})
	w.ok(err)
	equal(w, "transcript", []any{tr.SessionID, textsOf(tr.Entries)}, []any{"t3", []string{"user: work", "assistant: done"}})
	se, err := s.Session(w.ctx, key("3"), "ann")
	w.ok(err)
	equal(w, "session", []any{se.Principal, se.Owner, se.LastRunID, se.LastState, se.Preview, se.TotalTokens, se.LastSeq, se.DoneSeq, se.Waiting},
		[]any{"ann", "", "schedule:j:3", store.RunOK, "done", 7, int64(1), int64(1), 0})
	m, err := s.MessageByID(w.ctx, "schedule:j:3")
	w.ok(err)
	equal(w, "message", []any{m.Session, m.Seq, m.State, m.Outcome, m.RunID, m.Content.Text},
		[]any{key("3"), int64(1), store.StateDone, chat.OutcomeAnswered, "schedule:j:3", "work"})
	r, err := s.RunByID(w.ctx, "schedule:j:3")
	w.ok(err)
	equal(w, "turn", []any{r.State, r.Usage.InputTokens, r.Usage.OutputTokens, r.Usage.Model}, []any{store.RunOK, 3, 4, "m"})
	taken, err := s.Sweep(w.ctx, store.SweepParams{Node: node, Limit: 10})
	w.ok(err)
	var got []any
	for _, one := range taken {
		got = append(got, one.Session, one.Messages[0].MessageID, one.Runs[one.Messages[0].RunID].State)
	}
	equal(w, "taken over", got, []any{key("1"), "schedule:j:1", "", key("2"), "schedule:j:2", store.RunInterrupted})
	jobs, ok := s.(cron.JobStore)
	if !ok {
		t.Fatal("the store has no jobs")
	}
	for id, want := range map[string]cron.RunState{"schedule:j:1": cron.RunQueued, "schedule:j:2": cron.RunQueued, "schedule:j:3": cron.RunOK} {
		one, err := jobs.Run(w.ctx, id, "")
		w.ok(err)
		equal(w, id, one.State, want)
	}
}
