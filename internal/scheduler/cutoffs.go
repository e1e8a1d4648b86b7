package scheduler

// maxCutoffs bounds the memory for stopped sessions. A cutoff matters for the moments in which a message accepted before the stop
// is still on its way; sixteen thousand later stops are far more than that.
const maxCutoffs = 16_384

// cutoffs remembers up to which sequence number the messages of a session are stale. It outlives the session's entry, because
// a message may surface after everything else of its session has ended.
type cutoffs struct {
	at    map[string]int64
	order []string // a ring of keys, the oldest at next once it is full
	next  int
}

// of is the cutoff of a session, 0 when there is none.
func (c *cutoffs) of(key string) int64 {
	if len(c.at) == 0 {
		return 0
	}
	return c.at[key]
}

// set remembers a cutoff and forgets the oldest when there are too many.
func (c *cutoffs) set(key string, seq int64) {
	if c.at == nil {
		c.at = map[string]int64{}
	}
	_, known := c.at[key]
	c.at[key] = seq
	if known {
		return
	}
	if len(c.order) < maxCutoffs {
		c.order = append(c.order, key)
		return
	}
	delete(c.at, c.order[c.next])
	c.order[c.next] = key
	c.next = (c.next + 1) % maxCutoffs
}
