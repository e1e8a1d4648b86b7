package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/tool"
	"laneway/internal/usage"
)

// journal has the tool calls of a turn's model and their results, in memory and in the store. They
// are recorded on the goroutine of the turn. The end of a turn that does not return is written on
// another goroutine.
type journal struct {
	parts *parts
	claim store.Claim
	runID string
	// before is how many rounds earlier attempts have recorded. again reports that there was an
	// earlier attempt, which may have recorded some.
	before int
	again  bool

	usage *usage.Turn
	// estimate returns how many tokens the turn has sent to its model before the rounds; nil = only
	// the usage that the runner reports is known.
	estimate func() int

	mu     sync.Mutex
	rounds []store.Round
	texts  []store.Waiting // the messages of the turn, including those that joined in this attempt
	mark   outsideMark
}

// outsideMark reports that the agent of a turn has read text from outside by its own tools. It is
// set in memory at once and then written to the run, so that a later attempt has it. The tools of
// the gateway wait for the write.
type outsideMark struct {
	set     bool
	written chan struct{} // closed when the write has ended; nil when the run had the mark before
	err     error
}

var _ agent.Journal = (*turnJournal)(nil)

// turnJournal implements the journal for the runner, with the messages that joined earlier
// attempts.
type turnJournal struct {
	*journal

	inputs map[int64]chat.Content // by sequence number of the message
}

// openJournal reads the records of earlier attempts of the run.
func (ts *turns) openJournal(ctx context.Context, t *turn) error {
	if !t.journal.again {
		return nil
	}
	return ts.node.WhileAlive(ctx, func(ctx context.Context) error {
		rounds, err := ts.store.Rounds(ctx, t.run.RunID)
		if err != nil {
			return fmt.Errorf("reading the rounds of a run: %w", err)
		}
		t.journal.mu.Lock()
		defer t.journal.mu.Unlock()
		t.journal.rounds, t.journal.before = rounds, len(rounds)
		for _, r := range rounds {
			t.usage.Before(r.Usage)
		}
		return nil
	})
}

// split separates the messages with which a turn started from those that joined it after a round.
func (j *journal) split(rows []store.Waiting) (began []store.Waiting, inputs map[int64]chat.Content) {
	j.mu.Lock()
	defer j.mu.Unlock()
	inputs = map[int64]chat.Content{}
	for _, row := range rows {
		if slices.ContainsFunc(j.rounds, func(r store.Round) bool { return slices.Contains(r.Input, row.Seq) }) {
			inputs[row.Seq] = row.Content
		} else {
			began = append(began, row)
		}
	}
	return began, inputs
}

// last returns the number of the last round, or 0.
func (j *journal) last() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.rounds)
}

// add adds messages of the turn, only those in seqs.
func (j *journal) add(texts []store.Waiting, seqs []int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, text := range texts {
		if slices.Contains(seqs, text.Seq) {
			j.texts = append(j.texts, text)
		}
	}
}

// messages returns the messages of the turn so far.
func (j *journal) messages() []store.Waiting {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.texts)
}

// size returns the total size in bytes of the calls and the results.
func (j *journal) size() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.rounds {
		for i, call := range r.Calls {
			n += len(call.Args)
			if r.Results[i] != nil {
				n += len(r.Results[i].Text)
			}
		}
	}
	return n
}

// readOutside sets the mark and writes it. It does not wait.
func (j *journal) readOutside(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mark.set {
		return
	}
	written := make(chan struct{})
	j.mark = outsideMark{set: true, written: written}
	j.parts.background.Go(func() {
		err := j.parts.node.WhileAlive(ctx, func(ctx context.Context) error { return j.parts.store.RecordOutside(ctx, j.claim, j.runID) })
		j.mu.Lock()
		j.mark.err = err
		j.mu.Unlock()
		close(written)
	})
}

// awaitMark waits until the mark is written, if it is set.
func (j *journal) awaitMark(ctx context.Context) error {
	j.mu.Lock()
	written := j.mark.written
	j.mu.Unlock()
	if written == nil {
		return nil
	}
	select {
	case <-written:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mark.err
}

// marked reports whether the agent has read text from outside by its own tools.
func (j *journal) marked() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mark.set
}

