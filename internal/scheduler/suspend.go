package scheduler

import "sync"

// Suspend prevents the session from starting turns until resume is called; running turns continue, and messages are accepted and wait. It is for a caller that
// stops a session in two steps: it cancels the turns here immediately and then writes the stop into a durable store. Without Suspend, a message that arrives
// between the two steps would start in place of a cancelled turn although the store is about to end it. Calls are counted, so that two stops of one session may
// overlap; further calls of one resume function have no effect. Neither function blocks.
func (s *Scheduler[M]) Suspend(key string) (resume func()) {
	s.suspend(key, 1)
	return sync.OnceFunc(func() { s.suspend(key, -1) })
}

// suspend changes the count of the session by one, up or down, and settles the session: it leaves the ready list or returns to it.
func (s *Scheduler[M]) suspend(key string, by int) {
	fx := s.begin()
	s.mu.Lock()
	s.core.queues.suspend(key, by)
	if x, ok := s.core.queues.byKey[key]; ok {
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
}

func (q *queues[M]) suspend(key string, by int) {
	if q.suspended == nil {
		q.suspended = map[string]int{}
	}
	if q.suspended[key] += by; q.suspended[key] == 0 {
		delete(q.suspended, key)
	}
}

func (q *queues[M]) isSuspended(key string) bool { return len(q.suspended) > 0 && q.suspended[key] > 0 }
