package scheduler

// maxCutoffs bounds the memory for stopped sessions. A cutoff only matters shortly after a stop, while a message that was accepted before it may still arrive.
// Sixteen thousand later stops take much longer.
const maxCutoffs = 16_384

// cutoffs stores up to which sequence number the messages of a session are stale. It outlives the session's entry, because a message may arrive after all other
// work of its session has ended.
type cutoffs struct {
	at    map[string]int64
	order []string // a ring of keys, the oldest at next once it is full
	next  int
}

// of is the cutoff of a session, 0 when it has none.
func (c *cutoffs) of(key string) int64 {
	if len(c.at) == 0 {
		return 0
	}
	return c.at[key]
}

// set stores a cutoff and removes the oldest when there are too many.
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
