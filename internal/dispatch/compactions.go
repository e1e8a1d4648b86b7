package dispatch

import (
	"maps"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

const (
	// compactPause is how long a conversation is left alone after a compaction that failed.
	compactPause = time.Minute
	// compactLost is how long a compaction is waited for whose end this process does not see: another replica makes it, or a stop has ended its message.
	compactLost = 15 * time.Minute
	// compactAtOnce is how many summaries a process lets its models write at once. They take no slots of lanes.
	compactAtOnce = 8
	// mostCounted is of how many conversations a process remembers what a provider counted, and compactions.
	mostCounted = 10_000
)

// past is the size of the conversation that the agent of a turn got.
type past struct {
	room   int // estimated tokens that fit, less the messages of the turn; 0 = nothing was read
	tokens int // of the history by estimate, the part that did not fit included as far as it was read
	// answer is an estimate of what the turn adds; real is what the provider counted in its last request and answer, 0 = nothing. window is as the provider counts.
	answer, real, window int
}

// full reports whether the conversation fills three quarters of the window: by estimate, or as the provider has counted it, where enough of that is
// conversation.
func (p *past) full() bool {
	filled := p.tokens + p.answer
	return filled > p.room || p.real > p.window-p.window/4 && filled > p.room/2
}

// measure adds what a turn has brought.
func (p *past) measure(t *turn, res agent.Result) {
	p.answer = agent.EstimateTokens(res.Text)
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
	seq       int64 // the last row that is a part of it
	tokens    int
}

// compactions are those under way in this process, and what providers counted.
type compactions struct {
	writing chan struct{} // has a value for each summary that a model writes

	mu     sync.Mutex
	until  map[string]time.Time // by transcript: no other before
	asking map[string]bool      // by transcript: a command is about to begin one
	counts map[chat.SessionKey]counted
}

func newCompactions() *compactions {
	return &compactions{writing: make(chan struct{}, compactAtOnce), until: map[string]time.Time{}, asking: map[string]bool{}, counts: map[chat.SessionKey]counted{}}
}

// begin reports whether a compaction of a transcript may begin, and notes it.
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

// ask reports whether no other command is about to begin a compaction of a transcript; asked ends that.
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

// end forgets a compaction; one that failed is not begun again for a while.
func (c *compactions) end(transcript string, ok bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		delete(c.until, transcript)
		return
	}
	c.until[transcript] = now.Add(compactPause)
}

// note keeps what a provider counted.
func (c *compactions) note(key chat.SessionKey, n counted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.counts) >= mostCounted {
		clear(c.counts) // estimates take their place
	}
	c.counts[key] = n
}

func (c *compactions) counted(key chat.SessionKey) (counted, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.counts[key]
	return n, ok
}
