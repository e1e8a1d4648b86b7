package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/store"
	"laneway/internal/tool"
)

// questions asks people for permission for actions of agents. A question is a row and a message
// with buttons, which send /allow, /deny or /answer. The store decides who may answer, until when,
// and which answer counts. There are two kinds:
//
//   - A call of a tool of the gateway does not block its turn. Before the row exists, a crash
//     leaves a call without a result, which is repeated with its turn. After that, the question is
//     sent once, under an id derived from its key. After the answer, this process makes the call;
//     if it ends before the result is recorded, another process does. A call of a tool of another
//     server is made concurrently with the command, see [outsideCalls].
//   - A question of a runner ([turnAsker]) blocks its turn and ends with it: with its timeout, its
//     stop, or its process. A turn that runs again asks again. If another replica receives the
//     answer, it wakes the turn by a cluster event.
//
// No lock is held while waiting.
type questions struct {
	*parts

	tools   *tool.Table
	outside *outsideCalls

	mu      sync.Mutex
	waiting map[string]waiter // turns of this process, by question
	inHand  map[string]bool   // allowed calls that this process makes, and those that it has ended (true)
}

// question is a question to a person.
type question struct {
	id      string
	who     tool.Person
	session chat.SessionKey // where it is asked
	agent   string
	what    string // what the agent wants to do, without unprintable characters
	options []agent.Option
	life    time.Duration
}

// The labels of options for which the agent gives no label.
const (
	labelAllow = "Allow"
	labelDeny  = "Deny"
)

func allowOrDeny() []agent.Option {
	return []agent.Option{{Label: labelAllow, Allow: true}, {Label: labelDeny}}
}

// command returns what a person writes to choose an option, which counts from 0.
func (q question) command(option int) string {
	allow := q.options[option].Allow
	same := 0
	for _, o := range q.options {
		if o.Allow == allow {
			same++
		}
	}
	switch {
	case same > 1:
		return fmt.Sprintf("/%s %s %d", command.Choose, q.id, option+1)
	case allow:
		return "/" + command.Allow + " " + q.id
	default:
		return "/" + command.Deny + " " + q.id
	}
}

// maxInRow is the longest label, in characters, that fits next to another one.
const maxInRow = 20

// message returns the question with its buttons, and the same in words.
func (q question) message() store.Outgoing {
	choice := &chat.Choice{For: q.who.ID}
	oneRow := len(q.options) == 2
	var typed []string
	for i, o := range q.options {
		text := q.command(i)
		oneRow = oneRow && len([]rune(o.Label)) <= maxInRow
		choice.Rows = append(choice.Rows, []chat.Button{{Label: o.Label, Text: text}})
		if o.Label != labelAllow && o.Label != labelDeny {
			text += " (" + o.Label + ")"
		}
		typed = append(typed, text)
	}
	if oneRow {
		choice.Rows = [][]chat.Button{slices.Concat(choice.Rows...)}
	}
	last := len(typed) - 1
	choice.Typed = "Write " + strings.Join(append(slices.Clone(typed[:max(0, last-1)]), strings.Join(typed[max(0, last-1):], " or ")), ", ") +
		" within " + command.DurationWords(q.life.Round(time.Second)) + "."
	return store.Outgoing{
		Text: "The agent " + q.agent + " wants to do this for you: " + q.what + "\nAllow it?", Choice: choice, ExpiresAt: time.Now().Add(q.life),
	}
}

// put makes a question durable and sends it in a message with an id. It completes row from the
// question.
func (q *questions) put(ctx context.Context, messageID string, asked question, row store.Question) error {
	row.ID, row.Owner, row.Session, row.Life = asked.id, asked.who.Principal, asked.session, asked.life
	err := q.node.WhileAlive(ctx, func(ctx context.Context) error { return q.store.PutQuestion(ctx, row) })
	if err != nil {
		return fmt.Errorf("asking a person: %w", err)
	}
	q.changed(asked.session, asked.who.Principal, questionAsked)
	return q.send(ctx, messageID, asked.who, asked.session, asked.message())
}

// send puts a message about a question into the outbox; a message id is sent once.
func (q *questions) send(ctx context.Context, messageID string, who tool.Person, session chat.SessionKey, o store.Outgoing) error {
	o.RunID, o.N, o.Session, o.Principal, o.Target, o.Kind, o.Count = messageID, 1, session, who.Principal, who.Target, store.KindReply, 1
	err := q.node.WhileAlive(ctx, func(ctx context.Context) error { return q.store.Enqueue(ctx, []store.Outgoing{o}) })
	if err != nil {
		return fmt.Errorf("sending a question: %w", err)
	}
	q.outbox.Wake()
	return nil
}

