package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// admission limits the waiting messages and named sessions of one credential, and refuses messages
// while a disk is nearly full. A message between the check and its acceptance counts as waiting, so
// that concurrent calls do not all take the last place.
type admission struct {
	*parts

	namings namings
	mu      sync.Mutex
	coming  map[string]int // by principal, between the check and their acceptance
}

// admitMessage refuses a message that may not be stored now: the disk is nearly full, or by, the
// caller of the gateway, has too many waiting messages or sessions. by is nil for a message of a
// channel, which has its own limits. Call done when the message was accepted or refused.
func (a *admission) admitMessage(ctx context.Context, m chat.Message, by *chat.Caller) (done func(created bool), err error) {
	if err := a.diskFault(); err != nil {
		return nil, err
	}
	leave := func() {}
	if by != nil {
		leave, err = a.admit(ctx, by.Principal, by.Own, 1)
		if err != nil && a.accepted(ctx, m) {
			return func(bool) {}, nil // nothing new will wait: the call returns the existing message
		}
		if err != nil {
			return nil, err
		}
		if err := a.mayName(ctx, &m, *by); err != nil {
			leave()
			return nil, err
		}
	}
	return func(created bool) {
		if created && counts(&m) {
			a.namings.made(m.Principal)
		}
		leave()
	}, nil
}

// accepted reports whether a message with an idempotency key was accepted before, under the id that
// the key gives it.
func (a *admission) accepted(ctx context.Context, m chat.Message) bool {
	if m.Dedupe == "" {
		return false
	}
	_, err := a.store.MessageByID(ctx, m.ID)
	return err == nil
}

// waitLimit returns how many messages of a principal may wait in this process; 0 = no limit.
func (a *admission) waitLimit(principal string, own bool) int {
	if own || a.bounded(principal) {
		return a.cfg.OwnWaiting
	}
	return a.cfg.CallerWaiting
}

// admit reserves places for n more messages of a caller, or refuses them. Release them with leave
// once the messages are accepted. The limit of concurrent turns does not refuse messages; only
// waiting messages are limited. More messages than the limit are admitted when no message waits.
func (a *admission) admit(ctx context.Context, principal string, own bool, n int) (leave func(), err error) {
	limit := a.waitLimit(principal, own)
	if limit == 0 {
		return func() {}, nil
	}
	n = min(n, limit)
	coming, waiting := a.reserve(principal, n), a.sched.Stats().Sessions.Waiting
	if coming+waiting > limit { // of all principals: only then it matters whose they are
		if waiting, err = a.store.WaitingOf(ctx, a.node.ID(), principal, limit); err == nil && coming+waiting > limit {
			err = tooManyWaiting(limit)
		}
	}
	if err != nil {
		a.leave(principal, n)
		return nil, err
	}
	return func() { a.leave(principal, n) }, nil
}

// reserve counts messages that are about to be accepted, and returns how many there are.
func (a *admission) reserve(principal string, n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.coming == nil {
		a.coming = map[string]int{}
	}
	a.coming[principal] += n
	return a.coming[principal]
}

func (a *admission) leave(principal string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.coming[principal] -= n; a.coming[principal] == 0 {
		delete(a.coming, principal)
	}
}

// tooManyWaiting returns the error for a message whose sender has reached the limit of waiting
// messages.
func tooManyWaiting(limit int) error {
	return &chat.Error{
		Code: chat.CodeRateLimited, Retryable: true, RetryAfter: time.Second, Details: map[string]any{"limit": limit},
		Message: fmt.Sprintf("%d messages of this credential wait already; send it again when some of them have been answered", limit),
	}
}

// restrain limits a message of a caller that sees only its own data: to the lane main, and to the
// timeout of the agent. It refuses nothing, because clients send both by default.
func (a *admission) restrain(m *chat.Message) {
	m.Lane = scheduler.LaneMain
	limit := turnTime(a.agents[m.Session.Agent])
	if o := &m.Content.Options; o.TimeoutMs > limit.Milliseconds() {
		o.TimeoutMs = 0
	}
}

// diskRetry is the retry delay for senders while a disk has too little free space.
const diskRetry = 10 * time.Second

// diskFault refuses new messages while a disk has too little free space, as if the database were
// full: accepted work needs the remaining space. Channels keep such a message and offer it again.
func (a *admission) diskFault() error {
	if a.cfg.Space == nil {
		return nil
	}
	err := a.cfg.Space()
	if err == nil {
		return nil
	}
	return &chat.Error{
		Code: chat.CodeStoreUnavailable, Retryable: true, RetryAfter: diskRetry, Cause: err, Details: map[string]any{"check": string(chat.CheckDisk)},
		Message: "the disk of the gateway is nearly full, and nothing was stored; send it again when there is space",
	}
}

