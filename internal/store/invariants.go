package store

import (
	"regexp"
	"slices"
)

// ReasonCommand is the reason of a message that was executed on arrival ([AcceptParams.Unqueued]):
// it is answered without a run.
const ReasonCommand = "command"

// Invariant is a rule that the tables obey between any two operations. It is a query: every row
// that it returns is a violation. The same SQL serves both engines.
type Invariant struct {
	// ID names the rule. It is the first column of every row; the further columns locate the
	// violation.
	ID string
	// Rule is the rule in one sentence.
	Rule string
	// SQL has a colon and a name for each value to bind.
	SQL string
	// Params are the names to bind, each once:
	//
	//	now    the store's clock
	//	gone   now - (lease 15 s + 5 s): a node whose lease ended before that is dead for every process
	//	drain  now - (drain timeout + 2 s)
	//	since  now - 24 h
	//	main, subagent, team, cron   the limits of the lanes
	//	cap    how many messages of a session may wait
	//	jobs   how many cron jobs an owner may have
	//	keep   now - (retention of the cron ledger + 2 days)
	//	secret a string that must not occur
	//
	// Times are integer milliseconds since 1970.
	Params []string
}

// Invariants lists the rules of the tables nodes, sessions, branches, transcript, inbox, runs,
// outbox, leases, cron_jobs, cron_run_logs and audit_log. The caller owns the slice.
func Invariants() []Invariant {
	all := messageInvariants()
	all = append(all, runInvariants()...)
	all = append(all, fenceInvariants()...)
	all = append(all, cronInvariants()...)
	return append(all, nodeInvariants()...)
}

// agentless is the condition that live nodes exist and that none of them has the agent of a row of
// a table: its work waits for a node that has it, see [Unowned].
func agentless(table string) string {
	return `(EXISTS (SELECT 1 FROM nodes m WHERE m.lease_until > :gone)
			    AND NOT EXISTS (SELECT 1 FROM nodes m WHERE m.lease_until > :gone AND (m.agents = '' OR m.agents LIKE '%"' || ` + table + `.agent || '"%')))`
}

// Agentless finds the agents that none of the live nodes has, with how many messages and due jobs
// wait for each.
func Agentless() Invariant {
	return Invariant{ID: "agentless", Params: []string{"now", "gone"}, SQL: `
		SELECT 'agentless', w.agent, sum(w.messages), sum(w.jobs) FROM (
			SELECT s.agent, 1 AS messages, 0 AS jobs FROM inbox i JOIN sessions s ON s.key = i.session_key
			LEFT JOIN nodes n ON n.id = s.owner AND n.lease_until > :gone
			WHERE i.state <> 'done' AND n.id IS NULL
			UNION ALL SELECT agent, 0, 1 FROM cron_jobs
			WHERE enabled AND next_run_at > 0 AND next_run_at <= :now AND paused_at IS NULL AND coalesce(invalid, '') = '' AND owner <> 'system'
		) w WHERE ` + agentless("w") + ` GROUP BY w.agent ORDER BY w.agent`}
}