// foreign reports whether the agent has read text from outside, by its own tools or in a result.
func (j *journal) foreign() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mark.set || slices.ContainsFunc(j.rounds, func(r store.Round) bool {
		return slices.ContainsFunc(r.Results, func(result *chat.ToolResult) bool { return result != nil && result.Foreign })
	})
}

// sent reports whether the agent has sent a message into its own conversation by a call.
func (j *journal) sent() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.rounds {
		for i, call := range r.Calls {
			if r.Results[i] != nil && !r.Results[i].IsError && tool.Sends(call) {
				return true
			}
		}
	}
	return false
}

// used reports whether rows of the run may be in the store.
func (j *journal) used() bool { return j != nil && (j.again || j.last() > 0) }

// Rounds implements [agent.Journal].
func (j *turnJournal) Rounds() []agent.Round {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []agent.Round
	for _, r := range j.rounds[:j.before] {
		one := agent.Round{Round: r.Round}
		for _, seq := range r.Input {
			if content, ok := j.inputs[seq]; ok {
				one.Input = append(one.Input, content)
			}
		}
		out = append(out, one)
	}
	return out
}

// Record implements [agent.Journal]. The usage of the round is committed before it.
func (j *turnJournal) Record(ctx context.Context, round chat.Round) error {
	round.Usage = j.counted(round)
	j.usage.Count(round.Usage)
	if err := j.settle(ctx); err != nil {
		return fmt.Errorf("counting a round: %w", err)
	}
	row, err := store.AskedRow(round)
	if err == nil {
		err = j.record(ctx, row)
	}
	if err != nil {
		return fmt.Errorf("recording a round: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	round.Results = make([]*chat.ToolResult, len(round.Calls)) // the runner continues to write to its own slice
	j.rounds = append(j.rounds, store.Round{Round: round})
	return nil
}

// RecordResult implements [agent.Journal].
func (j *turnJournal) RecordResult(ctx context.Context, round, call int, result chat.ToolResult) error {
	row, err := store.ResultRow(store.CallRef{Round: round, Call: call}, result)
	if err == nil {
		err = j.record(ctx, row)
	}
	if err != nil {
		return fmt.Errorf("recording the result of a call: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rounds[round-1].Results[call] = &result
	return nil
}

func (j *turnJournal) record(ctx context.Context, row store.JournalRow) error {
	return j.parts.node.WhileAlive(ctx, func(ctx context.Context) error { return j.parts.store.Record(ctx, j.claim, j.runID, row) })
}

// shownOfCall is how many bytes of the arguments and of the result of a call its transcript entry
// contains.
const shownOfCall = 500

// entries returns the calls of a turn as transcript entries, one note for each, for later turns.
// The result of a tool is shortened to one line, because it has no authority there.
func (j *journal) entries() []chat.TranscriptEntry {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var entries []chat.TranscriptEntry
	for _, r := range j.rounds {
		for i, call := range r.Calls {
			text, stop := callNote(call, r.Results[i]), chat.StopTool
			if r.Results[i] != nil && r.Results[i].Foreign {
				stop = chat.StopForeign
			}
			entries = append(entries, chat.TranscriptEntry{RunID: j.runID, Role: chat.RoleSystem, Text: text, Tokens: agent.EstimateTokens(text), StopReason: stop, Outside: stop == chat.StopForeign})
		}
	}
	return entries
}

// callNote describes a call in one line; result may be nil.
func callNote(call chat.ToolCall, result *chat.ToolResult) string {
	end := "it was not finished"
	if result != nil {
		end = oneLine(result.Text)
		if result.IsError {
			end = "refused: " + end
		}
	}
	return "Tool " + oneLine(call.Name) + " " + oneLine(call.Args) + ": " + end
}

func oneLine(text string) string {
	return chat.Cut(chat.Printable(strings.Join(strings.Fields(text), " ")), shownOfCall)
}
