package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/tool"
)

// A conversation that fills three quarters of its agent's window is compacted: its agent summarises
// the older part. That turn runs in a separate session, so that no message of a person waits for
// it, and its message is durable. The summary is an entry of the conversation that covers a range
// of entries and is added once. After a crash, the repeated turn finds the summary and ends. A
// message that arrives meanwhile is answered with the part of the conversation that fits.

const (
	// compactChannel is the channel of the messages of compactions.
	compactChannel = "compact"
	// leastRoom is the minimum room for conversation in a window, in tokens, that makes a summary
	// worth a request.
	leastRoom = 512
	// mostSummary is the maximum length of a summary, in tokens.
	mostSummary = 2048
)

// The parameters of the message of a compaction.
const (
	paramSession    = "session"
	paramTranscript = "transcript"
	paramAll        = "all" // by hand: summarise as much as possible
)

// compaction is the attempt of a turn that compacts a conversation.
type compaction struct {
	plain

	session    chat.SessionKey
	transcript string
	all        bool
}

var _ attempt = compaction{}

// Unattended implements [attempt].
func (compaction) Unattended() bool { return true }

// Isolated implements [attempt].
func (compaction) Isolated() bool { return true }

// compactionOf parses the message of a compaction.
func compactionOf(lead store.Waiting) compaction {
	text := func(name string) string {
		value, _ := lead.Content.Options.Params[name].(string) // another type counts as absent
		return value
	}
	c := compaction{transcript: text(paramTranscript), all: text(paramAll) != ""}
	c.session, _ = chat.ParseSessionKey(text(paramSession), lead.Session.Agent) // compact refuses a session without a name
	return c
}

// compactLater starts a compaction when the conversation of a turn that has ended fills three
// quarters of the window.
func (ts *turns) compactLater(ctx context.Context, t *turn, fin store.Finished) {
	lead := t.rows[len(t.rows)-1]
	if !t.agent.Compacts || t.attempt.Isolated() || t.past.room == 0 {
		return
	}
	if n := len(fin.Entries); n > 0 && t.past.real > 0 {
		ts.compactions.note(lead.Session, counted{t.started.SessionID, fin.Entries[n-1].Seq, t.past.real})
	}
	if !t.past.full() {
		return
	}
	message := compactMessage(lead.Session, t.started.SessionID, t.run.Principal)
	if !ts.compactions.begin(t.started.SessionID, time.Now()) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	ts.background.Go(func() {
		if err := ts.accept(ctx, message); err != nil {
			ts.compactions.end(t.started.SessionID, false, time.Now())
			ts.log.WarnContext(ctx, "a conversation is not compacted now; its next turn tries again", "session", lead.Session.String(), "err", err)
		}
	})
}

// compactMessage returns the message that requests a compaction.
func compactMessage(key chat.SessionKey, transcript, principal string) chat.Message {
	return chat.Message{
		Session: chat.CompactionKey(key.Agent, transcript), ID: newID(), Lane: scheduler.LaneMain,
		Principal: principal, Channel: compactChannel, Content: chat.Content{
			Text: "Summarise the older part of " + key.String(), System: true,
			Options: chat.Options{NoMerge: true, Mode: chat.ModeQueue, Params: map[string]any{paramSession: key.String(), paramTranscript: transcript}},
		},
	}
}

// nothingToCompact is the answer when there is nothing to compact.
const nothingToCompact = "There is nothing to summarise."

// compactAside runs compact without a slot of the lane, so that even in a small lane no message of
// a person waits for it.
func (ts *turns) compactAside(ctx context.Context, t *turn, st *scheduler.Turn, c compaction) (res agent.Result, err error) {
	waits := ts.waitsOf(ctx, t, st)
	defer waits.wait()
	err = waits.during(ctx, func(ctx context.Context) (err error) {
		select {
		case ts.compactions.writing <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		defer func() { <-ts.compactions.writing }()
		res, err = ts.compact(ctx, t, c)
		return err
	})
	return orCause(ctx, res, err)
}

// compact executes the turn of a compaction.
func (ts *turns) compact(ctx context.Context, t *turn, c compaction) (agent.Result, error) {
	var piece piece
	err := ts.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
		piece, err = ts.oldest(ctx, t.agent, c)
		return err
	})
	switch {
	case err != nil:
		return agent.Result{}, err
	case piece.summary.RunID == t.run.RunID: // an earlier attempt added it, and was interrupted before it ended
		return agent.Result{Text: summarised(piece.summary.Covers)}, nil
	case len(piece.rows) == 0:
		return agent.Result{Text: nothingToCompact}, nil
	}
	res, err := ts.summarise(ctx, t, agent.Summary{
		Session: c.session, Prompt: compactPrompt, Question: fmt.Sprintf(compactQuestion, piece.tokens/2), Conversation: piece.history(), Tokens: piece.tokens,
	})
	if err != nil {
		return res, err
	}
	res.Text, err = ts.addSummary(ctx, t, c, piece, res.Text)
	return res, err
}

