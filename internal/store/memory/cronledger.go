package memory

import (
	"cmp"
	"strconv"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// summaryBytes is how much of an answer the ledger keeps.
const summaryBytes = 16_384

// messages are the ids of all attempts up to now.
func (r *ledgerRow) messages() []string {
	ids := []string{r.ID}
	for n := 2; n <= r.Attempt+1; n++ {
		ids = append(ids, r.ID+"/"+strconv.Itoa(n))
	}
	return ids
}

// begin writes the begin of an attempt.
func (c *crons) begin(p *cron.AttemptStart, now time.Time) {
	if p == nil || c.ledger[p.RunID] == nil {
		return
	}
	r := c.ledger[p.RunID]
	r.interrupt(now)
	r.State, r.Attempt, r.Node = cron.RunRunning, p.Attempt, p.Node
	if r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	r.Attempts = append(r.Attempts, cron.Attempt{Number: p.Attempt, StartedAt: now, Node: p.Node})
}

// interrupt ends an attempt whose process died.
func (r *ledgerRow) interrupt(now time.Time) {
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].State == "" {
		r.Attempts[n-1].State, r.Attempts[n-1].FinishedAt = cron.AttemptInterrupted, now
	}
}

// waitAgain clears the running attempt of a run.
func (c *crons) waitAgain(messageID string, now time.Time) {
	if r := c.message[messageID]; r != nil && r.State == cron.RunRunning {
		r.interrupt(now)
		r.State = cron.RunQueued
	}
}

// finish writes the end of an attempt and, when the run is finished, changes the job.
func (c *crons) finish(p *cron.AttemptEnd, now time.Time) {
	if p == nil || c.ledger[p.RunID] == nil {
		return
	}
	r := c.ledger[p.RunID]
	r.endAttempt(p.Attempt, now)
	r.State, r.Error, r.ErrorClass = p.State, p.Error, p.ErrorClass
	if p.State == cron.RunCancelled { // the requester of the stop gave the reason
		r.Reason = cmp.Or(r.Reason, p.Reason, cron.ReasonStopped)
	} else {
		r.Reason = p.Reason
	}
	if p.Summary != "" {
		r.Summary = chat.Cut(p.Summary, summaryBytes)
	}
	r.Model, r.Provider = cmp.Or(p.Usage.Model, r.Model), cmp.Or(p.Usage.Provider, r.Provider)
	r.InputTokens += int64(p.Usage.InputTokens)
	r.OutputTokens += int64(p.Usage.OutputTokens)
	r.Delivery, r.DeliveryError, r.SuppressedBy = p.Delivery, p.DeliveryError, p.SuppressedBy
	switch {
	case p.State == cron.RunRetrying:
		r.NextAttempt = kept(p.NextAttempt)
	case p.State.Final():
		r.FinishedAt, r.Duration = now, now.Sub(r.StartedAt)
		c.updateJob(p, r, now)
	}
}

// endAttempt keeps the begin and the node of the attempt; the other members are the caller's.
func (r *ledgerRow) endAttempt(a cron.Attempt, now time.Time) {
	a.FinishedAt = now
	for i, have := range r.Attempts {
		if have.Number == a.Number && have.State == "" {
			a.StartedAt, a.Node = have.StartedAt, cmp.Or(a.Node, have.Node)
			r.Attempts[i] = a
			return
		}
	}
}

func (c *crons) updateJob(p *cron.AttemptEnd, r *ledgerRow, now time.Time) {
	old := c.jobs[r.JobID]
	if old == nil || p.Job == nil {
		return
	}
	job := p.Job(c.view(old), c.run(r), now)
	if job == nil {
		c.remove(old)
		return
	}
	changed := keptJob(*job)
	c.jobs[old.ID] = &changed
}

// end gives a message its outcome. A run whose message never became a turn ends with it. The caller calls settle afterwards.
func (s *Store) end(se *session, m *message, outcome chat.Outcome, reason string, now time.Time) {
	if r := s.crons.message[m.MessageID]; r != nil && m.State != store.StateRunning && r.State == cron.RunQueued {
		r.cancel(cron.ReasonStopped, "", now)
		switch outcome { //nolint:exhaustive // the others are those of runs that were stopped
		case chat.OutcomeFailed:
			r.State, r.Reason, r.Error = cron.RunError, "", reason
		case chat.OutcomeInterrupted, chat.OutcomeDead:
			r.State, r.Reason, r.Error = cron.RunInterrupted, "", reason
		}
		run := s.crons.run(r)
		m.ended = &run
	}
	se.end(m, outcome, reason, now)
}

// delivered writes the delivery of an answer into the ledger. Notices are no answer.
func (s *Store) delivered(row *outRow) {
	r := s.crons.message[row.RunID]
	if r == nil || row.RunID == "" || row.Kind == store.KindNotice {
		return
	}
	switch row.state {
	case store.OutDelivered:
		r.ProviderMessageID, r.DeliveryError = row.providerID, ""
		r.Delivery = cron.DeliveryDone
	case store.OutFailed, store.OutMaybeSent:
		r.Delivery, r.DeliveryError = cron.DeliveryNot, row.lastError
		if row.MaybeSent {
			r.Delivery = cron.DeliveryUnknown
		}
	case store.OutExpired:
		r.Delivery, r.DeliveryError = cron.DeliveryNot, "it was not sent in time"
	}
	if j := s.crons.jobs[r.JobID]; j != nil && j.State.LastRunAt.Equal(r.StartedAt) {
		j.State.LastDelivery, j.State.LastDeliveryError = r.Delivery, r.DeliveryError
	}
}
