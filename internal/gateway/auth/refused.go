package auth

import (
	"net/netip"
	"sync"
	"time"

	"laneway/internal/chat"
)

const (
	// verbRefused is the row about a secret that is no credential.
	verbRefused = "credential.refused"
	// refusedPerMinute limits the rows of one minute: an attacker with many addresses must not fill the disk. The metric counts all
	// refusals.
	refusedPerMinute = 256
	// refusedTimeout limits the writing of one row.
	refusedTimeout = 5 * time.Second
)

// refusals collects rows about refused secrets: one per address and minute. No client waits for the audit log: rows go through a queue that
// [Authenticator.Run] empties. When the queue is full, a row is dropped; the metric has counted it.
type refusals struct {
	rows chan chat.Audit

	mu     sync.Mutex
	minute int64
	seen   map[netip.Addr]bool
}

func newRefusals() *refusals {
	return &refusals{rows: make(chan chat.Audit, refusedPerMinute)}
}

// note adds a row unless the address already has one in this minute.
func (r *refusals) note(addr netip.Addr, code string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Unix() / 60; minute != r.minute || r.seen == nil {
		r.minute, r.seen = minute, map[netip.Addr]bool{}
	}
	key := Network(addr)
	if r.seen[key] || len(r.seen) >= refusedPerMinute {
		return
	}
	r.seen[key] = true
	select {
	case r.rows <- chat.Audit{Who: "nobody", Verb: verbRefused, Object: code, Peer: addr.String()}:
	default:
	}
}
