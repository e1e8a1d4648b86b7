package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/store"
)

// silences are channels whose provider asked for silence in every chat. To claim rows for them would only use up their attempts.
type silences struct {
	mu sync.Mutex
	by map[string]time.Time // end of the silence, by channel
}

// keep makes a channel silent until then, or longer when it is already.
func (s *silences) keep(name string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]time.Time{}
	}
	if until.After(s.by[name]) {
		s.by[name] = until
	}
}

// without leaves out of names those that are silent now.
func (s *silences) without(names []string, now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(names, func(name string) bool { return now.Before(s.by[name]) })
}

// queuedAfter is how long a message waits, beyond its debounce window, before its person is shown that it does.
const queuedAfter = time.Second

// showQueued shows a person that a message of theirs waits, unless it has begun or ended before that is worth showing. It returns at once.
func (d *Dispatcher) showQueued(ctx context.Context, lead store.Waiting, hold time.Duration) {
	to := lead.Content.Options.ReplyTo
	q, ok := d.channels[to.Channel].(channel.Queuer)
	if !ok || lead.Content.System {
		return
	}
	d.small.Go(func() {
		if !d.pause(context.WithoutCancel(ctx), queuedAfter+hold) {
			return
		}
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), queuedAfter)
		defer cancel()
		row, err := d.store.MessageByID(look, lead.MessageID)
		if err != nil || row.State == store.StateRunning || row.State == store.StateDone {
			return
		}
		sign, end := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
		defer end()
		q.Queued(sign, to, lead.MessageID)
	})
}
