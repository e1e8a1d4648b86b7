package dispatch

import (
	"sync"
	"time"

	"laneway/internal/events"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// runningTurns are the turns that have started and not returned, by the turn of the scheduler. After a lost lease two of them may have the
// same run id: the old one, which is ending, and the one that repeats it.
type runningTurns struct {
	mu sync.Mutex
	by map[*scheduler.Turn[work]]runningTurn
}

// runningTurn is the immutable part of a turn that other goroutines may read.
type runningTurn struct {
	run     *events.Run
	agent   Agent
	started store.Started
	began   time.Time
	journal *journal
}

func (r *runningTurns) add(st *scheduler.Turn[work], t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[*scheduler.Turn[work]]runningTurn{}
	}
	r.by[st] = runningTurn{run: t.run, agent: t.agent, started: t.started, began: t.began, journal: t.journal}
}

func (r *runningTurns) remove(st *scheduler.Turn[work]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, st)
}

func (r *runningTurns) get(st *scheduler.Turn[work]) (runningTurn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.by[st]
	return t, ok
}

// ids returns the run ids of the turns.
func (r *runningTurns) ids() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make(map[string]bool, len(r.by))
	for _, t := range r.by {
		ids[t.run.RunID] = true
	}
	return ids
}
