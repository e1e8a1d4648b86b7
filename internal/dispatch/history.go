package dispatch

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	// defaultHistory is how many tokens of history an agent with an unknown context window
	// receives.
	defaultHistory = 24_000
	// historyPage is the size in bytes of a page of a transcript.
	historyPage = 256 << 10
	// mostTails limits the bytes of the transcripts that a process keeps, see [tails].
	mostTails = 64 << 20
	// entryBytes is what an entry takes in memory beside its text.
	entryBytes = 256
)

// history returns the conversation before the run, and an estimate of its tokens: the newest
// summary, and the entries after the range that it covers. When these do not fit into budget, the
// result is larger than budget, and the oldest entries are missing. What this process has read
// before is kept, so a turn reads what was added since. The caller must not change the entries.
func (ts *turns) history(ctx context.Context, key chat.SessionKey, sessionID, runID string, budget int) ([]chat.TranscriptEntry, int, error) {
	if budget <= 0 {
		return nil, 0, nil
	}
	read := func(q store.TranscriptQuery) (store.Transcript, error) {
		q.Session, q.SessionID, q.NoCount, q.MaxBytes = key, sessionID, true, historyPage
		tr, err := ts.store.Transcript(ctx, q)
		if err != nil {
			return tr, fmt.Errorf("reading the history: %w", err)
		}
		return tr, nil
	}
	notes := ts.noteRoom(key.Agent)
	t := ts.tails.take(sessionID)
	q := store.TranscriptQuery{After: t.last, Before: t.from, Summary: true}
	tr, err := read(q)
	if err != nil {
		ts.tails.put(t)
		return nil, 0, err
	}
	if t.last > 0 && (tr.SessionID != t.id || !t.follow(tr)) { // archived, deleted, or far behind
		t = newTail(sessionID)
		q.After, q.Before = 0, t.from
		if tr, err = read(q); err != nil {
			return nil, 0, err
		}
	}
	summary, covered := tr.Summary, tr.Summary.Covers.To
	if t.last == 0 {
		t.id, t.last = tr.SessionID, tr.LastSeq
		t.precede(tr.Entries)
	}
	t.fold(notes)
	tokens := 0
	if summary.Seq > 0 {
		tokens = agent.EstimateEntry(summary)
	}
	t.budget = max(t.budget, budget)
	own := t.of(runID)
	for t.from > covered+1 && tokens+t.tokens-own <= budget {
		if tr, err = read(store.TranscriptQuery{Before: t.from}); err != nil {
			return nil, 0, err
		}
		t.precede(tr.Entries)
		t.fold(notes)
		own = t.of(runID)
	}
	t.trim(covered)
	out := slices.Clip(t.entries)
	tokens += t.tokens - own
	if sessionID == "" || sessionID == t.id {
		ts.tails.put(t)
	}
	if own > 0 {
		out = without(out, runID)
	}
	if summary.Seq > 0 {
		out = append([]chat.TranscriptEntry{summary}, out...)
	}
	return out, tokens, nil
}

// without returns the entries that are not of a run. Those of the run that asks are the last ones,
// unless other turns of the session run beside it.
func without(entries []chat.TranscriptEntry, runID string) []chat.TranscriptEntry {
	n := len(entries)
	for n > 0 && entries[n-1].RunID == runID {
		n--
	}
	ofRun := func(e chat.TranscriptEntry) bool { return e.RunID == runID }
	if entries = entries[:n:n]; slices.ContainsFunc(entries, ofRun) {
		entries = slices.DeleteFunc(slices.Clone(entries), ofRun)
	}
	return entries
}

// tail is the end of a transcript: all entries of the conversation from one number to another. It
// cannot be wrong, only old: entries are never changed, are deleted only with their transcript, and
// are numbered in the order of their commits.
type tail struct {
	id string // of the transcript
	// entries are the spoken ones with the numbers from to last. from is 0 when no entries precede
	// them, and math.MaxInt64 before the first read; last is 0 then.
	entries    []chat.TranscriptEntry
	from, last int64
	// tokens is the estimate of entries, bytes their size in memory. budget is the largest one of
	// its turns, in tokens.
	tokens, bytes, budget int
}

func newTail(id string) *tail { return &tail{id: id, from: math.MaxInt64} }

func (t *tail) count(e *chat.TranscriptEntry, sign int) {
	t.tokens += sign * agent.EstimateEntry(*e)
	t.bytes += sign * (len(e.Text) + entryBytes)
}

// follow adds the entries that were read after the last one. It reports whether these are all.
func (t *tail) follow(tr store.Transcript) bool {
	for i := range tr.Entries {
		e := &tr.Entries[i]
		if t.last = e.Seq; spoken(*e) {
			voice(e)
			t.entries = append(t.entries, *e)
			t.count(e, 1)
		}
	}
	if len(tr.Entries) > 0 && t.last < tr.LastSeq {
		return false
	}
	t.last = max(t.last, tr.LastSeq)
	return true
}

// precede adds the entries that were read before the first one; none exist when they are empty.
func (t *tail) precede(older []chat.TranscriptEntry) {
	if len(older) == 0 {
		t.from = 0
		return
	}
	t.from, t.last = older[0].Seq, max(t.last, older[len(older)-1].Seq)
	all := make([]chat.TranscriptEntry, 0, len(older)+len(t.entries))
	for i := range older {
		if e := &older[i]; spoken(*e) {
			voice(e)
			all = append(all, *e)
			t.count(e, 1)
		}
	}
	t.entries = append(all, t.entries...)
}

