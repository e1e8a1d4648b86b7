package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/chat"
	"laneway/internal/retry"
)

const (
	// maxTries is how often an update that fails because of its content is tried before it is
	// parked.
	maxTries = 3
	// minUpdatePause and maxUpdatePause bound the wait between two attempts.
	minUpdatePause = 250 * time.Millisecond
	maxUpdatePause = 5 * time.Second
	// albumGap is the longest time between two parts of an album; maxAlbum is their largest number.
	albumGap = time.Second
	maxAlbum = 10
	// maxOpen is the largest number of unfinished updates of a webhook; polling never has more than
	// one batch.
	maxOpen = 256
)

var (
	errNotRunning = errors.New("the channel does not run")
	errTooMany    = errors.New("too many updates at once")
)

// task is one update on its way through the intake.
type task struct {
	update
	// webhook is true when a failure is returned as the answer to the delivery, and not retried
	// here.
	webhook bool
	done    chan struct{} // closed when err is set
	err     error
	// endDownloads ends the downloads of the update. deadline calls it; it is set only while there
	// is a backlog, see boundOldest.
	endDownloads context.CancelCauseFunc
	deadline     *time.Timer
}

// intake works on updates: in order within a chat, concurrently between chats, so that a slow
// download delays one chat alone. It records which updates are not finished, and so the offset that
// may be confirmed: Telegram deletes the updates before it. An urgent command leaves the order of
// its chat when earlier updates take long: see overtake.
//
// It owns one goroutine for each chat with unfinished updates, and one for each urgent command that
// waits; close waits for them. The lock is not held while an update is handled.
type intake struct {
	handler *inbound
	metrics *Metrics
	log     *slog.Logger
	clean   func(string) string // removes secrets from the text of an error

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // the life of Run; tasks belong to no call
	wg      sync.WaitGroup
	chats   map[int64]*chatQueue
	pending map[int]*task // not finished, by update id
	order   []int         // ids of polled updates as they came; finished ones at the front are removed
	ended   map[int]bool  // finished: those after an unfinished one, and the last ones before it
	past    []int         // ids in ended that are before order: a running poll may return them once more
	next    int           // after the last id that was removed from order
	done    chan struct{} // capacity 1: an update was finished
	down    bool          // the last attempt could not reach the store
}

// chatQueue has the waiting updates of one chat.
type chatQueue struct {
	tasks []*task
	wake  chan struct{} // capacity 1: look again
}

// open starts the intake for one call of Run. It drops the state of an earlier call: Telegram
// returns what was not confirmed.
func (in *intake) open(ctx context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ctx, in.chats, in.pending, in.ended = ctx, map[int64]*chatQueue{}, map[int]*task{}, map[int]bool{}
	in.order, in.past, in.next, in.done, in.down = nil, nil, 0, make(chan struct{}, 1), false
}

// close accepts no further update and waits until no goroutine is left. The caller has ended the
// context of open.
func (in *intake) close() {
	in.mu.Lock()
	in.ctx = nil
	in.mu.Unlock()
	in.wg.Wait()
}

// take queues a batch of polled updates and skips known ones. An update that cannot be read is
// parked. It returns the highest new number, 0 if none.
func (in *intake) take(ctx context.Context, raws []json.RawMessage) (highest int) {
	for _, raw := range raws {
		u, err := decode(raw)
		if u.id == 0 {
			in.log.ErrorContext(ctx, "an update without a number was left out", "bytes", len(raw))
			continue
		}
		t := &task{update: u, done: make(chan struct{})}
		if !in.register(t) {
			continue
		}
		highest = max(highest, u.id)
		if err != nil {
			in.park(ctx, t.id, err)
			in.finish(t, nil)
			continue
		}
		in.mu.Lock()
		in.enqueue(t)
		in.mu.Unlock()
	}
	return highest
}

// deliver queues an update of a webhook and returns its task, which may be that of an earlier
// delivery of the same update.
func (in *intake) deliver(u update) (*task, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch t := in.pending[u.id]; {
	case in.ctx == nil || in.ctx.Err() != nil:
		return nil, errNotRunning
	case t != nil:
		return t, nil
	case len(in.pending) >= maxOpen:
		return nil, errTooMany
	}
	t := &task{update: u, webhook: true, done: make(chan struct{})}
	in.pending[u.id] = t
	in.enqueue(t)
	return t, nil
}