// The maximum age of a cached count of sessions. A new count includes what other processes made and
// what was deleted.
const (
	countFar  = 10 * time.Minute // less than half of the limit is used
	countNear = time.Minute
	countFull = 5 * time.Second // the limit is reached: a deletion frees a place
)

// namings caches how many sessions each principal has named. A count is exact if this is the only
// process of its store; sessions of other processes are included after at most countFar.
type namings struct {
	mu     sync.Mutex
	counts map[string]naming // limited: principals are credentials and hooks
}

type naming struct {
	n  int
	at time.Time
}

// recent returns the cached count of a principal, and whether it is recent enough.
func (s *namings) recent(principal string, limit int) (naming, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.counts[principal]
	age := countFar
	switch {
	case c.n >= limit:
		age = countFull
	case c.n >= limit/2:
		age = countNear
	}
	return c, ok && time.Since(c.at) < age
}

func (s *namings) set(principal string, c naming) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[string]naming{}
	}
	s.counts[principal] = c
}

// made counts a session that this process has made.
func (s *namings) made(principal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.counts[principal]; ok {
		c.n++
		s.counts[principal] = c
	}
}

// counts reports whether the session of a message counts towards the limit of its caller: a session
// that the caller named, or a branch.
func counts(m *chat.Message) bool { return m.Session.Named() || m.Branch != nil }

// mayName refuses to create a session for a caller that has reached its limit. Existing sessions
// can be used.
func (a *admission) mayName(ctx context.Context, m *chat.Message, by chat.Caller) error {
	limit := a.cfg.CallerSessions
	if by.Own || a.bounded(by.Principal) {
		limit = a.cfg.OwnSessions
	}
	if limit == 0 || !counts(m) {
		return nil
	}
	c, ok := a.namings.recent(by.Principal, limit)
	if !ok {
		_, n, err := a.store.ListSessions(store.OnBehalfOf(ctx, ""), store.SessionFilter{Visible: by.Principal, Named: true, Limit: 1, Count: limit})
		if err != nil {
			return err
		}
		c = naming{n: n, at: time.Now()}
		a.namings.set(by.Principal, c)
	}
	if c.n < limit {
		return nil
	}
	_, err := a.store.Session(ctx, m.Session, "")
	if !errors.Is(err, chat.ErrSessionNotFound) {
		return err
	}
	return chat.Errorf(chat.CodeLimit, "this credential has %d named sessions and branches, which is the limit; use one of them, or delete some", limit).
		With("field", "sessionKey").With("limit", limit)
}

// tidyAt is how many bursts are kept before old ones are removed.
const tidyAt = 512

// answerBursts are the answers of urgent commands that chats have received. A burst of such
// commands is executed, and answered once for each text: otherwise the answers would use up what
// the chat network accepts, and no other message would reach the chat for minutes.
type answerBursts struct {
	mu   sync.Mutex
	last map[chatAnswer]answerTimes
}

// answerTimes are when an answer was sent, and when a command had it last.
type answerTimes struct{ sent, last time.Time }

// chatAnswer is the text of an answer for a chat.
type chatAnswer struct {
	to   chat.Target
	text string
}

// answerBurst is the pause that ends a burst, so that a chat gets at most twenty such answers a
// minute; a burst without a pause is answered once each answerAgain.
const (
	answerBurst = 3 * time.Second
	answerAgain = time.Minute
)

// repeats reports whether the answer of a command repeats the one before it in a burst.
func (a *answerBursts) repeats(m chat.Message, text string) bool {
	one, now := chatAnswer{m.Content.Options.ReplyTo, text}, time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.last) >= tidyAt {
		maps.DeleteFunc(a.last, func(_ chatAnswer, b answerTimes) bool { return now.Sub(b.last) >= answerBurst })
	}
	before, ok := a.last[one]
	if ok = ok && now.Sub(before.last) < answerBurst && now.Sub(before.sent) < answerAgain; !ok {
		before.sent = now
	}
	if a.last == nil {
		a.last = map[chatAnswer]answerTimes{}
	}
	a.last[one] = answerTimes{before.sent, now}
	return ok
}

func defaultQueue(_, _, kind string) scheduler.Settings {
	if kind == chat.KindGroup {
		return scheduler.Settings{MaxConcurrent: defaultGroup}
	}
	return scheduler.Settings{}
}