// messageInvariants are the rules of messages. A message of an interrupted run waits again although
// it has a run, so the queue may exceed its bound by such messages.
func messageInvariants() []Invariant {
	return []Invariant{
		{ID: "I1.state", Rule: "A message is done exactly when it has one of the known outcomes.", SQL: `
			SELECT 'I1.state', session_key, seq FROM inbox
			WHERE state NOT IN ('waiting', 'running', 'done')
			   OR (state = 'done') <> (outcome IS NOT NULL)
			   OR outcome NOT IN ('answered', 'merged', 'superseded', 'stopped', 'stale', 'dropped', 'failed', 'interrupted', 'dead')`},
		{ID: "I1.notice", Rule: "A message of a chat that ended badly has a notice.", SQL: `
			SELECT 'I1.notice', i.session_key, i.seq FROM inbox i
			LEFT JOIN outbox o ON o.id = i.notice_id
			WHERE i.channel LIKE 'telegram:%' AND i.outcome IN ('dropped', 'failed', 'interrupted', 'dead') AND o.id IS NULL`},
		{ID: "I1.merged", Rule: "A merged message names one that was not merged itself.", SQL: `
			SELECT 'I1.merged', i.session_key, i.seq FROM inbox i
			LEFT JOIN inbox m ON m.session_key = i.session_key AND m.seq = i.merged_into
			WHERE i.outcome = 'merged' AND (m.seq IS NULL OR m.outcome = 'merged')`},
		{ID: "I1.answered", Rule: "An answered message has a run that ended well, or was a command.", SQL: `
			SELECT 'I1.answered', i.session_key, i.seq FROM inbox i
			LEFT JOIN runs r ON r.id = i.run_id AND r.state = 'ok'
			WHERE i.outcome = 'answered' AND r.id IS NULL AND coalesce(i.reason, '') <> 'command'`},
		{ID: "I1.behind", Rule: "Nothing unfinished lies at or below done_seq.", SQL: `
			SELECT 'I1.behind', i.session_key, i.seq FROM inbox i
			JOIN sessions s ON s.key = i.session_key
			WHERE i.state <> 'done' AND i.seq <= s.done_seq`},
		{ID: "I5.stranded", Rule: "Unfinished work has a live owner, or is younger than a lease, or no live node has its agent, or the gateway is held.", Params: []string{"gone"}, SQL: `
			SELECT 'I5.stranded', i.session_key, min(i.seq) FROM inbox i
			JOIN sessions s ON s.key = i.session_key
			LEFT JOIN nodes n ON n.id = s.owner AND n.lease_until > :gone
			WHERE i.state <> 'done' AND i.accepted_at < :gone AND n.id IS NULL AND NOT EXISTS (SELECT 1 FROM hold)
			  AND NOT ` + agentless("s") + `
			GROUP BY i.session_key`},
		{ID: "I6.receipt", Rule: "Delivered means that the provider's id is known.", SQL: `
			SELECT 'I6.receipt', id, run_id FROM outbox
			WHERE state = 'delivered' AND coalesce(provider_id, '') = ''`},
		{ID: "I10.queue", Rule: "No more turns wait than the queue has places, and one more when none runs, without those of jobs and announcements, which the queue never refuses, and typed messages after a typed one.", Params: []string{"cap"}, SQL: `
			SELECT 'I10.queue', i.session_key, count(*) FROM inbox i
			WHERE i.state = 'waiting' AND coalesce(i.run_id, '') = '' AND i.flags IN (0, 1, 2, 3) AND NOT EXISTS (SELECT 1 FROM cron_run_logs c WHERE c.id = i.message_id)
			  AND NOT (i.flags = 1 AND EXISTS (SELECT 1 FROM inbox b WHERE b.session_key = i.session_key AND b.seq = i.seq - 1 AND b.state = 'waiting' AND b.flags = 1))
			GROUP BY i.session_key
			HAVING count(*) > :cap + CASE WHEN EXISTS (SELECT 1 FROM runs r WHERE r.session_key = i.session_key AND r.state IN ('running', 'stopping', 'yielded')) THEN 0 ELSE 1 END`},
	}
}

// runInvariants are the rules of runs. A run that began and ended in the same millisecond overlaps
// no other run, although its successor may have begun in that millisecond.
func runInvariants() []Invariant {
	lanes := []string{"main", "subagent", "team", "cron"}
	return []Invariant{
		{ID: "I3.now", Rule: "A session runs no more turns at once than its limit, stopping ones included.", SQL: `
			SELECT 'I3.now', s.key, count(*) FROM sessions s
			JOIN runs r ON r.session_key = s.key AND r.state IN ('running', 'stopping', 'yielded')
			GROUP BY s.key, s.run_limit HAVING count(*) > s.run_limit`},
		{ID: "I3.past", Rule: "A session never ran more turns at once than its limit.", Params: []string{"since"}, SQL: `
			SELECT 'I3.past', a.session_key, a.id FROM runs a
			JOIN sessions s ON s.key = a.session_key
			JOIN runs b ON b.session_key = a.session_key AND b.id <> a.id
			 AND b.started_at <= a.started_at AND (b.ended_at IS NULL OR b.ended_at > a.started_at)
			WHERE a.started_at > :since AND (a.ended_at IS NULL OR a.ended_at > a.started_at)
			GROUP BY a.session_key, a.id, s.run_limit HAVING count(*) >= s.run_limit`},
		{ID: "I4.lane", Rule: "A node runs no more turns in a lane than the lane has slots; those that wait for sub-turns have no slot.", Params: lanes, SQL: `
			SELECT 'I4.lane', r.owner, r.lane, count(*) FROM runs r
			WHERE r.state IN ('running', 'stopping')
			GROUP BY r.owner, r.lane
			HAVING count(*) > CASE r.lane WHEN 'cron' THEN :cron WHEN 'subagent' THEN :subagent WHEN 'team' THEN :team ELSE :main END`},
		{ID: "I5.order", Rule: "Turns of a session begin in the order of their messages.", Params: []string{"since"}, SQL: `
			SELECT 'I5.order', a.session_key, a.seq_from FROM runs a
			JOIN runs b ON b.session_key = a.session_key AND b.seq_from > a.seq_to AND b.started_at < a.started_at
			WHERE a.attempt = 1 AND b.attempt = 1 AND a.started_at > :since`},
		{ID: "I7.left", Rule: "A turn that runs belongs to a node that lives, or the gateway is held.", Params: []string{"gone"}, SQL: `
			SELECT 'I7.left', r.id, r.owner FROM runs r
			LEFT JOIN nodes n ON n.id = r.owner AND n.lease_until > :gone
			WHERE r.state IN ('running', 'stopping', 'yielded') AND n.id IS NULL AND NOT EXISTS (SELECT 1 FROM hold)`},
	}
}