// register records a polled update as unfinished; false if it is already known.
func (in *intake) register(t *task) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.pending[t.id] != nil || in.ended[t.id] {
		return false
	}
	in.pending[t.id] = t
	in.order = append(in.order, t.id)
	return true
}

// enqueue adds a task to the queue of its chat. It starts the goroutine of the chat, which ends
// with the last task of the queue; an urgent command that would have to wait has a separate
// goroutine. The mutex is held, and the context of open is set.
func (in *intake) enqueue(t *task) {
	t.fetch, t.endDownloads = context.WithCancelCause(in.ctx)
	in.boundOldest()
	ctx, q := in.ctx, in.chats[t.chat]
	if q == nil {
		q = &chatQueue{tasks: []*task{t}, wake: make(chan struct{}, 1)}
		in.chats[t.chat] = q
		in.wg.Go(func() { in.work(ctx, t.chat, q) })
		return
	}
	q.tasks = append(q.tasks, t)
	wake(q.wake)
	if in.handler.urgent(t.update) {
		in.wg.Go(func() { in.overtake(ctx, q, t) })
	}
}

func (in *intake) work(ctx context.Context, chatID int64, q *chatQueue) {
	for {
		tasks := in.nextOf(ctx, chatID, q)
		if len(tasks) == 0 {
			return
		}
		in.settle(ctx, tasks)
	}
}

// settle works on an update, or on the parts of an album, and marks them as finished.
func (in *intake) settle(ctx context.Context, tasks []*task) {
	err := in.try(ctx, tasks)
	for _, t := range tasks {
		if err != nil && !t.webhook {
			continue // the end of Run: not finished, so not confirmed
		}
		in.finish(t, err)
	}
}

// nextOf takes the next update of a chat with the further parts of its album; it returns none when
// the queue is empty and removed. At the end of Run the rest of the queue stays unconfirmed.
func (in *intake) nextOf(ctx context.Context, chatID int64, q *chatQueue) []*task {
	in.mu.Lock()
	if ctx.Err() != nil {
		for _, t := range q.tasks {
			t.err = errNotRunning
			close(t.done)
		}
		q.tasks = nil
	}
	if len(q.tasks) == 0 {
		delete(in.chats, chatID)
		in.mu.Unlock()
		return nil
	}
	tasks := []*task{q.tasks[0]}
	q.tasks = q.tasks[1:]
	in.mu.Unlock()
	for tasks[0].album != "" && len(tasks) < maxAlbum {
		part, more := in.part(ctx, q, tasks[0].album)
		if part != nil {
			tasks = append(tasks, part)
		}
		if !more {
			break
		}
	}
	return tasks
}

