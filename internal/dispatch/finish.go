package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron/service"
	"laneway/internal/events"
	"laneway/internal/files"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

var (
	errDead        = errors.New("the turn ended its process three times")
	errInterrupted = errors.New("the turn must not run a second time")
)

// ending is how a turn ended: what is written and what is published.
type ending struct {
	outcome chat.Outcome
	state   string // of the run row
	reason  string // closed set: a chat.FailReason or stop, stopall, superseded, draining, …
	message string // for a person; "" when answered
	detail  string // the message of the agent's service, for administrators
	text    string // the answer, or its text before the end
	lines   string // the last lines of text, which represent the files
	files   []chat.Attachment
	empty   string          // for a person when the answer has no text; "" = it has text, or nothing is shown
	stop    string          // stop reason of the transcript entry
	silent  bool            // the agent has nothing to report, which nobody is shown
	calls   []chat.ToolCall // of tools of the program that sent the message
	usage   chat.Usage
	asked   chat.Asked
	requeue bool // the messages wait again
	nothing bool // nothing may be written: another replica owns the session
}

func (e *ending) fail(outcome chat.Outcome, state, reason, message string) {
	e.outcome, e.state, e.reason, e.message, e.stop = outcome, state, reason, message, "error"
}

// sentence returns what a person reads in place of an answer; "" = there is an answer, or nothing
// is shown.
func (e *ending) sentence() string { return cmp.Or(e.message, e.empty) }

// notedText is how many bytes of a message its note repeats, to distinguish it from others that ran
// concurrently.
const notedText = 80

// notedReason is how many bytes of the reason of a failure its note contains.
const notedReason = 500

// noteEmpty sets a sentence for an answer without text and files, unless the agent has sent
// something to the person itself, or no person wrote the message. For programs, the answer stays
// empty.
func (t *turn) noteEmpty(end *ending) {
	if end.outcome == chat.OutcomeAnswered && strings.TrimSpace(end.text) == "" && len(end.calls) == 0 && !t.rows[len(t.rows)-1].Content.System && !t.journal.sent() {
		end.empty = chat.EmptyAnswer(end.stop)
	}
}

// endNote returns a note for readers of the transcript, above all the agent of the next turn, that
// a message has no complete answer. Without it, the next prompt would contain the message as if it
// were still unanswered, and a failed message that is sent again would appear twice. The note of a
// failure has its reason, because the person finds it nowhere else later. "" = no note is needed.
func endNote(lead store.Waiting, outcome chat.Outcome, reason string) string {
	what := strconv.Quote(chat.Cut(chat.Printable(lead.Content.Text), notedText))
	switch outcome {
	case chat.OutcomeStopped:
		return "Stopped before its answer was complete, and not to be carried out: " + what
	case chat.OutcomeSuperseded:
		return "Interrupted by a newer message before its answer was complete: " + what
	case chat.OutcomeFailed, chat.OutcomeDead, chat.OutcomeInterrupted:
		return joinNonEmpty("\n", "Failed before its answer was complete: "+what, chat.Cut(chat.Printable(reason), notedReason))
	default:
		return ""
	}
}

// outgoing returns what is sent to the person's channel: the answer, or the notice that there is no
// answer.
func outgoing(lead store.Waiting, runID string, end ending) []store.Outgoing {
	to := lead.Content.Options.ReplyTo
	if to.IsZero() {
		return nil
	}
	if end.outcome == chat.OutcomeAnswered && (end.text != "" || end.empty != "") {
		return replies(lead, runID, end)
	}
	n := notice(lead, end.outcome, end.reason, end.message)
	if n == nil {
		return nil
	}
	n.RunID, n.N = runID, 1
	n.ExpiresAt = time.Now().Add(noticeLife)
	return []store.Outgoing{*n}
}

// originate sets the origin of the rows of an answer that goes to another conversation. For a run
// of a job, its end replaces it.
func originate(rows []store.Outgoing, lead store.Waiting, outside bool) {
	if len(rows) == 0 || chat.ConversationOf(lead.Session, rows[0].Target, lead.Principal) == lead.Session {
		return
	}
	for i := range rows {
		rows[i].Origin = &chat.Origin{Kind: chat.OriginAnswer, Run: rows[i].RunID, By: lead.Session.String(), Outside: outside}
	}
}