// of estimates the entries of a run.
func (t *tail) of(runID string) (tokens int) {
	if runID == "" {
		return 0
	}
	for i := range t.entries {
		if e := &t.entries[i]; e.RunID == runID {
			tokens += agent.EstimateEntry(*e)
		}
	}
	return tokens
}

// fold limits the entries of others, see [agent.Fold].
func (t *tail) fold(room int) {
	kept := agent.Fold(t.entries, room)
	if len(kept) == len(t.entries) {
		return
	}
	t.entries, t.tokens, t.bytes = kept, 0, 0
	for i := range kept {
		t.count(&kept[i], 1)
	}
}

// noteRoom returns how many tokens of a conversation of an agent may come from others, see
// [agent.Fold]: a tenth of its window.
func (ts *turns) noteRoom(id string) int {
	return cmp.Or(ts.agents[id].ContextWindow, defaultHistory) / 10
}

// trim removes what a summary covers, and the oldest entries beyond a quarter more than the budget.
// It never leaves less than the budget: a conversation that does not fit must be seen not to fit,
// else it would never be compacted.
func (t *tail) trim(covered int64) {
	for len(t.entries) > 0 {
		e := &t.entries[0]
		if e.Seq > covered && (t.tokens <= t.budget+t.budget/4 || t.tokens-agent.EstimateEntry(*e) <= t.budget) {
			return
		}
		t.from = e.Seq + 1
		t.count(e, -1)
		t.entries = t.entries[1:]
	}
}

// tails are the ends of the transcripts that this process has read, at most mostTails bytes of
// them: the least recently used ones are forgotten first. A turn takes a tail out, so that it alone
// extends it; another turn of the session that starts meanwhile reads the transcript itself.
type tails struct {
	mu    sync.Mutex
	of    map[string]*list.Element // by transcript; values are *tail
	used  list.List                // most recently used first
	bytes int
}

// take removes the tail of a transcript, or returns an empty one.
func (ts *tails) take(id string) *tail {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if at, ok := ts.of[id]; ok {
		return ts.remove(at)
	}
	return newTail(id)
}

// put returns a tail, unless another turn has returned a newer one.
func (ts *tails) put(t *tail) {
	if t.last == 0 {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if at, ok := ts.of[t.id]; ok {
		if other, ok := at.Value.(*tail); ok && other.last > t.last {
			return
		}
		ts.remove(at)
	}
	if ts.of == nil {
		ts.of = map[string]*list.Element{}
	}
	ts.of[t.id] = ts.used.PushFront(t)
	for ts.bytes += t.bytes; ts.bytes > mostTails; {
		ts.remove(ts.used.Back())
	}
}

func (ts *tails) remove(at *list.Element) *tail {
	t, _ := ts.used.Remove(at).(*tail) // the list has only tails
	delete(ts.of, t.id)
	ts.bytes -= t.bytes
	return t
}

// hasOutside reports whether an entry has text from outside.
func hasOutside(rows []chat.TranscriptEntry) bool {
	return slices.ContainsFunc(rows, func(e chat.TranscriptEntry) bool { return e.Outside })
}

// spoken reports whether an entry is part of the conversation: neither a command nor a summary of
// other entries.
func spoken(e chat.TranscriptEntry) bool { return !e.Command && e.Covers.To == 0 }

// voice gives an entry that people do not see the text that its agent wrote.
func voice(e *chat.TranscriptEntry) {
	if e.StopReason == chat.StopSilent && e.Text == "" {
		e.Text = chat.NoReply
	}
}

// estimate is called by the scheduler before a second turn of a session starts concurrently. It
// uses the provider's last count.
func (ts *turns) estimate(ctx context.Context, session string) (tokens, window int) {
	key, err := chat.ParseSessionKey(session, ts.cfg.Agents[0].Info.ID)
	if err != nil {
		return 0, 0
	}
	window = ts.agents[key.Agent].ContextWindow
	if window == 0 {
		return 0, 0
	}
	tokens, err = ts.size(ctx, key, window)
	if err != nil {
		ts.log.WarnContext(ctx, "no token estimate", "session", session, "err", err)
		return 0, 0
	}
	return tokens, window
}

// size returns how many tokens a conversation has: the provider's count of its last turn and an
// estimate of the entries after that, or an estimate of all that an agent would receive.
func (ts *turns) size(ctx context.Context, key chat.SessionKey, most int) (tokens int, err error) {
	ratio := ts.agents[key.Agent].ratio("", key)
	if counted, ok := ts.compactions.counted(key); ok {
		tr, err := ts.store.Transcript(ctx, store.TranscriptQuery{Session: key, After: counted.seq, MaxBytes: historyPage, NoCount: true, Summary: true})
		if err != nil {
			return 0, fmt.Errorf("reading the newest rows: %w", err)
		}
		if tr.SessionID == counted.sessionID && tr.Summary.Seq <= counted.seq {
			for _, e := range agent.Fold(tr.Entries, ts.noteRoom(key.Agent)) {
				tokens += agent.EstimateEntry(e)
			}
			return counted.tokens + ratio.Counted(tokens), nil
		}
	}
	_, tokens, err = ts.history(ctx, key, "", "", ratio.Window(most))
	return ratio.Counted(tokens), err
}
