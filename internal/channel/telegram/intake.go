package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/retry"
)

const (
	// maxTries is how often an update that fails for a reason of its own is tried before it is put aside.
	maxTries = 3
	// minUpdatePause and maxUpdatePause bound the wait between two tries.
	minUpdatePause = 250 * time.Millisecond
	maxUpdatePause = 5 * time.Second
	// albumGap is how long the next part of an album may be away, maxAlbum how many parts there can be.
	albumGap = time.Second
	maxAlbum = 10
	// maxOpen is how many updates a webhook may have open; polling never has more than one batch.
	maxOpen = 256
)

var (
	errNotRunning = errors.New("the channel does not run")
	errTooMany    = errors.New("too many updates at once")
)

// job is one update on its way.
type job struct {
	update
	// once: a failure is told to whoever delivered it instead of being tried again here.
	once bool
	done chan struct{} // closed when err is set
	err  error
	// hurry ends the downloads of the update; it is called late by soon, if that is set. See crowded.
	hurry context.CancelCauseFunc
	soon  *time.Timer
}

// intake works on updates: in order within a chat, side by side between chats, so that a slow download holds up nobody else. It knows
// which updates are not finished, and with it the offset that may be confirmed: Telegram forgets what is before it. An urgent command leaves the
// order of its chat when what is before it takes long: see overtake.
type intake struct {
	c *Channel

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // the life of Run; jobs belong to no call
	wg      sync.WaitGroup
	chats   map[int64]*line
	pending map[int]*job // not finished, by update id
	order   []int        // ids as they came, finished ones at the front are removed
	ended   map[int]bool // finished: those behind an unfinished one, and the last ones before it
	past    []int        // what ended keeps although nothing unfinished is before it: a poll that was under way may return it once more
	next    int          // behind the last one that was removed from order
	done    chan struct{}
	down    bool // the store could not be reached when last asked
}

// line is the updates of one chat that wait for their turn.
type line struct {
	jobs []*job
	wake chan struct{} // capacity 1: look again
}

func newIntake(c *Channel) *intake { return &intake{c: c} }

// open begins a life. Nothing is remembered from an earlier one: what was not confirmed comes again.
func (in *intake) open(ctx context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ctx, in.chats, in.pending, in.ended = ctx, map[int64]*line{}, map[int]*job{}, map[int]bool{}
	in.order, in.past, in.next, in.done, in.down = nil, nil, 0, make(chan struct{}, 1), false
}

// close takes nothing more and waits until nothing is being worked on; the context of open is over by then.
func (in *intake) close() {
	in.mu.Lock()
	in.ctx = nil
	in.mu.Unlock()
	in.wg.Wait()
}

// take queues a batch of polled updates; those that are known are left alone. An update that cannot be read is put aside. It returns the highest number
// that was not known, 0 = none.
func (in *intake) take(ctx context.Context, raws []json.RawMessage) (highest int) {
	for _, raw := range raws {
		u, err := decode(raw)
		if u.id == 0 {
			in.c.log.ErrorContext(ctx, "an update without a number was left out", "bytes", len(raw))
			continue
		}
		j := &job{update: u, done: make(chan struct{})}
		if !in.enter(j) {
			continue
		}
		highest = max(highest, u.id)
		if err != nil {
			in.park(ctx, j, err)
			in.finish(j, nil)
			continue
		}
		in.mu.Lock()
		in.line(j)
		in.mu.Unlock()
	}
	return highest
}

// deliver queues an update of a webhook and returns the job that works on it, which may be an earlier delivery's.
func (in *intake) deliver(u update) (*job, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch j := in.pending[u.id]; {
	case in.ctx == nil || in.ctx.Err() != nil:
		return nil, errNotRunning
	case j != nil:
		return j, nil
	case len(in.pending) >= maxOpen:
		return nil, errTooMany
	}
	j := &job{update: u, once: true, done: make(chan struct{})}
	in.pending[u.id] = j
	in.line(j)
	return j, nil
}

// enter remembers an update; false when it is known already.
func (in *intake) enter(j *job) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.pending[j.id] != nil || in.ended[j.id] {
		return false
	}
	in.pending[j.id] = j
	in.order = append(in.order, j.id)
	return true
}

// line puts a job behind those of its chat. It starts the chat's goroutine, which ends with its last job. An urgent command does not wait there
// for long. The mutex is held, and the context of open is there.
func (in *intake) line(j *job) {
	j.fetch, j.hurry = context.WithCancelCause(in.ctx)
	in.crowded()
	l := in.chats[j.chat]
	if l != nil {
		l.jobs = append(l.jobs, j)
		wake(l.wake)
		if ctx := in.ctx; in.c.urgent(j.update) {
			in.wg.Go(func() { in.overtake(ctx, l, j) })
		}
		return
	}
	l = &line{jobs: []*job{j}, wake: make(chan struct{}, 1)}
	in.chats[j.chat] = l
	ctx := in.ctx
	in.wg.Go(func() { in.work(ctx, j.chat, l) })
}

func (in *intake) work(ctx context.Context, chatID int64, l *line) {
	for {
		jobs := in.nextOf(ctx, chatID, l)
		if len(jobs) == 0 {
			return
		}
		in.settle(ctx, jobs)
	}
}

// settle works on a job and marks it, and the parts of its album, as finished.
func (in *intake) settle(ctx context.Context, jobs []*job) {
	err := in.try(ctx, jobs)
	for _, j := range jobs {
		if err != nil && !j.once {
			continue // the end of Run: not finished, so not confirmed
		}
		in.finish(j, err)
	}
}