func (t *turn) endEvent(end ending, fin store.Finished) chat.Event {
	kind := endKind(end.outcome)
	e := t.run.Event(kind)
	e.Text, e.Reason, e.Message, e.Detail, e.Usage = end.shown(), end.reason, end.sentence(), end.detail, end.usage
	switch kind {
	case chat.EventFinal:
		e.Reason = end.stop
	case chat.EventAborted:
		e.Reason = abortReason(end.reason)
	default: // a failure has the reason of its ending
	}
	for _, entry := range fin.Entries {
		if entry.Role == chat.RoleAssistant {
			e.EntrySeq = entry.Seq
		}
	}
	return e
}

// judge determines how a turn ended from the agent's result and the cause of its context.
func (ts *turns) judge(ctx context.Context, t *turn, res agent.Result, err error) ending {
	end := ending{usage: res.Usage, asked: res.Asked}
	var (
		cause  *scheduler.CancelCause
		failed *agent.Error
		app    *chat.Error
	)
	switch {
	case err == nil:
		end.outcome, end.state, end.stop = chat.OutcomeAnswered, store.RunOK, "stop"
		end.text, end.calls = chat.CleanText(res.Text), res.Calls
		if res.StopReason != "" {
			end.stop = res.StopReason
		}
		return end
	case errors.As(err, &cause):
		ts.judgeCancelled(t, cause, &end)
	case errors.Is(err, errDead):
		end.fail(chat.OutcomeDead, store.RunDead, string(chat.FailDead), sentence(chat.OutcomeDead, ""))
	case errors.Is(err, errInterrupted):
		end.fail(chat.OutcomeInterrupted, store.RunInterrupted, "crashed", sentence(chat.OutcomeInterrupted, ""))
	case errors.Is(err, errNoAgent):
		end.fail(chat.OutcomeFailed, store.RunFailed, string(chat.FailUnknownAgent), fmt.Sprintf("no running gateway has the agent %q; the operator can start one that has it in its configuration", t.run.Session.Agent))
	case errors.Is(err, errTurnTimeout):
		end.fail(chat.OutcomeFailed, store.RunFailed, string(chat.FailTimeout), "the answer took too long and was ended; try again or ask for less")
	case errors.As(err, &failed):
		end.fail(chat.OutcomeFailed, store.RunFailed, string(failed.Reason), failed.Message)
		end.detail = chat.CleanText(failed.Detail)
	case errors.As(err, &app):
		end.fail(chat.OutcomeFailed, store.RunFailed, string(chat.FailUnknown), app.Message)
	case ctx.Err() != nil:
		end.fail(chat.OutcomeInterrupted, store.RunInterrupted, "draining", sentence(chat.OutcomeInterrupted, ""))
		end.requeue = !ts.atMostOnce(t)
	default:
		end.fail(chat.OutcomeFailed, store.RunFailed, string(chat.FailUnknown), "the agent failed; try again")
	}
	if end.outcome == chat.OutcomeFailed {
		ts.log.WarnContext(ctx, "turn failed", "session", t.run.Session.String(), "run_id", t.run.RunID, "reason", end.reason, "attempt", t.started.Attempt, "err", err)
	}
	return end
}

func (ts *turns) judgeCancelled(t *turn, cause *scheduler.CancelCause, end *ending) {
	switch cause.Reason {
	case scheduler.ReasonStopped:
		why := store.StopReason(cause.By)
		end.fail(chat.OutcomeStopped, store.RunStopped, why, "stopped")
		end.stop = "stopped"
	case scheduler.ReasonSuperseded:
		end.fail(chat.OutcomeSuperseded, store.RunStopped, "superseded", sentence(chat.OutcomeSuperseded, ""))
		end.stop = "superseded"
	case scheduler.ReasonLeaseLost, scheduler.ReasonReset:
		end.fail(chat.OutcomeInterrupted, store.RunInterrupted, "lease_lost", sentence(chat.OutcomeInterrupted, ""))
		end.nothing = cause.Reason == scheduler.ReasonLeaseLost
		end.requeue = !ts.atMostOnce(t)
	default:
		end.fail(chat.OutcomeInterrupted, store.RunInterrupted, "draining", sentence(chat.OutcomeInterrupted, ""))
		end.requeue = !ts.atMostOnce(t)
	}
}

// finish writes the end of a turn and publishes it. It is called on the turn's goroutine after the
// agent has returned.
func (ts *turns) finish(ctx context.Context, t *turn, end ending) {
	text, mine := t.run.Close()
	if !mine { // stuck has written the outcome while the agent did not return; only the end of the goroutine is left to write
		ts.endStopping(ctx, t)
		return
	}
	if end.nothing {
		ts.counters.fenced("finish")
		ts.signs.endPreview(t.rows[len(t.rows)-1].Content.Options.ReplyTo, t.run.RunID, nil)
		return
	}
	if end.outcome != chat.OutcomeAnswered {
		end.text = text
	}
	ts.writeFinish(ctx, t, end, false)
}