// answer implements /allow, /deny, /answer and questions.answer: it returns the reply for the
// person.
func (q *questions) answer(ctx context.Context, by string, a command.QuestionAnswer) (string, error) {
	node, err := q.node.Alive()
	if err != nil {
		return "", err
	}
	asked, err := q.store.Question(ctx, a.ID)
	if errors.Is(err, chat.ErrNotFound) || (err == nil && asked.Owner != by) {
		return "", errNoQuestion()
	}
	if err != nil {
		return "", err
	}
	of, err := runners(asked)
	if err != nil {
		return "", err
	}
	n, err := pick(question{id: a.ID, options: of.Options}, a)
	if err != nil {
		return "", err
	}
	chosen := of.Options[n-1]
	params := store.AnswerQuestion{ID: a.ID, By: by, Option: n, Allow: chosen.Allow, Node: node}
	if chosen.Allow && chosen.Always && strings.HasPrefix(of.Act, actVersion) {
		params.Always = &chat.Approval{Agent: of.Agent, Act: of.Act, Label: chosen.Label}
	}
	defer q.makes(a.ID)()
	asked, err = q.store.AnswerQuestion(ctx, params)
	if errors.Is(err, chat.ErrNotFound) {
		return "", errNoQuestion()
	}
	if err != nil {
		return "", err
	}
	q.changed(asked.Session, by, questionAnswered)
	switch {
	case asked.Waits != "":
		q.wake(a.ID)
		q.events.Send(topicAnswer, &answered{ID: a.ID}, func() {})
		if params.Always != nil {
			return "The answer is: " + chosen.Label + ". It counts here until /new; /approvals lists such answers.", nil
		}
		return "The answer is: " + chosen.Label + ".", nil
	case asked.State == store.QuestionDenied:
		return "It is not done.", nil
	case asked.Result != nil:
		return asked.Result.Text, nil
	}
	p, err := pending(asked)
	switch {
	case err != nil:
		return "", err
	case q.tools.Outside(p.Tool):
		return q.outside.pass(ctx, asked)
	}
	result := q.tools.Make(ctx, p)
	return result.Text, q.end(ctx, asked, p, result)
}

// Reasons of the event that the open questions of a person have changed.
const (
	questionAsked    = "asked"
	questionAnswered = "answered"
	questionClosed   = "closed"
)

// changed publishes that the open questions of a person in a session have changed.
func (q *questions) changed(session chat.SessionKey, principal, reason string) {
	q.events.Publish(chat.Event{Kind: chat.EventQuestions, Session: session, Principal: principal, Reason: reason})
}

func errNoQuestion() error {
	return chat.Errorf(chat.CodeNotFound, "there is no open question like this; it was answered, it is too old, its turn has ended, or it is for another person")
}

// runnersQuestion is the stored form of a question of a runner.
type runnersQuestion struct {
	Agent   string         `json:"agent"`
	Run     string         `json:"run,omitempty"`
	Text    string         `json:"text,omitempty"`
	Act     string         `json:"act,omitempty"`
	Options []agent.Option `json:"options"`
}

// runners parses a stored question. A question about a call of a tool of the gateway has two
// options.
func runners(q store.Question) (asked runnersQuestion, err error) {
	if q.Waits == "" {
		return runnersQuestion{Options: allowOrDeny()}, nil
	}
	if err := json.Unmarshal(q.Body, &asked); err != nil {
		return asked, fmt.Errorf("reading a question: %w", err)
	}
	return asked, nil
}

// open lists the unanswered questions to a person (owner "" = any person), the oldest first.
func (q *questions) open(ctx context.Context, owner string, limit int) ([]agent.OpenQuestion, error) {
	list, err := q.store.OpenQuestions(ctx, owner, limit)
	if err != nil {
		return nil, err
	}
	out := make([]agent.OpenQuestion, 0, len(list))
	for _, asked := range list {
		of, err := runners(asked)
		if err != nil {
			return nil, err
		}
		if asked.Waits == "" {
			p, err := pending(asked)
			if err != nil {
				return nil, err
			}
			of.Agent, of.Text = p.Session.Agent, p.Words()
		}
		out = append(out, agent.OpenQuestion{
			Question: agent.Question{Text: of.Text, Act: shownAct(of.Act), Options: of.Options}, ID: asked.ID, Agent: of.Agent, Principal: asked.Owner,
			Session: asked.Session, RunID: of.Run, AskedAt: asked.AskedAt, ExpiresAt: asked.ExpiresAt,
		})
	}
	return out, nil
}

