package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
	"laneway/internal/wire"
)

const (
	// needsEach is how many things of one kind are listed one by one.
	needsEach = 10
	// needsSince is how far back failed messages and missed slots are listed.
	needsSince = 24 * time.Hour

	waitsLong       = 5 * time.Minute  // of a message, and of an outgoing one
	laneWaitsLong   = 10 * time.Second // of a session for a slot
	failuresInARow  = 2                // of a job without its own alert rule
	echoRunner      = "echo"
	levelError      = "error"
	levelWarning    = "warn"
	levelAsk        = "ask"
	levelHint       = "hint"
	commandOfDoctor = "laneway doctor"
)

// needsList lists what needs the attention of a person. A caller restricted to its own work
// receives its own jobs and messages, and the faults of the gateway.
func (o overview) needsList(ctx context.Context, c *rpc.Call, _ wire.NoParams) (wire.NeedsListResult, error) {
	s := o.srv
	out := wire.NeedsListResult{TS: time.Now().UnixMilli()}
	st := s.health.now(ctx).status
	out.Needs = faults(&st)
	if st.StoreError == "" {
		for _, read := range []func(context.Context, *rpc.Call) ([]wire.Need, error){o.jobNeeds, o.missedNeeds, o.turnNeeds, o.pairingNeeds, o.questionNeeds} {
			more, err := read(ctx, c)
			out.Needs = append(out.Needs, more...)
			if err != nil { // the fault to report is that the store does not answer
				out.Needs = append(out.Needs, faults(&chat.SystemStatus{StoreError: chat.SentenceOf(err)})...)
				break
			}
		}
	}
	if c.Visible() == "" {
		out.Needs = append(out.Needs, gatewayNeeds(&st)...)
	}
	out.Needs = append(out.Needs, o.agentNeeds()...)
	level := []string{levelError, levelWarning, levelAsk, levelHint}
	slices.SortStableFunc(out.Needs, func(a, b wire.Need) int { return slices.Index(level, a.Level) - slices.Index(level, b.Level) })
	return out, nil
}

// faults returns the faults of the gateway itself. With any of them, the gateway is not healthy.
func faults(st *chat.SystemStatus) []wire.Need {
	needs := []wire.Need{}
	add := func(kind, next, text string) {
		needs = append(needs, wire.Need{Kind: kind, Level: levelError, Text: text, Next: next, Command: commandOfDoctor})
	}
	if st.StoreError != "" {
		add("database", "Restore the database; the gateway then continues by itself.", "database: "+st.StoreError)
	}
	if st.Held != "" {
		add("held", "End the hold when this gateway may work: laneway release.", st.Held)
	}
	if st.DiskLow {
		add("disk", "Free space on the disk of the data directory.", "disk: it has too little free space; new messages are refused until there is more")
	}
	for _, sentence := range st.Stranded {
		add("stranded", "", sentence)
	}
	if st.Progress.StalledFor >= stalledAfter {
		add("stalled", "Restart this gateway if it does not continue within a minute.", fmt.Sprintf("work has been ready for %s and nothing starts", st.Progress.StalledFor.Round(time.Second)))
	}
	if st.Progress.CronAge >= stalledAfter {
		add("cron", "Restart this gateway if it does not continue within a minute.", fmt.Sprintf("the cron loop has not turned for %s", st.Progress.CronAge.Round(time.Second)))
	}
	for _, ch := range st.Channels {
		if ch.Configured && (!ch.Running || ch.State == "conflict") {
			add("channel", "Correct what the error names; the gateway tries again by itself.", "channel "+ch.ID+": "+cmp.Or(ch.LastError, "not running"))
		}
	}
	return needs
}