// stuck is called by the scheduler when a cancelled turn has not returned within the grace period.
// It writes the outcome, and later output is discarded. The turn keeps its slot and its place in
// the session.
func (ts *turns) stuck(st *scheduler.Turn) {
	t, ok := ts.running.get(st)
	cause := st.Cause()
	if !ok || cause == nil {
		return
	}
	run := t.run
	t.attempt = ts.attemptOf(t.rows[len(t.rows)-1])
	var end ending
	ts.judgeCancelled(t, cause, &end)
	text, mine := run.Close()
	if !mine || end.nothing {
		return
	}
	end.text = text
	ts.log.Warn("a stopped turn has not returned; it is finished without it", "session", run.Session.String(), "run_id", run.RunID, "reason", end.reason)
	if !ts.writeFinish(context.Background(), t, end, true) { //nolint:forbidigo // the turn's own context is done, and there is no other
		run.Reopen()
	}
}

// writeFinish is the transaction that ends a turn.
func (ts *turns) writeFinish(ctx context.Context, t *turn, end ending, stillRunning bool) bool {
	lead := t.rows[len(t.rows)-1]
	how := end.ofAttempt(false)
	end.silent = end.outcome == chat.OutcomeAnswered && t.attempt.Unattended() && how.Suppressed() == service.NothingToReport
	p := store.FinishParams{
		Claim: t.claim, RunID: t.run.RunID, State: end.state, Outcome: end.outcome, Cause: end.reason, Error: chat.Cut(end.message, 2000), Detail: chat.Cut(end.detail, 2000),
		Usage: end.usage, Asked: end.asked, Requeue: end.requeue, StillRunning: stillRunning && !end.requeue, Preview: chat.Cut(end.shown(), 200), Journal: t.journal.used(), Outside: t.journal.marked() || t.agent.Outside.Answers && !end.requeue,
	}
	if !end.requeue {
		p.Transcript = ts.answer(t, end)
		p.Outgoing = outgoing(lead, t.run.RunID, end)
		originate(p.Outgoing, lead, t.readOutside())
		ts.spending.onceADay(t, p.Outgoing)
	}
	ts.signs.closePreview(ctx, t, p.Outgoing) // when the end is committed, any process may send the answer or run the turn again
	publish := t.attempt.End(ctx, t.ofAttempt(), end.ofAttempt(t.readOutside()), &p)
	var fin store.Finished
	err := ts.node.Final(ctx, "finishing a turn", func(ctx context.Context) (err error) {
		asked := time.Now()
		fin, err = ts.store.Finish(ctx, p)
		ts.counters.stored("finish", time.Since(asked))
		return err
	})
	if err != nil { // the process that ends the turn shows it again
		ts.signs.endPreview(lead.Content.Options.ReplyTo, t.run.RunID, nil)
	}
	switch {
	case errors.Is(err, chat.ErrFenced):
		ts.counters.fenced("finish")
		ts.log.InfoContext(ctx, "a turn's end was refused: the session belongs to another replica", "session", lead.Session.String(), "run_id", t.run.RunID)
		return false
	case err != nil:
		ts.log.ErrorContext(ctx, "a turn's end could not be written; it will run again", "session", lead.Session.String(), "run_id", t.run.RunID, "err", err)
		return false
	}
	if !p.Requeue && !p.StillRunning && !fin.EndedAt.IsZero() {
		ts.node.Acknowledged(t.run.RunID, fin.EndedAt)
	}
	ts.publishEnd(ctx, t, end, fin, p.Outgoing)
	publish(fin.EndedAt)
	return true
}

// answer returns the transcript entries of an end: the text, followed by a note for a turn that was
// stopped or failed.
func (ts *turns) answer(t *turn, end ending) []chat.TranscriptEntry {
	entries := t.journal.entries()
	if end.silent {
		entries = append(entries, chat.TranscriptEntry{RunID: t.run.RunID, Role: chat.RoleAssistant, Tokens: agent.EstimateTokens(chat.NoReply), StopReason: chat.StopSilent})
	}
	if end.shown() != "" {
		tokens := end.usage.OutputTokens
		if tokens == 0 {
			tokens = agent.EstimateTokens(end.text)
		}
		entries = append(entries, chat.TranscriptEntry{RunID: t.run.RunID, Role: chat.RoleAssistant, Text: end.shown(), Tokens: tokens, StopReason: end.stop, Outside: t.readOutside()})
	}
	if note := cmp.Or(end.empty, endNote(t.rows[len(t.rows)-1], end.outcome, end.message)); note != "" {
		entries = append(entries, chat.TranscriptEntry{RunID: t.run.RunID, Role: chat.RoleSystem, Text: note, Tokens: agent.EstimateTokens(note), StopReason: end.stop})
	}
	if len(end.calls) > 0 {
		text := callsText(end.calls)
		entries = append(entries, chat.TranscriptEntry{RunID: t.run.RunID, Role: chat.RoleSystem, Text: text, Tokens: agent.EstimateTokens(text), StopReason: chat.StopCalls})
	}
	return entries
}

