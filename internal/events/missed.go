package events

import (
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/retry"
)

// settle is the time between the reading of an end and its publication. What this process has ended itself in that moment publishes its own event first.
const settle = 200 * time.Millisecond

// noteMissed starts the reading of ends that other replicas may have published in vain.
func (p *Publisher) noteMissed() {
	select {
	case p.missed <- struct{}{}:
	default:
	}
}

// publishMissed reads, whenever events of other replicas may have been lost, how the runs ended that clients of this process may wait for, and publishes their
// ends. Otherwise a client waits for ever for an end that another replica gave. It ends with ctx.
func (p *Publisher) publishMissed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.missed:
		}
		var ends []chat.Event
		for _, run := range p.logs.open() {
			end, ended, err := p.readEnd(ctx, run)
			if err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "the end of a run that may have been missed was not read", "run_id", run, "err", err)
			}
			if ended {
				ends = append(ends, end)
			}
		}
		if len(ends) > 0 && retry.Sleep(ctx, settle) != nil {
			return
		}
		for i := range ends {
			p.publishHere(&ends[i])
		}
	}
}

// readEnd reads how a run ended, and waits for a store that does not answer. A run that is not there has been deleted.
func (p *Publisher) readEnd(ctx context.Context, run string) (end chat.Event, ended bool, err error) {
	for {
		end, ended, err = p.cfg.End(ctx, run)
		if errors.Is(err, chat.ErrNotFound) {
			return end, false, nil
		}
		if !errors.Is(err, chat.ErrStoreUnavailable) || retry.Sleep(ctx, pollInterval) != nil {
			return end, ended, err
		}
	}
}