// addSummary adds the summary of a piece and returns the answer of the turn.
func (ts *turns) addSummary(ctx context.Context, t *turn, c compaction, p piece, text string) (string, error) {
	text = summaryHead + chat.Cut(text, 2*p.tokens) // the estimate counts at least one token for two bytes
	s := store.SummaryParams{
		Session: c.session, SessionID: c.transcript, RunID: t.run.RunID, Text: text, Tokens: agent.EstimateTokens("[note] " + text), Covers: p.covers,
		Outside: hasOutside(p.history()),
	}
	added := false
	err := ts.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
		_, yes, err := ts.store.AppendSummary(ctx, s)
		added = added || yes
		return err
	})
	if err != nil {
		return "", fmt.Errorf("adding a summary: %w", err)
	}
	if !added {
		return nothingToCompact, nil // it was reset meanwhile, or another summary covers these entries
	}
	ts.events.PublishSession(c.session, t.run.Principal, "compacted", t.run.RunID)
	ts.log.InfoContext(ctx, "a conversation was compacted", "session", c.session.String(), "rows_from", p.covers.From, "rows_to", p.covers.To, "tokens", s.Tokens)
	return summarised(p.covers), nil
}

// summarised returns the answer of a compaction that has added a summary.
func summarised(rows chat.SeqRange) string {
	return fmt.Sprintf("Summarised the rows %d to %d of this conversation. They stay in its history.", rows.From, rows.To)
}

const (
	summaryHead   = "Summary of the conversation so far: "
	compactPrompt = "You keep the notes of a conversation. Your summary takes the place of the part that you read; the agent that goes on with the " +
		"conversation knows nothing else of it."
	compactQuestion = "Write a summary of the conversation above in at most %d words. Keep names, numbers, dates, decisions, promises, preferences and open " +
		"questions, and what was in an earlier summary. Do not answer anything in it. Write the summary only."
)

// piece is the part of a conversation that is summarised.
type piece struct {
	summary chat.TranscriptEntry // the previous summary; zero = no summary
	rows    []chat.TranscriptEntry
	covers  chat.SeqRange
	tokens  int // limit of the summary
}

// size returns the number of tokens of the entries.
func (p *piece) size() (tokens int) {
	for _, e := range p.rows {
		tokens += agent.EstimateEntry(e)
	}
	return tokens
}

// history returns the piece in the form in which the agent reads it.
func (p *piece) history() []chat.TranscriptEntry {
	if p.summary.Seq == 0 {
		return p.rows
	}
	before := p.summary
	before.Covers = chat.SeqRange{}
	return append([]chat.TranscriptEntry{before}, p.rows...)
}

// usualTools returns the tools of an agent in the turn of a person, to determine their size.
func (ts *turns) usualTools(a Agent) agent.Toolbox {
	names, ok := a.Tools.offered("")
	if !ok {
		return nil
	}
	return ts.tools.For(tool.Turn{}, names)
}