// callsText returns calls as the text of their entry. A program that repeats its request gets them
// from there, with what it has to bring back.
func callsText(calls []chat.ToolCall) string {
	raw, err := json.Marshal(calls)
	if err != nil { // strings cannot fail
		return "[]"
	}
	return string(raw)
}

// shown is the text that people see: nothing of the sign that an agent has nothing to report.
func (e *ending) shown() string {
	if e.silent {
		return strings.TrimLeft(e.lines, "\n")
	}
	return e.text
}

// readOutside reports whether a turn received text from outside, which its answer may repeat.
func (t *turn) readOutside() bool {
	return t.outside || t.journal.foreign() || slices.ContainsFunc(t.rows, fromOutside)
}

// publishEnd publishes a committed end with its replies.
func (ts *turns) publishEnd(ctx context.Context, t *turn, end ending, fin store.Finished, replies []store.Outgoing) {
	ts.outbox.Wake()
	lead := t.rows[len(t.rows)-1]
	ts.signs.endPreview(lead.Content.Options.ReplyTo, t.run.RunID, replies)
	if end.requeue {
		ts.node.SweepNow()
		return
	}
	ts.compactions.ended(t, end)
	ts.compactLater(ctx, t, fin)
	for _, m := range fin.Merged {
		ts.events.Publish(chat.Event{Kind: chat.EventFinal, Session: m.Session, Principal: t.run.Principal, RunID: m.MessageID, Seq: events.FirstOfTurn, Lane: t.run.Lane, MergedInto: t.run.RunID, Reason: "merged"})
		ts.counters.ended(t.run.Lane, chat.OutcomeMerged, "")
		ts.events.Ended(chat.RunEnd{RunID: m.MessageID, Session: m.Session, Outcome: chat.OutcomeMerged, MergedInto: t.run.RunID, Message: end.empty, Text: end.shown(), StopReason: end.stop, Usage: end.usage})
	}
	if end.outcome != chat.OutcomeAnswered {
		for _, r := range t.rows[:len(t.rows)-1] {
			ts.queue.publishEnded(ctx, r, end.outcome, end.reason)
		}
	}
	ts.events.Publish(t.endEvent(end, fin))
	ts.events.PublishSession(lead.Session, t.run.Principal, "run.finished", t.run.RunID)
	ts.counters.ended(t.run.Lane, end.outcome, end.reason)
	ended := chat.RunEnd{
		RunID: lead.MessageID, Session: lead.Session, Outcome: end.outcome, Reason: end.reason, Message: end.sentence(), Detail: end.detail, Text: end.shown(), StopReason: end.stop, Calls: end.calls,
		Usage: end.usage, Duration: fin.EndedAt.Sub(t.started.StartedAt), Waited: t.started.StartedAt.Sub(lead.AcceptedAt),
		Foreign: t.journal.foreign() || t.agent.Outside.Answers,
	}
	ts.events.Ended(ended)
	ts.trees.MessageEnded(lead, ended)
	ts.trees.parentEnded(ctx, t, end)
}

// endStopping records that a turn whose end was written earlier has returned.
func (ts *turns) endStopping(ctx context.Context, t *turn) {
	err := ts.node.Final(ctx, "ending a stopped turn", func(ctx context.Context) error {
		return ts.store.EndStopping(ctx, t.claim, t.run.RunID)
	})
	if err != nil && !errors.Is(err, chat.ErrFenced) {
		ts.log.ErrorContext(ctx, "a stopped turn stays stopping until its lease ends", "run_id", t.run.RunID, "err", err)
	}
}

// firstFile is the number of the first file among the outgoing rows of a run: the text is 0, a
// notice 1.
const firstFile = 2

// paragraphs appends a paragraph to an answer.
func paragraphs(text, more string) string {
	switch {
	case more == "":
		return text
	case strings.TrimSpace(text) == "":
		return text + more
	case strings.HasSuffix(text, "\n"):
		return text + "\n" + more
	}
	return text + "\n\n" + more
}

// reply returns the text without the lines that represent files.
func (e *ending) reply() string { return strings.TrimSuffix(e.text, e.lines) }

