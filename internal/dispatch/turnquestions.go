package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/store"
	"laneway/internal/tool"
)

const (
	// topicAnswer is the cluster event of an answer for which a turn of another replica may be
	// waiting.
	topicAnswer = "answer"
	// answerEvery is the interval at which a turn polls for its answer while there are other
	// replicas, because an event may be lost.
	answerEvery = 5 * time.Second
	// closeTime limits the end of a wait.
	closeTime = time.Second
)

// answered is the event.
type answered struct {
	ID string `json:"id"`
}

// turnAsker asks the person of one turn, which waits for the answer.
type turnAsker struct {
	*questions

	turn    *turn
	who     tool.Person
	session chat.SessionKey // of the root of the tree
}

// asker returns who can be asked in a turn: the same person as for tool calls, at the same place.
// nil = no person can be asked, as in turns of jobs and in their sub-turns.
func (q *questions) asker(t *turn) agent.Asker {
	texts, place := t.journal.messages(), t.place()
	root := t.atRoot(texts[len(texts)-1], place)
	who := q.personOf(root, t.run.Principal)
	if t.attempt.Unattended() || place.NoActs != "" || who.Principal == "" {
		return nil
	}
	return &turnAsker{questions: q, turn: t, who: who, session: root.Session}
}

// Ask implements [agent.Asker].
func (a *turnAsker) Ask(ctx context.Context, asked agent.Question) (int, error) {
	if why := barred(a.turn.journal.messages()); why != "" {
		return 0, chat.Errorf(chat.CodeForbidden, "%s", why)
	}
	if len(asked.Options) == 0 {
		return 0, errors.New("a question without options")
	}
	node, err := a.node.Alive()
	if err != nil {
		return 0, err
	}
	by := a.turn.run.Session.Agent
	if n, err := a.approved(ctx, by, asked); err != nil || n >= 0 {
		return n, err
	}
	body, err := json.Marshal(runnersQuestion{Agent: by, Run: a.turn.run.RunID, Text: asked.Text, Act: actKey(asked.Act), Options: asked.Options})
	if err != nil {
		return 0, fmt.Errorf("encoding a question: %w", err)
	}
	q := question{id: questionID(), who: a.who, session: a.session, agent: by, what: asked.Text, options: asked.Options, life: store.QuestionLife}
	if until, ok := ctx.Deadline(); ok {
		q.life = min(q.life, time.Until(until))
	}
	woken := a.wait(q.id, a.turn.run.RunID)
	defer a.forget(q.id)
	if err := a.put(ctx, newID(), q, store.Question{Body: body, Waits: node}); err != nil {
		return a.end(ctx, q.id, err)
	}
	n, err := a.await(ctx, q.id, woken)
	if errors.Is(err, context.DeadlineExceeded) {
		a.report(ctx, q)
	}
	return n, err
}

// report informs the person that a question was closed without an answer.
func (a *turnAsker) report(ctx context.Context, q question) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	text := "No answer came within " + command.DurationWords(q.life.Round(time.Second)) + ", so the agent " + q.agent + " may not: " + q.what
	if err := a.send(ctx, newID(), q.who, q.session, store.Outgoing{Text: text}); err != nil {
		a.log.WarnContext(ctx, "the end of a question without an answer is not reported", "question", q.id, "err", err)
	}
}

// actVersion begins the act of a stored answer. It changes when the acts of runners get another
// meaning, so that earlier answers no longer match.
const actVersion = "2 "

// actKey returns the stored form of an act; shownAct is its inverse.
func actKey(act string) string {
	if act == "" {
		return ""
	}
	return actVersion + act
}

func shownAct(key string) string { return strings.TrimPrefix(key, actVersion) }

// approved returns the number of the option that the person has chosen for all questions with the
// same act, from 0; -1 = no such choice.
func (a *turnAsker) approved(ctx context.Context, by string, asked agent.Question) (int, error) {
	if asked.Act == "" {
		return -1, nil
	}
	list, err := a.store.Approvals(ctx, a.who.Principal, a.session)
	if err != nil {
		return -1, fmt.Errorf("reading approvals: %w", err)
	}
	for _, approval := range list {
		option := agent.Option{Label: approval.Label, Allow: true, Always: true}
		if n := slices.Index(asked.Options, option); n >= 0 && approval.Agent == by && approval.Act == actKey(asked.Act) {
			return n, nil
		}
	}
	return -1, nil
}