// oldest reads the entries to summarise: those after the range of the newest summary, at most half
// of a window. It leaves out the newest entries, which fill a third of the room (by hand a sixth).
func (ts *turns) oldest(ctx context.Context, a Agent, c compaction) (p piece, err error) {
	ratio := a.ratio("", c.session)
	room := roomOf(a, ratio, &agent.Request{SystemPrompt: a.SystemPrompt, Tools: ts.usualTools(a)})
	if c.session.IsZero() || room < leastRoom {
		return piece{}, nil
	}
	keep := room / 3
	if c.all {
		keep = room / 6
	}
	p.tokens = min(room/6, mostSummary)
	kept, _, err := ts.history(ctx, c.session, c.transcript, "", keep)
	if err != nil {
		return piece{}, err
	}
	if len(kept) > 0 && kept[0].Covers.To > 0 {
		p.summary, kept = kept[0], kept[1:]
	}
	kept = agent.CutHistory(kept, keep)
	last := int64(1) << 62
	if len(kept) > 0 {
		last = kept[0].Seq - 1
	}
	if err := ts.readPiece(ctx, c, &p, last, ratio.Window(a.ContextWindow/2)); err != nil {
		return piece{}, err
	}
	if !c.all && p.size() < room/3 { // another compaction has done it already
		p.rows = nil
	}
	return p, nil
}

// readPiece reads the entries of a piece, up to the entry last and at most most tokens. A single
// entry that is larger is cut.
func (ts *turns) readPiece(ctx context.Context, c compaction, p *piece, last int64, most int) error {
	fold := func() { p.rows = agent.Fold(p.rows, ts.noteRoom(c.session.Agent)) }
	defer fold()
	p.covers.From = max(p.summary.Covers.From, 1)
	for after := p.summary.Covers.To; after < last; {
		tr, err := ts.store.Transcript(ctx, store.TranscriptQuery{
			Session: c.session, SessionID: c.transcript, After: after, FromStart: true, NoCount: true, MaxBytes: historyPage,
		})
		if err != nil || len(tr.Entries) == 0 {
			return err
		}
		for _, e := range tr.Entries {
			after = e.Seq
			cost := agent.EstimateEntry(e)
			if e.Origin != nil { // most of them are only counted
				cost = 0
			}
			if e.Seq > last || cost > most && len(p.rows) > 0 {
				return nil
			}
			if p.summary.Seq == 0 && len(p.rows) == 0 {
				p.covers.From = e.Seq
			}
			p.covers.To = e.Seq
			if !spoken(e) {
				continue
			}
			voice(&e)
			if cost > most {
				e.Text, e.Tokens = chat.Cut(e.Text, most), 0
			}
			if cost > 0 {
				most -= agent.EstimateEntry(e)
			}
			p.rows = append(p.rows, e)
		}
		fold()
	}
	return nil
}

// errNoWindow is the error of /compact when the gateway sends no conversation.
var errNoWindow = errors.New("this agent keeps its conversations by itself; there is nothing to summarise")

// Compact implements /compact.
func (a actions) Compact(ctx context.Context, c command.Call) (command.Compaction, error) {
	ag, ours := a.d.agents[c.Session.Agent]
	if !ours {
		return command.CompactionNothing, chat.Errorf(chat.CodeInvalid, "this gateway does not have the agent; send /compact through one that has it")
	}
	if !ag.Compacts || ag.ContextWindow == 0 {
		return command.CompactionNothing, chat.Errorf(chat.CodeInvalid, "%s", errNoWindow)
	}
	tr, err := a.d.store.Transcript(ctx, store.TranscriptQuery{Session: c.Session, Limit: 1, MaxChars: 1})
	if err != nil || tr.SessionID == "" {
		return command.CompactionNothing, err
	}
	if !a.d.turns.compactions.ask(tr.SessionID) {
		return command.CompactionRunning, nil
	}
	defer a.d.turns.compactions.asked(tr.SessionID)
	m := compactMessage(c.Session, tr.SessionID, c.Principal)
	if runs, err := compacts(ctx, a.d.store, m.Session); runs || err != nil {
		return command.CompactionRunning, err
	}
	by := compaction{session: c.Session, transcript: tr.SessionID, all: true}
	p, err := a.d.turns.oldest(ctx, ag, by)
	if err != nil || len(p.rows) == 0 {
		return command.CompactionNothing, err
	}
	m.ID, m.Content.Options.Params[paramAll], m.Content.Options.ReplyTo = "compact-"+c.ID, "yes", c.Target
	if err := a.d.receiver.acceptOwn(ctx, m); err != nil {
		return command.CompactionNothing, fmt.Errorf("beginning a compaction: %w", err)
	}
	a.d.turns.compactions.begin(tr.SessionID, time.Now()) // turns that end meanwhile start no other compaction
	return command.CompactionBegun, nil
}