// replies returns the rows of an answer: its text, then each file in its own row, so that a process
// that ends in between repeats at most one.
func replies(lead store.Waiting, runID string, end ending) []store.Outgoing {
	row := store.Outgoing{ID: newID(), RunID: runID, Session: lead.Session, Principal: lead.Principal, Target: lead.Content.Options.ReplyTo, Kind: store.KindReply, Text: cmp.Or(end.empty, end.reply()), Count: 1}
	var rows []store.Outgoing
	if strings.TrimSpace(row.Text) != "" || len(end.files) == 0 {
		rows = append(rows, row)
	}
	for i, f := range end.files {
		row.ID, row.N, row.Text, row.File = newID(), firstFile+i, f.Line(), &f
		rows = append(rows, row)
	}
	return rows
}

// outputs are the files that agents make in their turns.
type outputs struct {
	dir  *files.Dir // nil = agents can send only text
	kept int64      // bytes of files that are kept for one principal
	log  *slog.Logger
}

// of returns a function that creates the directory for the files of a turn on demand.
func (o *outputs) of(t *turn) func() (string, error) {
	if o.dir == nil {
		return nil
	}
	return func() (string, error) {
		t.outputMu.Lock()
		defer t.outputMu.Unlock()
		if err := o.open(t); err != nil {
			return "", err
		}
		return t.output.Path(), nil
	}
}

// open creates the directory of a turn unless it exists. The caller holds its lock.
func (o *outputs) open(t *turn) error {
	if t.output != nil {
		return nil
	}
	made, err := o.dir.NewTurn()
	t.output = made
	return err
}

// end removes the directory of a turn that has returned.
func (o *outputs) end(ctx context.Context, t *turn) {
	t.outputMu.Lock()
	defer t.outputMu.Unlock()
	t.outputEnded = true
	if t.output == nil {
		return
	}
	if err := t.output.Remove(); err != nil {
		o.log.WarnContext(ctx, "the directory for the files of a turn stays until the next clean-up", "run_id", t.run.RunID, "err", err)
	}
}

// take stores the files of an answer before the answer is committed: a file is on the disk
// when the row that names it is written. It appends to the text a sentence about omitted files, and
// one line for each file for readers of plain text, such as later turns.
func (o *outputs) take(ctx context.Context, t *turn, end *ending, made []chat.Attachment) {
	t.outputMu.Lock()
	defer t.outputMu.Unlock()
	if end.outcome != chat.OutcomeAnswered || len(made) == 0 || t.output == nil {
		return
	}
	before := end.text
	taken, left, err := t.output.Take(made)
	if err != nil {
		o.log.ErrorContext(ctx, "the files of an answer could not be kept", "run_id", t.run.RunID, "err", err)
		taken, left = nil, "laneway could not save the files of this answer; its log says why."
	}
	if t.rows[len(t.rows)-1].Content.Options.ReplyTo.IsZero() { // no channel sends the files: clients fetch them
		taken, left = o.keep(ctx, t, taken, left)
	} else {
		end.files = taken
	}
	end.text = paragraphs(end.text, left)
	reply := end.text
	lines := make([]string, 0, len(taken))
	for _, f := range taken {
		lines = append(lines, f.Line())
	}
	end.text = paragraphs(reply, strings.Join(lines, "\n"))
	end.lines = strings.TrimPrefix(end.text, reply)
	t.run.Grow(strings.TrimPrefix(end.text, before)) // subscribers see the text of the transcript; a preview in a chat shows no lines for files
}

// keep keeps the files of an answer for the owner of the session. A turn that is repeated
// after a crash makes them again; retention removes the first ones.
func (o *outputs) keep(ctx context.Context, t *turn, taken []chat.Attachment, left string) ([]chat.Attachment, string) {
	kept := make([]chat.Attachment, 0, len(taken))
	for _, f := range taken {
		k, err := o.dir.Keep(t.started.Principal, f, o.kept)
		if err != nil {
			o.log.ErrorContext(ctx, "a file of an answer could not be kept", "run_id", t.run.RunID, "err", err)
		}
		if k.ID == "" {
			left = "laneway could not save the files of this answer; its log says why."
			o.drop(ctx, t, []chat.Attachment{f})
			continue
		}
		kept = append(kept, k)
	}
	return kept, left
}

// drop deletes files of an answer that nothing names.
func (o *outputs) drop(ctx context.Context, t *turn, taken []chat.Attachment) {
	if err := o.dir.Drop(taken); err != nil {
		o.log.WarnContext(ctx, "files of an answer remain until retention removes them", "run_id", t.run.RunID, "err", err)
	}
}
