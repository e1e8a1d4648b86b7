package memory

import (
	"database/sql"
	"encoding/json"
	"time"
)

// Dump writes the whole store into tables of the usual names, so that a test can run the invariant queries on it.
func (s *Store) Dump(insert func(table string, columns map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dumpNodes(insert)
	for _, se := range s.sessions {
		insert("sessions", map[string]any{
			"key": se.Key.String(), "agent": se.Key.Agent, "principal": se.Principal, "owner": text(se.Owner), "epoch": se.Epoch,
			"last_seq": se.LastSeq, "taken_seq": se.TakenSeq, "done_seq": se.DoneSeq, "stop_seq": se.StopSeq,
			"waiting": se.Waiting, "run_limit": se.RunLimit, "debounce_until": at(se.debounceUntil),
		})
	}
	for _, m := range s.messages {
		body, err := json.Marshal(m.Content)
		if err != nil {
			panic(err)
		}
		insert("inbox", map[string]any{
			"session_key": m.Session.String(), "seq": m.Seq, "message_id": m.MessageID, "dedupe": text(m.dedupe), "channel": m.Channel,
			"external_id": m.ExternalID, "body": string(body), "state": m.State, "outcome": text(string(m.Outcome)), "reason": m.Reason,
			"run_id": text(m.RunID), "merged_into": m.MergedInto, "notice_id": text(m.notice), "accepted_at": at(m.AcceptedAt),
			"ended_at": at(m.endedAt),
		})
	}
	for _, r := range s.runs {
		insert("runs", map[string]any{
			"id": r.ID, "session_key": r.Session.String(), "session_id": r.sessionID, "seq_from": r.SeqFrom, "seq_to": r.SeqTo,
			"lane": r.Lane, "owner": r.Owner, "epoch": r.Epoch, "attempt": r.Attempt, "crashes": r.Crashes, "state": r.State,
			"error": r.Error, "detail": r.Detail, "stop_by": r.StopBy, "started_at": at(r.StartedAt), "ended_at": at(r.EndedAt),
		})
	}
	s.dumpOutgoing(insert)
	s.dumpCron(insert)
}

func (s *Store) dumpCron(insert func(table string, columns map[string]any)) {
	for _, j := range s.crons.jobs {
		columns := map[string]any{
			"id": j.ID, "owner": j.Owner, "key": j.Key, "name": j.Name, "kind": string(j.Schedule.Kind), "enabled": j.Enabled,
			"next_slot": at(j.State.Next), "next_run_at": at(j.State.NextRunAt), "invalid": j.Invalid, "last_error": j.State.LastError,
			"revision": j.Revision, "fired": j.State.Fired, "updated_at": at(j.UpdatedAt),
		}
		if j.Pause != nil {
			columns["paused_at"], columns["paused_until"] = at(j.Pause.At), at(j.Pause.Until)
		}
		insert("cron_jobs", columns)
	}
	for _, r := range s.crons.ledger {
		insert("cron_run_logs", map[string]any{
			"id": r.ID, "job_id": r.JobID, "owner": r.Owner, "scheduled_for": at(r.ScheduledFor), "trigger": string(r.Trigger),
			"state": string(r.State), "reason": text(string(r.Reason)), "claimed_at": at(r.ClaimedAt), "started_at": at(r.StartedAt),
			"finished_at": at(r.FinishedAt), "next_attempt_at": at(r.NextAttempt), "run_id": text(r.message), "attempt": r.Attempt,
			"error": r.Error, "delivery_error": r.DeliveryError,
		})
	}
	for _, a := range s.crons.audit {
		insert("audit_log", map[string]any{
			"id": a.id, "who": a.Who, "verb": a.Verb, "object": a.Object, "before_hash": a.Before, "after_hash": a.After,
			"peer": a.Peer, "request_id": a.RequestID, "at": at(a.at),
		})
	}
}

func (s *Store) dumpNodes(insert func(table string, columns map[string]any)) {
	for _, n := range s.nodes {
		insert("nodes", map[string]any{
			"id": n.ID, "lease_until": at(n.leaseUntil), "addr": n.Addr, "draining": n.draining, "draining_since": at(n.drainingSince),
		})
	}
	for _, l := range s.leases {
		insert("leases", map[string]any{"name": l.Name, "owner": text(l.Owner), "epoch": l.Epoch, "next_offset": l.NextOffset})
	}
}

func (s *Store) dumpOutgoing(insert func(table string, columns map[string]any)) {
	for _, o := range s.outbox {
		insert("outbox", map[string]any{
			"id": o.ID, "run_id": text(o.RunID), "n": o.N, "channel": o.Target.Channel, "chat_id": o.Target.ChatID, "kind": o.Kind,
			"state": o.state, "node": text(o.node), "epoch": o.Epoch, "last_error": o.lastError, "provider_id": text(o.providerID),
			"created_at": at(o.CreatedAt),
		})
	}
}

func text(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func at(t time.Time) sql.NullInt64 { return sql.NullInt64{Int64: t.UnixMilli(), Valid: !t.IsZero()} }