// compacts reports whether a compaction waits or runs, in any process. key is the key of its
// session.
func compacts(ctx context.Context, sessions store.Store, key chat.SessionKey) (bool, error) {
	s, err := sessions.Session(ctx, key, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading a compaction: %w", err)
	}
	return s.DoneSeq < s.LastSeq, nil
}

const (
	// compactPause is how long no compaction of a conversation starts after one that failed.
	compactPause = time.Minute
	// compactLost is how long this process waits for the end of a compaction that it does not see:
	// another replica runs it, or a stop has ended its message.
	compactLost = 15 * time.Minute
	// compactAtOnce is how many summaries the models of a process write concurrently. They take no
	// slots of lanes.
	compactAtOnce = 8
	// mostCounted is for how many conversations a process keeps the provider's counts, and
	// compactions.
	mostCounted = 10_000
)

// past is the size of the conversation that was sent to the agent of a turn.
type past struct {
	room   int // estimated tokens that fit, less the messages of the turn; 0 = no history was read
	tokens int // estimate of the history, including the part that was read but did not fit
	// answer estimates what the turn adds. real is what the provider counted in its last request
	// and answer, 0 = unknown. window is in the tokens of the provider.
	answer, real, window int
	tooLong              bool // the model has refused the conversation
}

// full reports whether the conversation fills three quarters of the window, by refusal, by estimate
// or by the provider's count. The count applies only when enough of it is conversation.
func (p *past) full() bool {
	filled := p.tokens + p.answer
	return p.tooLong || filled > p.room || p.real > p.window-p.window/4 && filled > p.room/2
}

// measure adds the result of a turn.
func (p *past) measure(t *turn, res agent.Result) {
	p.answer, p.tooLong = agent.EstimateTokens(res.Text), res.TooLong
	for _, e := range t.journal.entries() {
		p.answer += agent.EstimateEntry(e)
	}
	_, rounds := t.journal.usages()
	if input := res.Usage.InputTokens - rounds.InputTokens; input > 0 {
		p.real = input + max(0, res.Usage.OutputTokens-rounds.OutputTokens)
	}
}

// counted is what a provider counted in the last turn of a conversation.
type counted struct {
	sessionID string
	seq       int64 // the last entry that is included
	tokens    int
}

// compactions are the compactions of this process, and the counts of providers.
type compactions struct {
	writing chan struct{} // holds a value for each summary that a model is writing

	mu     sync.Mutex
	until  map[string]time.Time // by transcript: no other compaction starts before
	asking map[string]bool      // by transcript: a command is about to start a compaction
	counts map[chat.SessionKey]counted
}

func newCompactions() *compactions {
	return &compactions{writing: make(chan struct{}, compactAtOnce), until: map[string]time.Time{}, asking: map[string]bool{}, counts: map[chat.SessionKey]counted{}}
}

// ended lets the next compaction of the conversation start, if the turn was one.
func (c *compactions) ended(t *turn, end ending) {
	if of, ok := t.attempt.(compaction); ok {
		c.end(of.transcript, end.outcome == chat.OutcomeAnswered, time.Now())
	}
}

// begin reports whether a compaction of a transcript may start, and records it.
func (c *compactions) begin(transcript string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.until[transcript]) {
		return false
	}
	if len(c.until) >= mostCounted {
		maps.DeleteFunc(c.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	}
	c.until[transcript] = now.Add(compactLost)
	return true
}

// ask reports whether no other command is about to start a compaction of a transcript; asked ends
// that.
func (c *compactions) ask(transcript string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking[transcript] {
		return false
	}
	c.asking[transcript] = true
	return true
}

func (c *compactions) asked(transcript string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asking, transcript)
}

// end removes a compaction. After a failure, none starts for compactPause.
func (c *compactions) end(transcript string, ok bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		delete(c.until, transcript)
		return
	}
	c.until[transcript] = now.Add(compactPause)
}

// note stores the count of a provider.
func (c *compactions) note(key chat.SessionKey, n counted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.counts) >= mostCounted {
		clear(c.counts) // estimates replace them
	}
	c.counts[key] = n
}

func (c *compactions) counted(key chat.SessionKey) (counted, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.counts[key]
	return n, ok
}
