package cron

import "time"

// clockSamples is the number of answers from which the difference of the clocks is estimated.
const clockSamples = 16

// storeClock estimates how the store's clock differs from the local one. Every answer gives a bound: the store read its clock before the answer
// arrived. The largest of the last bounds is the estimate, so the loop wakes at most as late as an answer takes, and one slow answer spoils nothing.
// A loop that wakes early finds nothing due and waits again.
type storeClock struct {
	offsets [clockSamples]time.Duration
	n       int
}

// observe records that the store's clock showed now in an answer that arrived at the local time at.
func (c *storeClock) observe(now, at time.Time) {
	c.offsets[c.n%clockSamples] = now.Sub(at)
	c.n++
}

// at is what the store's clock shows at a local time.
func (c *storeClock) at(local time.Time) time.Time {
	if c.n == 0 {
		return local
	}
	best := c.offsets[0]
	for _, o := range c.offsets[:min(c.n, clockSamples)] {
		best = max(best, o)
	}
	return local.Add(best)
}