// await returns the number of the chosen option, from 0.
func (a *turnAsker) await(ctx context.Context, id string, woken <-chan struct{}) (int, error) {
	tick := time.NewTicker(answerEvery)
	defer tick.Stop()
	missed := false // the last query of the store failed
	for {
		select {
		case <-woken:
		case <-tick.C:
			if !missed && !a.node.HasPeers() {
				continue
			}
		case <-ctx.Done():
			return a.end(ctx, id, context.Cause(ctx))
		}
		asked, err := a.store.Question(ctx, id)
		if missed = err != nil; missed {
			a.log.DebugContext(ctx, "the answer to a question was not read", "question", id, "err", err)
		} else if asked.State == store.QuestionChosen {
			return asked.Option - 1, nil
		}
	}
}

// end ends the wait with a reason. An answer that arrived first counts, because its person was
// informed that it does.
func (a *turnAsker) end(ctx context.Context, id string, why error) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	asked, err := a.store.CloseQuestion(ctx, id)
	a.changed(a.session, a.who.Principal, questionClosed)
	switch {
	case err == nil && asked.State == store.QuestionChosen:
		return asked.Option - 1, nil
	case err != nil && !errors.Is(err, chat.ErrNotFound):
		a.log.WarnContext(ctx, "a question of a turn that no longer waits stays open until it expires", "question", id, "err", err)
	}
	return 0, why
}

// waiter is a turn that waits for an answer. woken buffers one signal.
type waiter struct {
	woken chan struct{}
	run   string
}

// wait registers a turn that waits for an answer.
func (q *questions) wait(id, run string) <-chan struct{} {
	woken := make(chan struct{}, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[id] = waiter{woken, run}
	return woken
}

// askedBy returns the runs of this process that wait for the answer of a person.
func (q *questions) askedBy() map[string]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	runs := make(map[string]bool, len(q.waiting))
	for _, w := range q.waiting {
		runs[w.run] = true
	}
	return runs
}

func (q *questions) forget(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, id)
}

// wake makes the turn query its answer, if it runs in this process.
func (q *questions) wake(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if woken := q.waiting[id].woken; woken != nil {
		select {
		case woken <- struct{}{}:
		default: // it was already woken
		}
	}
}

// receive handles the event of another replica.
func (q *questions) receive(ctx context.Context, text string) {
	var a answered
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		q.log.DebugContext(ctx, "an event of an answer cannot be read", "err", err)
		return
	}
	q.wake(a.ID)
}

// questionID returns an id that is short enough to be typed. It has no effect when another person
// uses it.
func questionID() string {
	var raw [6]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
}

// outsideTime limits an allowed call of another server.
const outsideTime = time.Minute

// outsideCalls are the allowed calls of tools of other servers. Such a call may take a minute and
// has no idempotency key at its server. So [questions.run] makes it concurrently with the command
// that allows it, and at most once. A call that a process may have started before it ended is not
// repeated, and the person is informed.
type outsideCalls struct {
	allowed chan store.Question // from the commands to run

	mu    sync.Mutex
	begun map[string]bool // by question
}

func newOutsideCalls() *outsideCalls {
	return &outsideCalls{allowed: make(chan store.Question), begun: map[string]bool{}}
}

// pass passes a call to run, unless it was passed before. The result is the reply for the person.
func (o *outsideCalls) pass(ctx context.Context, asked store.Question) (string, error) {
	const follows = "It is being done; the result follows."
	if !o.begin(asked.ID) {
		return follows, nil
	}
	select {
	case o.allowed <- asked:
		return follows, nil
	case <-ctx.Done():
		o.forget(asked.ID)
		return "", chat.Errorf(chat.CodeRateLimited, "the gateway is busy; write the same again")
	}
}

// begin reports whether this process has not started the call before.
func (o *outsideCalls) begin(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun[id] {
		return false
	}
	o.begun[id] = true
	return true
}

// all returns the calls that this process has started and not recorded.
func (o *outsideCalls) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.begun))
}

func (o *outsideCalls) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.begun, id)
}

// makeOutside makes a call of another server and sends the person its result. When the result
// cannot be recorded, the call remains marked as started: it is not repeated.
func (q *questions) makeOutside(ctx context.Context, asked store.Question) {
	p, err := pending(asked)
	if err == nil {
		bound, cancel := context.WithTimeout(ctx, outsideTime)
		result := q.tools.Make(bound, p)
		cancel()
		err = q.report(ctx, asked, p, result)
	}
	if err != nil {
		q.log.WarnContext(ctx, "the result of an allowed call was not recorded", "question", asked.ID, "err", err)
		return
	}
	q.outside.forget(asked.ID)
}
