package dispatch

import (
	"maps"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

const (
	// compactPause is how long no compaction of a conversation starts after one that failed.
	compactPause = time.Minute
	// compactLost is how long this process waits for the end of a compaction that it does not see: another replica runs it, or a stop has
	// ended its message.
	compactLost = 15 * time.Minute
	// compactAtOnce is how many summaries the models of a process write concurrently. They take no slots of lanes.
	compactAtOnce = 8
	// mostCounted is for how many conversations a process keeps the provider's counts, and compactions.
	mostCounted = 10_000
)

// past is the size of the conversation that was sent to the agent of a turn.
type past struct {
	room   int // estimated tokens that fit, less the messages of the turn; 0 = no history was read
	tokens int // estimate of the history, including the part that was read but did not fit
	// answer estimates what the turn adds. real is what the provider counted in its last request and answer, 0 = unknown. window is in the
	// tokens of the provider.
	answer, real, window int
	tooLong              bool // the model has refused the conversation
}

// full reports whether the conversation fills three quarters of the window, by refusal, by estimate or by the provider's count. The count applies only
// when enough of it is conversation.
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

// ask reports whether no other command is about to start a compaction of a transcript; asked ends that.
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