func fenceInvariants() []Invariant {
	return []Invariant{
		{ID: "I8.seq", Rule: "done_seq <= taken_seq <= last_seq, and stop_seq <= last_seq.", SQL: `
			SELECT 'I8.seq', key, done_seq FROM sessions
			WHERE done_seq > taken_seq OR taken_seq > last_seq OR stop_seq > last_seq`},
		{ID: "I8.epoch", Rule: "No run has an epoch that its session has not reached.", SQL: `
			SELECT 'I8.epoch', r.id, r.epoch FROM runs r
			JOIN sessions s ON s.key = r.session_key
			WHERE r.epoch > s.epoch`},
		{ID: "I8.twice", Rule: "No message was answered by two runs.", SQL: `
			SELECT 'I8.twice', a.session_key, a.seq_from FROM runs a
			JOIN runs b ON b.session_key = a.session_key AND b.id > a.id AND a.seq_from <= b.seq_to AND b.seq_from <= a.seq_to
			WHERE a.state = 'ok' AND b.state = 'ok'`},
		{ID: "I8.effect", Rule: "A reply was written under the epoch of its run.", SQL: `
			SELECT 'I8.effect', o.id, o.run_id FROM outbox o
			JOIN runs r ON r.id = o.run_id
			WHERE o.kind = 'reply' AND o.epoch <> r.epoch`},
		{ID: "I8.branch", Rule: "The entry at which a transcript branches off another one exists.", SQL: `
			SELECT 'I8.branch', b.session_key, b.parent_seq FROM branches b
			LEFT JOIN transcript t ON t.session_key = b.parent_key AND t.session_id = b.parent_id AND t.seq = b.parent_seq
			WHERE t.seq IS NULL`},
		{ID: "I9.secret", Rule: "No error and no address contains a secret.", Params: []string{"secret"}, SQL: `
			SELECT 'I9.secret', place, id FROM (` + revealingTexts + `) AS texts WHERE content LIKE '%' || :secret || '%'`},
	}
}

// revealingTexts are the columns that hold text from other programs, which could contain a secret.
const revealingTexts = `
				SELECT 'runs' AS place, id, error AS content FROM runs
				UNION ALL SELECT 'outbox', id, last_error FROM outbox
				UNION ALL SELECT 'cron_run_logs', id, error FROM cron_run_logs
				UNION ALL SELECT 'cron_run_logs', id, delivery_error FROM cron_run_logs
				UNION ALL SELECT 'cron_jobs', id, last_error FROM cron_jobs
				UNION ALL SELECT 'audit_log', CAST(id AS text), object FROM audit_log
				UNION ALL SELECT 'nodes', id, addr FROM nodes`

// RevealingTexts is a query for place, id and text of everything that the rule about secrets reads.
// A caller that has the secrets compares them in its own memory: a secret passed as a statement
// parameter could appear in the statement log of the database.
func RevealingTexts() Invariant {
	return Invariant{ID: "I9.secret", Rule: "No error and no address contains a secret.", SQL: `
		SELECT place, id, content FROM (` + revealingTexts + `) AS texts WHERE coalesce(content, '') <> ''`}
}

// Rollbacks is a query for the losses of commits that replicas noticed since a moment: the verb,
// the time of the first notice, the sign, and the histories before and after.
func Rollbacks() Invariant {
	return Invariant{ID: VerbRollback, Rule: "The database loses no commits.", Params: []string{"since"}, SQL: `
		SELECT verb, min(at), object, before_hash, after_hash FROM audit_log
		WHERE verb = '` + VerbRollback + `' AND at > :since GROUP BY verb, object, before_hash, after_hash ORDER BY min(at)`}
}