// pick returns the number of the option that a person chose, from 1.
func pick(q question, a command.QuestionAnswer) (int, error) {
	if a.Option > 0 {
		if a.Option > len(q.options) {
			return 0, chat.Errorf(chat.CodeInvalid, "the question has the options 1 to %d", len(q.options))
		}
		return a.Option, nil
	}
	var fits []string
	n := 0
	for i, o := range q.options {
		if o.Allow == a.Allow {
			n = i + 1
			fits = append(fits, q.command(i)+" ("+o.Label+")")
		}
	}
	switch len(fits) {
	case 0:
		return 0, chat.Errorf(chat.CodeInvalid, "the question has no such option")
	case 1:
		return n, nil
	default:
		return 0, chat.Errorf(chat.CodeInvalid, "there are several ways; write %s", strings.Join(fits, " or "))
	}
}

// personOf returns the person that a turn asks, and where: its sender, or the owner of its session
// if no other reads it. The zero value is no person.
func (p *parts) personOf(lead store.Waiting, owner string) tool.Person {
	who := p.reach(lead.Principal, lead)
	if who.Principal == "" && lead.Session.Kind() != chat.KindGroup {
		who = p.reach(owner, lead)
	}
	return who
}

// reach returns how a principal can be asked in a turn: a person in a chat by buttons there, a
// credential in the transcript, where it writes the answer.
func (p *parts) reach(principal string, lead store.Waiting) tool.Person {
	to := lead.Content.Options.ReplyTo
	if principal == "" || lead.Channel == apiRoute {
		return tool.Person{}
	}
	if OperatorOwner(principal) {
		if to.IsZero() || to.Channel == channel.Web {
			return tool.Person{Principal: principal, Target: channel.WebTarget(lead.Session)}
		}
		return tool.Person{}
	}
	at := strings.LastIndexByte(principal, ':')
	name := principal[:at]
	if _, asks := p.channels[name].(channel.Asker); !asks || chat.ChannelKind(to.Channel) != chat.ChannelKind(name) {
		return tool.Person{}
	}
	to.Channel = name
	return tool.Person{Principal: principal, ID: principal[at+1:], Target: to}
}

// openQuestions shows the questions that wait for a person, and takes answers. [Dispatcher] embeds
// it.
type openQuestions struct{ questions *questions }

// OpenQuestions lists the questions that a person (owner "" = any person) can answer, the oldest
// first, at most limit of them.
func (o openQuestions) OpenQuestions(ctx context.Context, owner string, limit int) ([]agent.OpenQuestion, error) {
	return o.questions.open(ctx, owner, limit)
}

// AnswerQuestion does the same as /answer and returns the reply for the person. option counts from
// 1.
func (o openQuestions) AnswerQuestion(ctx context.Context, by, id string, option int) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, errors.New("the answer took too long"))
	defer cancel()
	return o.questions.answer(ctx, by, command.QuestionAnswer{ID: id, Option: option})
}

const (
	// orphansEvery is the interval of the search for allowed calls whose process ended before it
	// made them.
	orphansEvery = 5 * time.Second
	orphansBatch = 20
)

var _ tool.Questions = (*questions)(nil)

// Ask implements [tool.Questions].
func (q *questions) Ask(ctx context.Context, p tool.Pending) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding a call: %w", err)
	}
	return q.put(ctx, callID("question", p), question{
		id: p.ID(), who: p.Asked, session: p.Session, agent: p.Session.Agent, what: p.Words(), options: allowOrDeny(), life: store.QuestionLife,
	}, store.Question{Body: body})
}

// callID is the id of a message about a call, so that a call sends the message once.
func callID(what string, p tool.Pending) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("laneway:"+what+":"+p.Key)).String()
}

func pending(asked store.Question) (p tool.Pending, err error) {
	if err := json.Unmarshal(asked.Body, &p); err != nil {
		return p, fmt.Errorf("reading an allowed call: %w", err)
	}
	return p, nil
}

