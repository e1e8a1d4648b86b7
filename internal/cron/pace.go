package cron

import "time"

const (
	// firstPace is how long the claim of one job is taken to last before anything was measured.
	firstPace = 400 * time.Microsecond
	// leastLearnt is how many jobs a claim must have had to be measured: a small one is a round trip and little else.
	leastLearnt = 100
)

// pace knows how long the claim of a job takes, so that a burst is claimed before its moment: ten thousand jobs of one second take seconds to be made
// durable, and would start late by as much. It belongs to the goroutine of the loop.
type pace struct{ each time.Duration }

// learn notes a claim. A slow one counts at once, fast ones little by little: to look ahead too far is harmless.
func (p *pace) learn(jobs int, took time.Duration) {
	if jobs < leastLearnt {
		return
	}
	each := took / time.Duration(jobs)
	if p.each == 0 || each > p.each {
		p.each = each
		return
	}
	p.each -= (p.each - each) / 8
}

// ahead is how far to look when so many jobs are coming: the usual look-ahead when one claim takes them all, otherwise the time to claim them with
// half as much again in reserve, and a tick more.
func (p *pace) ahead(coming int, cfg RunnerConfig) time.Duration {
	if coming <= cfg.Batch {
		return cfg.LookAhead
	}
	each := p.each
	if each == 0 {
		each = firstPace
	}
	return min(cfg.LookAhead+cfg.Tick+time.Duration(coming)*each*3/2, horizon)
}