// part waits for the next part of an album. more is false when another update came, or none within
// albumGap.
func (in *intake) part(ctx context.Context, q *chatQueue, album string) (part *task, more bool) {
	t := time.NewTimer(albumGap)
	defer t.Stop()
	for {
		in.mu.Lock()
		if len(q.tasks) > 0 {
			defer in.mu.Unlock()
			if q.tasks[0].album != album {
				return nil, false
			}
			part, q.tasks = q.tasks[0], q.tasks[1:]
			return part, true
		}
		in.mu.Unlock()
		select {
		case <-q.wake:
		case <-t.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// try works on an update until it is settled; an error means that it is not. Temporary failures are
// repeated as long as they last. An update that fails for another reason is parked after maxTries,
// because it would delay its chat, and the offset, forever.
func (in *intake) try(ctx context.Context, tasks []*task) error {
	failures := 0
	return retry.Do(ctx, retry.Options{
		Policy: retry.Policy{Base: minUpdatePause, Max: maxUpdatePause}, After: asked,
		Retryable: func(err error) bool { return !tasks[0].webhook || !temporary(err) },
		Notify: func(err error, _ int, _ time.Duration) {
			in.log.WarnContext(ctx, "an update could not be handled; trying again", "update_id", tasks[0].id, "err", err)
		},
	}, func(ctx context.Context) error {
		err := in.handle(ctx, tasks)
		passes := temporary(err)
		// A /stop is accepted while the gateway drains, and text while the disk accepts no files:
		// fetching continues.
		in.setDown(passes && asked(err) == 0 && !errors.Is(err, chat.ErrDraining) && !errors.Is(err, errDisk))
		if err == nil || passes || ctx.Err() != nil {
			return err
		}
		if failures++; failures == maxTries {
			in.park(ctx, tasks[0].id, err)
			return nil
		}
		return err
	})
}

// temporary reports whether the cause of an error is the gateway, this host or a wait that Telegram
// asks for, and not the update.
func temporary(err error) bool {
	return asked(err) > 0 || errors.Is(err, chat.ErrStoreUnavailable) || errors.Is(err, chat.ErrDraining) || errors.Is(err, errDisk) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// handle calls the handler once; a panic is an error of the update.
func (in *intake) handle(ctx context.Context, tasks []*task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			in.log.ErrorContext(ctx, "handling an update panicked", "update_id", tasks[0].id, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	parts := make([]update, 0, len(tasks))
	for _, t := range tasks {
		parts = append(parts, t.update)
	}
	return in.handler.handle(ctx, parts)
}

// park gives up an update. It is confirmed like any other, and recorded only in the log.
func (in *intake) park(ctx context.Context, id int, err error) {
	in.metrics.update("parked")
	in.log.ErrorContext(ctx, "an update was put aside", "update_id", id, "err", in.clean(err.Error()))
}

// finish marks a task as settled and moves the offset past every settled update at the front.
func (in *intake) finish(t *task, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.pending, t.id)
	t.err = err
	close(t.done)
	if t.deadline != nil {
		t.deadline.Stop()
	}
	if t.endDownloads != nil {
		t.endDownloads(nil)
	}
	if t.webhook {
		return
	}
	defer in.boundOldest()
	in.ended[t.id] = true
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

// offset returns the offset of the next poll: the first update that is not settled, otherwise the
// number after the last one. It is 0 before the first update: Telegram then returns every update
// that was not confirmed, and the store recognizes those whose messages were accepted before.
func (in *intake) offset() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.order) > 0 {
		return in.order[0]
	}
	return in.next
}

// busy reports whether there are unfinished updates. Telegram would return these at once.
func (in *intake) busy() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.order) > 0
}

// rest waits for busyPause, or until every update is settled. While the store cannot be reached it
// continues to wait, because nothing new could be stored.
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

// setDown records whether the store could be reached.
func (in *intake) setDown(down bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.down = down
}

func (in *intake) isDown() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.down
}

// wake sends to a channel of capacity one without blocking: one pending signal is enough.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// urgentPatience is how long an urgent command waits for the earlier updates of its chat. Updates
// that are settled within it keep their order, so that a /stop stops the message that was sent
// right before it. Slow ones (a download, a store that cannot be reached) are overtaken.
const urgentPatience = 500 * time.Millisecond

// overtake handles an urgent command outside of the queue of its chat, once it has waited for
// urgentPatience. The goroutine that removes the task from the queue settles it: this one, or that
// of the queue. There are never more of these goroutines than unfinished updates.
func (in *intake) overtake(ctx context.Context, q *chatQueue, t *task) {
	if retry.Sleep(ctx, urgentPatience) != nil {
		return // the queue leaves it unconfirmed
	}
	in.mu.Lock()
	at := slices.Index(q.tasks, t)
	if at >= 0 {
		q.tasks = slices.Delete(q.tasks, at, at+1)
	}
	in.mu.Unlock()
	if at >= 0 {
		in.settle(ctx, []*task{t})
	}
}

const (
	// backlogSize is how many updates, from the oldest unfinished one on, count as a backlog.
	// Telegram returns [batch] updates from there and none after them, for all chats, until the
	// oldest is settled.
	backlogSize = batch / 2
	// backlogTime is how long the oldest update may continue its downloads while there is a
	// backlog.
	backlogTime = 5 * time.Second
)

// errBacklog wraps errCallTime because it ends downloads in the same way.
var errBacklog = fmt.Errorf("other chats wait for it: %w", errCallTime)

// boundOldest limits the downloads of the oldest unfinished update to backlogTime while there is a
// backlog. The update is then settled without its file, and its sender receives a note. The mutex
// is held.
func (in *intake) boundOldest() {
	if len(in.order) < backlogSize {
		return
	}
	oldest := in.pending[in.order[0]]
	if oldest == nil || oldest.endDownloads == nil || oldest.deadline != nil {
		return
	}
	oldest.deadline = time.AfterFunc(backlogTime, func() { oldest.endDownloads(errBacklog) })
}