// end records the result of an allowed call.
func (q *questions) end(ctx context.Context, asked store.Question, p tool.Pending, result chat.ToolResult) error {
	first := false
	err := q.node.Final(ctx, "recording the result of an allowed call", func(ctx context.Context) (err error) {
		first, err = q.store.EndQuestion(ctx, asked.ID, result)
		return err
	})
	if err != nil {
		return fmt.Errorf("recording the result of an allowed call: %w", err)
	}
	if first {
		q.note(ctx, p, result)
	}
	return nil
}

// report sends the person the result of a call, once, and records it. With this order, a process
// that ends in between causes a repeated report, which has the same id, instead of a lost one.
func (q *questions) report(ctx context.Context, asked store.Question, p tool.Pending, result chat.ToolResult) error {
	if err := q.send(ctx, callID("answer", p), p.Asked, p.Session, store.Outgoing{Text: shortened(result.Text)}); err != nil {
		return err
	}
	return q.end(ctx, asked, p, result)
}

// maxReported is how much of a result is sent to a person, in bytes. It fits into one message of
// every network.
const maxReported = 2000

func shortened(text string) string {
	if len(text) <= maxReported {
		return text
	}
	return chat.Cut(text, maxReported) + fmt.Sprintf("\n[%d bytes in all]", len(text))
}

// note adds the call to the transcript, for later turns of the session.
func (q *questions) note(ctx context.Context, p tool.Pending, result chat.ToolResult) {
	text := callNote(chat.ToolCall{Name: p.Tool, Args: p.Args}, &result)
	_, err := q.store.AppendTranscript(ctx, p.Session, p.Asked.Principal, []chat.TranscriptEntry{{
		Role: chat.RoleSystem, Text: text, Tokens: agent.EstimateTokens(text), StopReason: chat.StopTool, Outside: result.Foreign,
	}})
	if err != nil {
		q.log.WarnContext(ctx, "an allowed call is not in the transcript", "session", p.Session.String(), "err", err)
	}
}

// run makes allowed calls of other servers, including those of processes that have ended, until ctx
// is done. It waits for the calls that it started.
func (q *questions) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	orphans := time.NewTicker(orphansEvery)
	defer orphans.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case asked := <-q.outside.allowed:
			calls.Go(func() { q.makeOutside(ctx, asked) })
		case <-orphans.C:
			if node, err := q.node.Alive(); err == nil {
				q.adopt(ctx, node)
			}
		}
	}
}

// makes records that this process makes a call, before the store gives it the call; the result
// records the end.
func (q *questions) makes(id string) (end func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inHand[id] = false
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.inHand[id] = true
	}
}

// take takes the calls that no process makes. A call that began or ended during the read is not one
// of them; one that ended before without a recorded result is found by the next read.
func (q *questions) take(ctx context.Context, node string) ([]store.Question, error) {
	p := store.TakeQuestionsParams{Node: node, InHand: q.outside.all(), Limit: orphansBatch}
	var ended []string
	q.mu.Lock()
	for id, over := range q.inHand {
		p.InHand = append(p.InHand, id)
		if over {
			ended = append(ended, id)
		}
	}
	q.mu.Unlock()
	list, err := q.store.TakeQuestions(ctx, p)
	begun := q.outside.all()
	q.mu.Lock()
	defer q.mu.Unlock()
	list = slices.DeleteFunc(list, func(asked store.Question) bool {
		_, known := q.inHand[asked.ID]
		return known || slices.Contains(begun, asked.ID)
	})
	for _, id := range ended {
		if q.inHand[id] { // it has not begun again
			delete(q.inHand, id)
		}
	}
	return list, err
}

func (q *questions) adopt(ctx context.Context, node string) {
	list, err := q.take(ctx, node)
	if err != nil {
		q.log.DebugContext(ctx, "allowed calls that no process makes were not read", "err", err)
		return
	}
	for _, asked := range list {
		p, err := pending(asked)
		if err == nil {
			err = q.report(ctx, asked, p, q.resume(ctx, p))
		}
		if err != nil {
			q.log.WarnContext(ctx, "an allowed call that no process made failed", "question", asked.ID, "err", err)
		}
	}
}

// resume makes the call of a process that has ended, unless it must not be made twice.
func (q *questions) resume(ctx context.Context, p tool.Pending) chat.ToolResult {
	if q.tools.Outside(p.Tool) {
		return chat.ToolResult{Text: "The gateway stopped during the call of " + p.Tool + "; it may or may not have happened.", IsError: true}
	}
	return q.tools.Make(ctx, p)
}
