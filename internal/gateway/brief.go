package gateway

import (
	"sync"
	"time"

	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

// briefPerSecond is how many events about jobs a connection with the capability cron-brief receives in a second, plus one for the remaining
// events.
const briefPerSecond = 20

// briefJobs limits the events about jobs of one connection. Events beyond the limit become one event with their number at the end of the
// second: ten thousand jobs a minute must not send half a megabyte a second to a page that shows a hundred of them.
type briefJobs struct {
	mu     sync.Mutex
	second time.Time // when it started
	sent   int
	left   int // events that were left out since then
	end    *time.Timer
}

// put sends the payload now, or counts it.
func (b *briefJobs) put(c *client, payload []byte) {
	if b.take(time.Now(), c) {
		c.PutEvent(wire.EventCron, payload)
	}
}

func (b *briefJobs) take(now time.Time, c *client) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.second) >= time.Second {
		b.second, b.sent = now, 0
	}
	if b.sent < briefPerSecond {
		b.sent++
		return true
	}
	if b.left++; b.left == 1 {
		b.end = time.AfterFunc(b.second.Add(time.Second).Sub(now), func() { b.flush(c) })
	}
	return false
}

// flush sends the event with the number of events that were left out.
func (b *briefJobs) flush(c *client) {
	b.mu.Lock()
	n := b.left
	b.left = 0
	b.mu.Unlock()
	c.PutEvent(wire.EventCron, strictjson.Encode(wire.CronEvent{Action: wire.ActionMany, Count: n}))
}

// stop ends the timer with its connection.
func (b *briefJobs) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil {
		b.end.Stop()
	}
}