// nextOf takes the next job of a chat with the further parts of its album; none = the chat is done with. At the end of Run what is left stays
// unconfirmed.
func (in *intake) nextOf(ctx context.Context, chatID int64, l *line) []*job {
	in.mu.Lock()
	if ctx.Err() != nil {
		for _, j := range l.jobs {
			j.err = errNotRunning
			close(j.done)
		}
		l.jobs = nil
	}
	if len(l.jobs) == 0 {
		delete(in.chats, chatID)
		in.mu.Unlock()
		return nil
	}
	jobs := []*job{l.jobs[0]}
	l.jobs = l.jobs[1:]
	in.mu.Unlock()
	for jobs[0].album != "" && len(jobs) < maxAlbum {
		part, more := in.part(ctx, l, jobs[0].album)
		if part != nil {
			jobs = append(jobs, part)
		}
		if !more {
			break
		}
	}
	return jobs
}

// part waits for the next part of an album; more is false when something else came or nothing for a while.
func (in *intake) part(ctx context.Context, l *line, album string) (part *job, more bool) {
	t := time.NewTimer(albumGap)
	defer t.Stop()
	for {
		in.mu.Lock()
		if len(l.jobs) > 0 {
			defer in.mu.Unlock()
			if l.jobs[0].album != album {
				return nil, false
			}
			part, l.jobs = l.jobs[0], l.jobs[1:]
			return part, true
		}
		in.mu.Unlock()
		select {
		case <-l.wake:
		case <-t.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// try works on an update until it is settled. What the store's absence keeps from being done is tried as long as it lasts; what fails
// for another reason is put aside after a few times, so that it holds up nobody for ever. An error means not settled.
func (in *intake) try(ctx context.Context, jobs []*job) error {
	failures := 0
	return retry.Do(ctx, retry.Options{
		Policy: retry.Policy{Base: minUpdatePause, Max: maxUpdatePause}, After: asked,
		Retryable: func(err error) bool { return !jobs[0].once || !temporary(err) },
		Notify: func(err error, _ int, _ time.Duration) {
			in.c.log.WarnContext(ctx, "an update could not be handled; trying again", "update_id", jobs[0].id, "err", err)
		},
	}, func(ctx context.Context) error {
		err := in.handle(ctx, jobs)
		absent := temporary(err)
		// A /stop is accepted while the gateway drains, and text while the disk takes no files: fetching goes on.
		in.outage(absent && asked(err) == 0 && !errors.Is(err, chat.ErrDraining) && !errors.Is(err, errDisk))
		if err == nil || absent || ctx.Err() != nil {
			return err
		}
		if failures++; failures == maxTries {
			in.park(ctx, jobs[0], err)
			return nil
		}
		return err
	})
}

// temporary reports whether an error is about the house, or about a wait that Telegram asks for, and not about the update.
func temporary(err error) bool {
	return asked(err) > 0 || errors.Is(err, chat.ErrStoreUnavailable) || errors.Is(err, chat.ErrDraining) || errors.Is(err, errDisk) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// handle does the work; a panic is an error of the update.
func (in *intake) handle(ctx context.Context, jobs []*job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			in.c.log.ErrorContext(ctx, "handling an update panicked", "update_id", jobs[0].id, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	parts := make([]update, 0, len(jobs))
	for _, j := range jobs {
		parts = append(parts, j.update)
	}
	return in.c.handle(ctx, parts)
}

// park gives an update up. It is confirmed like any other, and only the log knows of it.
func (in *intake) park(ctx context.Context, j *job, err error) {
	in.c.obs.Update("parked")
	in.c.log.ErrorContext(ctx, "an update was put aside", "update_id", j.id, "err", in.c.api.clean(err.Error()))
}

// finish marks a job as settled and moves the offset over everything that is.
func (in *intake) finish(j *job, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.pending, j.id)
	j.err = err
	close(j.done)
	if j.soon != nil {
		j.soon.Stop()
	}
	if j.hurry != nil {
		j.hurry(nil)
	}
	if j.once {
		return
	}
	defer in.crowded()
	in.ended[j.id] = true
	for len(in.order) > 0 && in.ended[in.order[0]] {
		in.past = append(in.past, in.order[0])
		in.next = in.order[0] + 1
		in.order = in.order[1:]
	}
	for len(in.past) > 2*batch {
		delete(in.ended, in.past[0])
		in.past = in.past[1:]
	}
	wake(in.done)
}

// offset is what may be confirmed: the first update that is not settled, else what follows the last one. 0 = whatever Telegram has not seen
// confirmed, which is how every life begins: the truth about that is Telegram's, and what was accepted before is known to the store.
func (in *intake) offset() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.order) > 0 {
		return in.order[0]
	}
	return in.next
}

// busy reports whether Telegram would return known updates at once.
func (in *intake) busy() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.order) > 0
}

// rest waits a moment, or until everything is settled; without a store for as long as that lasts, because nothing new could be kept.
func (in *intake) rest(ctx context.Context) {
	t := time.NewTimer(busyPause)
	defer t.Stop()
	for {
		select {
		case <-in.done:
		case <-t.C:
			if !in.isDown() {
				return
			}
			t.Reset(busyPause)
		case <-ctx.Done():
			return
		}
		if !in.busy() {
			return
		}
	}
}

func (in *intake) outage(down bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.down = down
}

func (in *intake) isDown() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.down
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
