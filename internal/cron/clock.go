package cron

import "time"

// clockSamples is the number of results from which the difference of the clocks is estimated.
const clockSamples = 16

// storeClock estimates how the store's clock differs from the local one. Every result gives a bound: the store read its clock before the result arrived. The
// largest of the last bounds is the estimate. So the loop wakes late by at most the duration of one call, and one slow call does no harm. A loop that wakes
// early finds nothing due and waits again.
type storeClock struct {
	offsets [clockSamples]time.Duration
	n       int
}

// observe records that the store's clock showed now in a result that arrived at the local time at.
func (c *storeClock) observe(now, at time.Time) {
	c.offsets[c.n%clockSamples] = now.Sub(at)
	c.n++
}

// at is the time of the store's clock at a local time.
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