// gatewayNeeds returns the conditions that need attention although the gateway is healthy.
func gatewayNeeds(st *chat.SystemStatus) (needs []wire.Need) {
	now := time.Now()
	for _, l := range st.Lanes.Lanes {
		if l.OldestWait >= laneWaitsLong {
			needs = append(needs, wire.Need{
				Kind: "lane", Level: levelWarning, Lane: l.Name, SinceMs: now.Add(-l.OldestWait).UnixMilli(),
				Text: fmt.Sprintf("Lane %s: %s, %d of %d slots in use.", l.Name, waiting(l.Waiting), l.Active, l.Capacity),
				Next: "See who holds it, stop what need not run, or raise lanes." + l.Name + ".", Command: "laneway runs --lane " + l.Name,
			})
		}
	}
	if n := st.Lanes.Stuck; n > 0 {
		needs = append(needs, wire.Need{
			Kind: "stopping", Level: levelWarning, Text: fmt.Sprintf("%d stopped %s not ended: the agent does not react.", n, plural(n, "run has", "runs have")),
			Next: "End the program of the agent, or restart the gateway.", Command: "laneway runs --state running",
		})
	}
	for _, ch := range st.Channels {
		if ch.OutboxWaiting > 0 && !ch.OldestWaiting.IsZero() && now.Sub(ch.OldestWaiting) >= waitsLong {
			needs = append(needs, wire.Need{
				Kind: "deliveries", Level: levelError, SinceMs: ch.OldestWaiting.UnixMilli(),
				Text: fmt.Sprintf("Channel %s: %d %s for more than 5 minutes.", ch.ID, ch.OutboxWaiting, plural(ch.OutboxWaiting, "message has waited to be sent", "messages wait to be sent, the first")),
				Next: "Look at the state of the channel.", Command: "laneway status",
			})
		}
	}
	for _, ch := range st.Channels {
		if ch.OutboxFailed > 0 && now.Sub(ch.LastFailed) < needsSince {
			needs = append(needs, wire.Need{
				Kind: "deliveries", Level: levelWarning, SinceMs: ch.LastFailed.UnixMilli(),
				Text: fmt.Sprintf("Channel %s: %d %s given up, the last one within a day.", ch.ID, ch.OutboxFailed, plural(ch.OutboxFailed, "message was", "messages were")),
				Next: "laneway why RUN names the reason of each; the log has it, too.", Command: "laneway runs --state ended",
			})
		}
	}
	for _, n := range st.Gone {
		needs = append(needs, wire.Need{
			Kind: "replica", Level: levelWarning, SinceMs: rpc.Millis(n.Since), Text: "Replica " + n.Name + " ended without a clean stop, and no other has taken its place.",
			Next: "Start it again; its log has the reason.", Command: "laneway status",
		})
	}
	versions := map[string][]string{}
	for _, n := range st.Nodes {
		versions[n.Version] = append(versions[n.Version], n.ID)
	}
	if len(versions) > 1 {
		var parts []string
		for v, nodes := range versions {
			parts = append(parts, v+" ("+strings.Join(nodes, ", ")+")")
		}
		slices.Sort(parts)
		needs = append(needs, wire.Need{
			Kind: "version", Level: levelWarning, Text: "Replicas run different versions: " + strings.Join(parts, ", ") + ".", Next: "Bring all replicas to one version.", Command: "laneway status",
		})
	}
	return needs
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func waiting(sessions int) string {
	return strconv.Itoa(sessions) + " " + plural(sessions, "session waits", "sessions wait")
}

// agentNeeds reports a default agent that only echoes its messages. This is the next step of a new
// installation and not a fault.
func (o overview) agentNeeds() []wire.Need {
	b := o.srv.backend
	for _, a := range b.Agents() {
		if a.ID == b.DefaultAgent() && a.Runner == echoRunner {
			return []wire.Need{{
				Kind: "agent", Level: levelHint, Text: "The default agent is the demo, which repeats messages.",
				Next: "Start laneway with a real agent, for example: laneway serve --agent claude. This lists what you have:", Command: "laneway agents detect",
			}}
		}
	}
	return nil
}

// jobNeeds returns the jobs that fail, were switched off, are invalid, or have unsent answers.
func (o overview) jobNeeds(ctx context.Context, c *rpc.Call) (needs []wire.Need, err error) {
	b := o.srv.cfg.Jobs
	if b == nil {
		return nil, nil
	}
	for _, condition := range []cron.JobCondition{cron.JobsInvalid, cron.JobsFailing, cron.JobsUnsent} {
		need := jobNeed
		if condition == cron.JobsUnsent { // a job that also fails has two entries
			need = unsentNeed
		}
		page, err := b.Jobs(ctx, cron.JobFilter{Condition: condition, SortBy: "failing", Descending: true, Limit: needsEach, WithoutPayload: true}, c.Caller())
		if err != nil {
			return needs, err
		}
		for i := range page.Jobs {
			if n, ok := need(&page.Jobs[i]); ok {
				needs = append(needs, n)
			}
		}
		if more := page.Total - len(page.Jobs); more > 0 {
			text := fmt.Sprintf("%d more %s %s.", more, plural(more, "job is", "jobs are"), condition)
			if page.More {
				text = "More than " + text
			}
			needs = append(needs, wire.Need{
				Kind: "job-" + string(condition), Level: levelError, Text: text,
				Command: "laneway cron list --only " + string(condition),
			})
		}
	}
	return needs, nil
}

// jobNeed returns what is wrong with a job, and false if it needs no attention.
func jobNeed(j *cron.Job) (wire.Need, bool) {
	n := wire.Need{Level: levelError, JobID: j.ID, SinceMs: rpc.Millis(j.State.LastRunAt)}
	name, why := cmp.Or(j.DisplayName, j.Name, j.ID), chat.Cut(chat.Printable(j.State.LastError), 160)
	switch {
	case j.Invalid != "":
		n.Kind, n.SinceMs = "job-invalid", rpc.Millis(j.UpdatedAt)
		n.Text, n.Next, n.Command = "Job "+name+" cannot be understood: "+j.Invalid, "Change it; until then it does not run.", "laneway cron edit "+j.ID
	case j.AutoDisabled:
		n.Kind, n.Text = "job-disabled", fmt.Sprintf("Job %s was switched off after %d failed runs: %s", name, j.State.ConsecutiveErrors, why)
		n.Next, n.Command = "Correct the cause, then switch it on again.", "laneway cron runs "+j.ID
	case j.State.ConsecutiveErrors >= cmp.Or(j.Alert.After, failuresInARow):
		n.Kind, n.Text = "job-failing", fmt.Sprintf("Job %s has failed %d times in a row: %s", name, j.State.ConsecutiveErrors, why)
		n.Next, n.Command = "See why, then run it again.", "laneway cron runs "+j.ID
	default:
		return n, false
	}
	return n, true
}

// unsentNeed returns the need of a job whose answers are held back.
func unsentNeed(j *cron.Job) (wire.Need, bool) {
	p := j.State.DeliveryPause
	return wire.Need{
		Kind: "job-unsent", Level: levelError, JobID: j.ID, SinceMs: rpc.Millis(p.Since),
		Text: fmt.Sprintf("The answers of job %s are kept and not sent: %s accepts no messages (%s).", cmp.Or(j.DisplayName, j.Name, j.ID), p.Where(), chat.Cut(chat.Printable(p.Reason), 160)),
		Next: "Give it another destination, or resume it when the chat takes messages again.", Command: "laneway cron resume " + j.ID,
	}, !p.Since.IsZero()
}

// missedNeeds returns the jobs with missed slots, the latest first.
func (o overview) missedNeeds(ctx context.Context, c *rpc.Call) (needs []wire.Need, err error) {
	b := o.srv.cfg.Jobs
	if b == nil {
		return nil, nil
	}
	page, err := b.Ledger(ctx, cron.RunFilter{States: []cron.RunState{cron.RunMissed}, Since: time.Now().Add(-needsSince), Limit: 10 * needsEach}, c.Caller())
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	slots := map[string]int64{}
	for i := range page.Runs {
		r := &page.Runs[i]
		slots[r.JobID] += max(r.SlotCount, 1)
		if _, there := at[r.JobID]; !there && len(needs) < needsEach {
			at[r.JobID] = len(needs)
			needs = append(needs, wire.Need{
				Kind: "missed", Level: levelWarning, JobID: r.JobID, SinceMs: rpc.Millis(r.ScheduledFor), Text: cmp.Or(r.JobName, r.JobID),
				Next: "Ask why; run the slots that matter with a backfill.", Command: "laneway cron why " + r.JobID,
			})
		}
	}
	for job, i := range at {
		n := int(slots[job])
		needs[i].Text = fmt.Sprintf("Job %s missed %d %s in the last 24 hours.", needs[i].Text, n, plural(n, "slot", "slots"))
	}
	return needs, nil
}

// turnNeeds returns the messages that were given up, and those that have waited for long.
func (o overview) turnNeeds(ctx context.Context, c *rpc.Call) (needs []wire.Need, err error) {
	now := time.Now()
	dead, _, err := o.srv.backend.Turns(ctx, store.TurnFilter{Which: store.TurnsEnded, Outcome: chat.OutcomeDead, Since: now.Add(-needsSince), Visible: c.Visible(), Limit: needsEach})
	if err != nil {
		return nil, err
	}
	for i := range dead {
		t := &dead[i]
		needs = append(needs, wire.Need{
			Kind: "dead", Level: levelError, RunID: t.ID, SessionKey: t.Session.String(), SinceMs: rpc.Millis(t.EndedAt),
			Text: fmt.Sprintf("A message in %s was given up: %s", t.Session, cmp.Or(t.Error, t.Reason, "its attempts are used up")),
			Next: "Read the reason, then send it again.", Command: "laneway runs " + t.ID,
		})
	}
	late, waits, err := o.srv.backend.Turns(ctx, store.TurnFilter{Which: store.TurnsWaiting, Before: now.Add(-waitsLong), Visible: c.Visible(), Limit: needsEach})
	if err != nil {
		return nil, err
	}
	for i := range late {
		t := &late[i]
		needs = append(needs, wire.Need{
			Kind: "session", Level: levelWarning, RunID: t.ID, SessionKey: t.Session.String(), SinceMs: rpc.Millis(t.AcceptedAt),
			Text: fmt.Sprintf("A message in %s waits for %s.", t.Session, waits[t.ID].Text()), Next: "Stop what it waits for, or leave it.", Command: "laneway runs " + t.ID,
		})
	}
	return needs, nil
}

// pairingNeeds returns the open pairing requests, for callers who may decide about them.
func (o overview) pairingNeeds(ctx context.Context, c *rpc.Call) (needs []wire.Need, err error) {
	b := o.srv.cfg.Pairings
	if b == nil || !c.Cred.Administers(c.Scopes) {
		return nil, nil
	}
	open, err := b.OpenPairings(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, p := range open[:min(len(open), needsEach)] {
		kind, _, _ := strings.Cut(p.Channel, ":")
		needs = append(needs, wire.Need{
			Kind: "pairing", Level: levelAsk, RequestID: p.ID, SinceMs: rpc.Millis(p.CreatedAt),
			Text: fmt.Sprintf("%s (%s %d) asks to talk to the agent.", cmp.Or(p.Name, "A person"), kind, p.UserID), Next: "Let the person in, or refuse.", Command: "laneway pair approve " + p.ID,
		})
	}
	return needs, nil
}

// questionNeeds returns the questions that wait for an answer of the caller.
func (o overview) questionNeeds(ctx context.Context, c *rpc.Call) (needs []wire.Need, err error) {
	open, err := o.srv.backend.OpenQuestions(ctx, c.Principal(), needsEach)
	for _, q := range open {
		needs = append(needs, wire.Need{
			Kind: "question", Level: levelAsk, QuestionID: q.ID, RunID: q.RunID, SessionKey: q.Session.String(), SinceMs: rpc.Millis(q.AskedAt),
			Text: fmt.Sprintf("The agent %s asks before it does this: %s", q.Agent, chat.Cut(cmp.Or(q.Act, q.Text), 160)), Next: "Answer it.", Command: "laneway questions",
		})
	}
	return needs, err
}