// update is one update of Telegram, decoded twice: by the library, and for the members that the
// library does not know.
type update struct {
	id   int
	chat int64 // the chat in whose order it is handled
	// album joins messages that were sent as one; "" if none.
	album   string
	thread  int // topic; 0 if none or General
	message *tgbotapi.Message
	press   *tgbotapi.CallbackQuery
	// answers is what the library does not decode of the message that the message answers.
	answers answers
	// forwarded text has no authority.
	forwarded bool
	memo      *memo
	// fetch bounds the downloads of the update; it ends with Run, or earlier during a backlog.
	fetch context.Context //nolint:containedctx // an update is worked on by another goroutine than the one that ends this
}

// memo records the completed steps of an update, so that a further attempt does not repeat them.
// Only the goroutine that works on the update uses it.
type memo struct {
	counted bool // counted as a message
	paid    bool // the bytes of its file were counted
	content *chat.Content
}

// more has the members that the library does not decode.
type more struct {
	Message *struct {
		ThreadID      int             `json:"message_thread_id"`
		IsTopic       bool            `json:"is_topic_message"`
		ForwardOrigin json.RawMessage `json:"forward_origin"`
		answers
	} `json:"message"`
	CallbackQuery *struct {
		Message *struct {
			ThreadID int  `json:"message_thread_id"`
			IsTopic  bool `json:"is_topic_message"`
		} `json:"message"`
	} `json:"callback_query"`
}

// answers is what Telegram adds to a message that answers another one.
type answers struct {
	// Quote is the part of it that the person selected.
	Quote *struct {
		Text     string                   `json:"text"`
		Entities []tgbotapi.MessageEntity `json:"entities"`
	} `json:"quote"`
	// External is the message if it is in another chat or topic. It has no text.
	External *struct {
		Origin origin `json:"origin"`
		tgbotapi.Message
	} `json:"external_reply"`
	Replied *struct {
		TopicCreated  json.RawMessage `json:"forum_topic_created"`
		ForwardOrigin json.RawMessage `json:"forward_origin"`
	} `json:"reply_to_message"`
}

// origin is who wrote a message.
type origin struct {
	User       *tgbotapi.User `json:"sender_user"`
	UserName   string         `json:"sender_user_name"`
	SenderChat *tgbotapi.Chat `json:"sender_chat"`
	Chat       *tgbotapi.Chat `json:"chat"`
}

// name returns the display name of an origin.
func (o origin) name() string {
	switch {
	case o.User != nil:
		return nameOf(o.User)
	case o.SenderChat != nil:
		return cleanName(o.SenderChat.Title)
	case o.Chat != nil:
		return cleanName(o.Chat.Title)
	default:
		return cleanName(o.UserName)
	}
}

var errUpdate = errors.New("the update cannot be read")

// decode reads an update. Even if the rest cannot be read, the number of the update is set, if it
// has one.
func decode(raw []byte) (update, error) {
	var number struct {
		UpdateID int `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &number); err != nil || number.UpdateID <= 0 {
		return update{}, fmt.Errorf("%w: it has no number", errUpdate)
	}
	u := update{id: number.UpdateID, memo: &memo{}}
	var known tgbotapi.Update
	var extra more
	if err := json.Unmarshal(raw, &known); err != nil {
		return u, fmt.Errorf("%w: %w", errUpdate, err)
	}
	if err := json.Unmarshal(raw, &extra); err != nil {
		return u, fmt.Errorf("%w: %w", errUpdate, err)
	}
	u.message, u.press = known.Message, known.CallbackQuery
	if m := u.message; m != nil && m.Chat != nil {
		u.chat, u.album = m.Chat.ID, m.MediaGroupID
		u.forwarded = m.ForwardDate != 0 || len(extra.Message.ForwardOrigin) > 0
		u.thread = topic(extra.Message.IsTopic, extra.Message.ThreadID)
		u.answers = extra.Message.answers
	}
	if p := u.press; p != nil && p.Message != nil && p.Message.Chat != nil {
		u.chat = p.Message.Chat.ID
		if m := extra.CallbackQuery.Message; m != nil {
			u.thread = topic(m.IsTopic, m.ThreadID)
		}
	}
	return u, nil
}

// topic returns the thread of a forum's topic, 0 if none. Reply threads in a plain group are not
// topics, and General counts as no topic.
func topic(is bool, id int) int {
	if !is || id == general {
		return 0
	}
	return id
}
