package events

import (
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/retry"
)

// settle is the time between reading an end and publishing it. A run that this process itself ends in that moment publishes its own event first.
const settle = 200 * time.Millisecond

// noteMissed starts reading the ends whose events may have been lost.
func (p *Publisher) noteMissed() {
	select {
	case p.missed <- struct{}{}:
	default:
	}
}

// publishMissed publishes missed ends whenever events of other replicas may have been lost: it reads how the runs ended for which clients of this process may
// wait. Otherwise a client would wait forever for an end on another replica. It returns with ctx.
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

// readEnd reads how a run ended, and waits while the store is unavailable. A run that does not exist was deleted.
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
