package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"laneway/internal/chat"
)

const (
	// verbRefused is a secret that is no credential, in the log of changes.
	verbRefused = "credential.refused"
	// rejectedPerMinute bounds the rows of one minute: an attacker with many addresses must not fill the disk. The metric counts all.
	rejectedPerMinute = 256
	// rejectedTime bounds the writing of one row.
	rejectedTime = 5 * time.Second
)

// rejections notes refused secrets in the log of changes: one row per address and minute. Nobody who logs in waits for it: rows go through a
// queue that a single goroutine empties, and what finds it full is left to the metric.
type rejections struct {
	rows chan chat.Audit

	mu     sync.Mutex
	minute int64
	seen   map[netip.Addr]bool
}

func newRejections() *rejections {
	return &rejections{rows: make(chan chat.Audit, rejectedPerMinute)}
}

// note adds a row unless the address has one in this minute.
func (r *rejections) note(addr netip.Addr, code string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Unix() / 60; minute != r.minute || r.seen == nil {
		r.minute, r.seen = minute, map[netip.Addr]bool{}
	}
	key := lockKey(addr)
	if r.seen[key] || len(r.seen) >= rejectedPerMinute {
		return
	}
	r.seen[key] = true
	select {
	case r.rows <- chat.Audit{Who: "nobody", Verb: verbRefused, Object: code, Peer: addr.String()}:
	default:
	}
}

// logRejected writes the rows until ctx is over.
func (s *Server) logRejected(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case row := <-s.rejected.rows:
			s.writeRejected(ctx, row)
		}
	}
}

func (s *Server) writeRejected(ctx context.Context, row chat.Audit) {
	ctx, cancel := context.WithTimeout(ctx, rejectedTime)
	defer cancel()
	if err := s.backend.Audit(ctx, row); err != nil {
		s.warnings.Do(func() {
			s.log.WarnContext(ctx, "a refused credential is not in the log of changes", slog.String("addr", row.Peer), slog.Any("err", err))
		})
	}
}