// cronInvariants are the rules of jobs and their ledger. A job that is paused, or whose row cannot
// be decoded, is enabled and still does not fire. An absent time is NULL or 0, an absent reason
// NULL or empty.
func cronInvariants() []Invariant {
	return []Invariant{
		{ID: "I2.twice", Rule: "No slot was fired twice.", SQL: `
			SELECT 'I2.twice', job_id, scheduled_for FROM cron_run_logs
			WHERE trigger IN ('schedule', 'catchup')
			GROUP BY job_id, scheduled_for HAVING count(*) > 1`},
		{ID: "I2.state", Rule: "A row of the ledger has ended exactly when its state is final, and has a reason when nothing ran.", SQL: `
			SELECT 'I2.state', job_id, scheduled_for FROM cron_run_logs
			WHERE state NOT IN ('queued', 'running', 'retrying', 'ok', 'error', 'skipped', 'missed', 'cancelled', 'interrupted')
			   OR (state IN ('skipped', 'missed') AND coalesce(reason, '') = '')
			   OR (state IN ('queued', 'running', 'retrying')) <> (coalesce(finished_at, 0) = 0)`},
		{ID: "I2.retry", Rule: "A run has a time for its next attempt exactly while it waits for it.", SQL: `
			SELECT 'I2.retry', job_id, scheduled_for FROM cron_run_logs
			WHERE (state = 'retrying') <> (coalesce(next_attempt_at, 0) <> 0)`},
		{ID: "I2.stuck", Rule: "A run that runs has a turn that runs on a node that lives.", Params: []string{"gone"}, SQL: `
			SELECT 'I2.stuck', c.job_id, c.scheduled_for FROM cron_run_logs c
			LEFT JOIN runs r ON r.id = c.run_id AND r.state IN ('running', 'yielded')
			LEFT JOIN nodes n ON n.id = r.owner AND n.lease_until > :gone
			WHERE c.state = 'running' AND n.id IS NULL`},
		{ID: "I2.lost", Rule: "A run that is queued has a message that waits or runs.", SQL: `
			SELECT 'I2.lost', c.job_id, c.scheduled_for FROM cron_run_logs c
			LEFT JOIN inbox i ON i.message_id = c.run_id AND i.state <> 'done'
			WHERE c.state = 'queued' AND i.seq IS NULL`},
		{ID: "I2.dead", Rule: "A job that may fire has a next time.", SQL: `
			SELECT 'I2.dead', id, key FROM cron_jobs
			WHERE enabled AND kind <> 'at' AND coalesce(next_run_at, 0) = 0
			  AND coalesce(paused_at, 0) = 0 AND coalesce(invalid, '') = ''`},
		{ID: "I2.late", Rule: "A job whose time has come is claimed, unless no live node has its agent.", Params: []string{"gone"}, SQL: `
			SELECT 'I2.late', id, next_run_at FROM cron_jobs
			WHERE enabled AND next_run_at > 0 AND next_run_at < :gone
			  AND (coalesce(paused_at, 0) = 0 OR coalesce(paused_until, 0) <> 0) AND coalesce(invalid, '') = ''
			  AND (owner = 'system' OR NOT ` + agentless("cron_jobs") + `)`},
		{ID: "I10.jobs", Rule: "No owner has more jobs than allowed.", Params: []string{"jobs"}, SQL: `
			SELECT 'I10.jobs', owner, count(*) FROM cron_jobs
			WHERE owner <> 'system'
			GROUP BY owner HAVING count(*) > :jobs`},
		{ID: "I10.ledger", Rule: "The ledger has no rows beyond its retention.", Params: []string{"keep"}, SQL: `
			SELECT 'I10.ledger', job_id, min(finished_at) FROM cron_run_logs
			WHERE finished_at > 0 AND finished_at < :keep
			GROUP BY job_id`},
	}
}

func nodeInvariants() []Invariant {
	return []Invariant{
		{ID: "I7.drain", Rule: "A node that drains ends within its time.", Params: []string{"drain", "now"}, SQL: `
			SELECT 'I7.drain', id, draining_since FROM nodes
			WHERE draining AND draining_since < :drain AND lease_until > :now`},
		{ID: "I10.nodes", Rule: "Dead nodes are forgotten.", Params: []string{"since"}, SQL: `
			SELECT 'I10.nodes', id, lease_until FROM nodes WHERE lease_until < :since`},
	}
}

var boundName = regexp.MustCompile(`:[a-z]+`)

// Bind returns the SQL of a rule for one engine and the values of its parameters. It replaces each
// name by place(n), where n counts the names from 1; a name that occurs twice keeps its number. The
// values are in the order of the numbers.
func (i Invariant) Bind(values map[string]any, place func(n int, value any) string) (text string, args []any) {
	var names []string
	text = boundName.ReplaceAllStringFunc(i.SQL, func(found string) string {
		name := found[1:]
		at := slices.Index(names, name)
		if at < 0 {
			at = len(names)
			names = append(names, name)
			args = append(args, values[name])
		}
		return place(at+1, values[name])
	})
	return text, args
}
