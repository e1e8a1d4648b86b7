package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/client"
	"laneway/internal/retry"
	"laneway/internal/wire"
)

// conversation sends messages to one session and survives a lost connection: it sends a message
// again with the same key, which attaches to the run that the message started.
type conversation struct {
	dial    func(ctx context.Context) (gatewayConn, error)
	session string
	agent   string
	timeout *int64
	files   []wire.Attachment // of each message
	follows bool              // receive what happens in the session besides the messages of this client
	// asked is called when the open questions of the session may have changed while a message waits
	// for its end, with the reason of the event, and answered for each line of typed; their errors
	// end the wait. nil = questions are not shown.
	asked    func(ctx context.Context, reason string) error
	answered func(context.Context, typed) error
	typed    <-chan typed

	conn gatewayConn
	full string // the whole key of the session, once it is known
}

// turnEnd is how a message ended.
type turnEnd struct {
	RunID      string `json:"runId"`
	SessionKey string `json:"sessionKey"`
	// Status is ok, aborted, error or merged.
	Status     string `json:"status"`
	StopReason string `json:"stopReason,omitempty"`
	Text       string `json:"text"`
	// Note is a sentence in place of an answer without text.
	Note       string `json:"note,omitempty"`
	Error      string `json:"error,omitempty"`
	DurationMs int64  `json:"durationMs"`
}

// err returns the sentence for a message that was not answered.
func (e turnEnd) err() error {
	switch e.Status {
	case "aborted":
		return fmt.Errorf("the message was not answered: it was stopped (%s)", cell(e.StopReason, 40))
	case "error":
		return errors.New("the message was not answered: " + oneLine(e.Error))
	default:
		return nil
	}
}

// A gateway that restarts is available again within seconds. After half a minute, the person has to
// be informed.
const (
	maxRedials  = 10
	firstRedial = 250 * time.Millisecond
	maxRedial   = 5 * time.Second
)

// newKey returns the idempotency key of a message, which becomes its run id.
func newKey() string { return uuid.Must(uuid.NewV7()).String() }

func (c *conversation) open(ctx context.Context) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	c.conn = conn
	if !c.follows {
		return nil
	}
	if err := conn.Call(ctx, "sessions.subscribe", wire.SessionsSubscribeParams{Deltas: new(false)}, &wire.SessionsSubscribeResult{}); err != nil {
		c.close()
		return err
	}
	return nil
}

// key returns the whole key of the session, which the gateway knows.
func (c *conversation) key(ctx context.Context) (string, error) {
	if c.full == "" && !strings.HasPrefix(c.session, "agent:") {
		var history wire.HistoryPage[wire.HistoryMessage]
		if err := c.conn.Call(ctx, "chat.history", wire.ChatHistoryParams{SessionKey: c.session, Limit: new(int64(1)), MaxChars: new(int64(1))}, &history); err != nil {
			return "", err
		}
		c.full = history.SessionKey
	}
	return cmp.Or(c.full, c.session), nil
}

func (c *conversation) close() {
	if c.conn != nil {
		closeQuietly(c.conn)
		c.conn = nil
	}
}

// submit sends a message to the gateway with this key. Status is started, in_flight, or the outcome
// when it has ended.
func (c *conversation) submit(ctx context.Context, key, text string) (wire.ChatSendResult, error) {
	var result wire.ChatSendResult
	params := wire.ChatSendParams{SessionKey: c.session, Message: text, IdempotencyKey: key, AgentID: c.agent, TimeoutMs: c.timeout, Attachments: c.files}
	err := c.conn.Call(ctx, "chat.send", params, &result)
	return result, err
}

// next waits for one chat event. It returns client.ErrClosed when the connection has ended or an
// event was missed, and client.ErrProtocol when the gateway sends an invalid event.
func (c *conversation) next(ctx context.Context) (wire.ChatEvent, error) {
	for {
		select {
		case <-ctx.Done():
			return wire.ChatEvent{}, context.Cause(ctx)
		case line := <-c.typed:
			if err := c.answered(ctx, line); err != nil {
				return wire.ChatEvent{}, err
			}
		case event, open := <-c.conn.Events():
			if err := c.conn.Err(); !open && errors.Is(err, client.ErrProtocol) {
				return wire.ChatEvent{}, err
			}
			if !open || event.Gap { // the missed event may have been the end
				return wire.ChatEvent{}, client.ErrClosed
			}
			switch event.Name {
			case wire.EventQuestions:
				if err := c.questionsChanged(ctx, event); err != nil {
					return wire.ChatEvent{}, err
				}
			case wire.EventChat:
				if chat, ok := decodeChat(event); ok {
					return chat, nil
				}
				return wire.ChatEvent{}, fmt.Errorf("%w: it sent a chat event that is not understood", client.ErrProtocol)
			}
		}
	}
}

// questionsChanged passes an event about open questions to asked.
func (c *conversation) questionsChanged(ctx context.Context, event client.Event) error {
	var changed wire.QuestionsChanged
	if c.asked == nil || json.Unmarshal(event.Payload, &changed) != nil {
		return nil //nolint:nilerr // an event of another version
	}
	key, err := c.key(ctx)
	if err != nil || changed.SessionKey != key {
		return err
	}
	return c.asked(ctx, changed.Reason)
}

func decodeChat(event client.Event) (wire.ChatEvent, bool) {
	var chat wire.ChatEvent
	if event.Name != "chat" || json.Unmarshal(event.Payload, &chat) != nil {
		return wire.ChatEvent{}, false
	}
	return chat, true
}

// ask sends one message with key and waits for its end. show is called for each piece of the
// answer; may be nil.
func (c *conversation) ask(ctx context.Context, key, text string, show func(wire.ChatEvent)) (turnEnd, error) {
	result, err := c.submit(ctx, key, text)
	if errors.Is(err, client.ErrClosed) {
		result, err = c.resume(ctx, key, text)
	}
	if err != nil {
		return turnEnd{}, err
	}
	for lost := 1; ; lost++ {
		seen := false
		end, err := c.watch(ctx, key, result, func(e wire.ChatEvent) {
			seen = true
			if show != nil {
				show(e)
			}
		})
		if seen {
			lost = 0
		}
		switch {
		case !errors.Is(err, client.ErrClosed):
			return end, err
		case lost > maxRedials: // each connection is lost before an event of the run: this would never end
			return turnEnd{}, fmt.Errorf("the connection to the gateway was lost %d times without an event of the answer; the message may still be answered", lost)
		}
		if result, err = c.resume(ctx, key, text); err != nil {
			return turnEnd{}, err
		}
	}
}

// watch follows the events of one run to its end.
func (c *conversation) watch(ctx context.Context, key string, result wire.ChatSendResult, show func(wire.ChatEvent)) (turnEnd, error) {
	if result.Status != "started" && result.Status != "in_flight" {
		return c.recorded(ctx, key, result.Status)
	}
	for {
		event, err := c.next(ctx)
		if err != nil {
			return turnEnd{}, err
		}
		if event.RunID != key {
			continue
		}
		show(event)
		if event.State.Ends() {
			return endOf(event), nil
		}
	}
}

func endOf(e wire.ChatEvent) turnEnd {
	end := turnEnd{RunID: e.RunID, SessionKey: e.SessionKey, Status: "ok", StopReason: e.StopReason, Text: e.Message.Text()}
	if e.Message != nil {
		end.Note = e.Message.Note
	}
	switch {
	case e.State == wire.ChatAborted:
		end.Status = "aborted"
	case e.State == wire.ChatError:
		end.Status, end.Error = "error", e.ErrorMessage
	case e.Yielded:
		end.Status = "merged"
	}
	return end
}

// resume dials again and attaches to the run.
func (c *conversation) resume(ctx context.Context, key, text string) (wire.ChatSendResult, error) {
	var result wire.ChatSendResult
	err := c.redial(ctx, func() error {
		var err error
		result, err = c.submit(ctx, key, text)
		return err
	})
	if err == nil && c.asked != nil { // an event about a question may have been lost
		if err := c.asked(ctx, ""); err != nil && !errors.Is(err, client.ErrClosed) {
			return result, err
		}
	}
	return result, err
}

// redial opens a new connection, with increasing delays, and runs then on it; an error of then also
// causes another attempt.
func (c *conversation) redial(ctx context.Context, then func() error) error {
	policy := retry.Policy{Base: firstRedial, Max: maxRedial}
	for attempt := 1; ; attempt++ {
		c.close()
		if err := retry.Sleep(ctx, policy.Wait(attempt)); err != nil {
			return err
		}
		err := c.open(ctx)
		if err == nil {
			err = then()
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, client.ErrProtocol):
			c.close()
			return err
		case attempt == maxRedials || errors.Is(err, client.ErrUnauthorized):
			c.close()
			return fmt.Errorf("the connection to the gateway was lost and did not come back: %w; what was sent may still be answered", err)
		}
	}
}

// recorded reads the answer of a run that has ended while the client was not connected.
func (c *conversation) recorded(ctx context.Context, key, status string) (turnEnd, error) {
	end := turnEnd{RunID: key, SessionKey: c.session, Status: status}
	var history wire.HistoryPage[wire.HistoryMessage]
	if err := c.conn.Call(ctx, "chat.history", wire.ChatHistoryParams{SessionKey: c.session, Limit: new(int64(200)), MaxChars: new(int64(mostChars))}, &history); err != nil {
		return turnEnd{}, err
	}
	end.SessionKey = history.SessionKey
	for _, m := range history.Messages {
		switch {
		case m.RunID != key:
		case m.Role == chat.RoleAssistant:
			if err := completeMessage(ctx, c.conn, c.session, &m); err != nil {
				return turnEnd{}, err
			}
			end.Text, end.StopReason = m.Text(), m.StopReason
		case m.Role == chat.RoleSystem && m.Text() == chat.EmptyAnswer(m.StopReason):
			end.Note, end.StopReason = m.Text(), m.StopReason
		}
	}
	if status != "ok" {
		end.Status, end.Error = "error", "the run ended with "+status+" while the connection was lost"
	}
	return end, nil
}

// abortGrace limits a call of a command that has timed out.
const abortGrace = 2 * time.Second

// abort stops a run whose reader has gone; aborted is false when there was nothing to stop. It has
// its own deadline, because the command's context is done.
func (c *conversation) abort(ctx context.Context, run string) (aborted bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
	defer cancel()
	var result wire.ChatAbortResult
	err = c.conn.Call(ctx, "chat.abort", wire.ChatAbortParams{SessionKey: c.session, RunID: run}, &result)
	return result.Aborted, err
}

// giveUp stops a run whose reader has gone, and reports the result. A run that has already ended is
// not stopped: end is how it ended, nil when that is unknown.
func (c *conversation) giveUp(ctx context.Context, run, text string) (end *turnEnd, stopped string) {
	const unknown = "it may still be answered"
	if c.conn == nil {
		return nil, unknown
	}
	aborted, err := c.abort(ctx, run)
	if err != nil {
		return nil, unknown
	}
	if aborted {
		return nil, "it was stopped"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
	defer cancel()
	sent, err := c.submit(ctx, run, text)
	if err != nil || sent.Status == "started" || sent.Status == "in_flight" {
		return nil, unknown
	}
	recorded, err := c.recorded(ctx, run, sent.Status)
	if err != nil {
		return nil, unknown
	}
	return &recorded, ""
}

// asked is the open questions of a session that this client may answer, in the order in which it
// has shown them.
type asked []wire.Question

// update takes the list of the gateway. fresh has not been shown yet, closed was shown and is no
// longer open.
func (a *asked) update(list []wire.Question) (fresh, closed []wire.Question) {
	still := func(in []wire.Question, q wire.Question) bool {
		return slices.ContainsFunc(in, func(o wire.Question) bool { return o.ID == q.ID })
	}
	var kept asked
	for _, q := range *a {
		if still(list, q) {
			kept = append(kept, q)
		} else {
			closed = append(closed, q)
		}
	}
	for _, q := range list {
		if !still(kept, q) {
			fresh = append(fresh, q)
		}
	}
	*a = append(kept, fresh...)
	return fresh, closed
}

// current is the question that a number or a word answers: the one that was shown last.
func (a asked) current() (wire.Question, bool) {
	if len(a) == 0 {
		return wire.Question{}, false
	}
	return a[len(a)-1], true
}

func (a *asked) remove(id string) {
	*a = slices.DeleteFunc(*a, func(q wire.Question) bool { return q.ID == id })
}

// inWords says that open questions have closed, for which reason of the event.
func inWords(reason string) string {
	switch reason {
	case "answered":
		return "The question was answered elsewhere."
	case "closed":
		return "The question is closed: its turn no longer waits."
	default:
		return "The question is closed."
	}
}

// asks returns what the agent wants to do.
func asks(q wire.Question) string {
	return "The agent " + q.AgentID + " wants to do this for you: " + q.Text
}

// menu returns the question with a number for each option.
func menu(q wire.Question) string {
	var b strings.Builder
	b.WriteString(plain(asks(q)) + "\nAllow it?")
	for i, o := range q.Options {
		fmt.Fprintf(&b, "\n  %d  %s", i+1, plain(o.Label))
	}
	return b.String()
}

// choose returns the number of the option that a line names by its number, its label, or a word
// such as yes; 0 = the line is no answer. A line that is meant as an answer but names no single
// option is an error.
func choose(q wire.Question, line string) (option int64, err error) {
	if n, err := strconv.ParseInt(line, 10, 64); err == nil {
		if n < 1 || n > int64(len(q.Options)) {
			return 0, fmt.Errorf("the question has the answers 1 to %d", len(q.Options))
		}
		return n, nil
	}
	var fits []int64
	for i, o := range q.Options {
		if strings.EqualFold(o.Label, line) {
			return int64(i + 1), nil
		}
		words := []string{"n", "no", "deny"}
		if o.Allow {
			words = []string{"y", "yes", "allow"}
		}
		if slices.Contains(words, strings.ToLower(line)) {
			fits = append(fits, int64(i+1))
		}
	}
	switch len(fits) {
	case 0:
		return 0, nil
	case 1:
		return fits[0], nil
	default:
		return 0, fmt.Errorf("%s fits several answers; write the number of one", line)
	}
}

// questions lists the open questions of the session that this client may answer, the oldest first.
func (c *conversation) questions(ctx context.Context) ([]wire.Question, error) {
	key, err := c.key(ctx)
	if err != nil {
		return nil, err
	}
	var list wire.QuestionsListResult
	if err := c.conn.Call(ctx, "questions.list", wire.QuestionsListParams{Limit: new(int64(200))}, &list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Questions, func(q wire.Question) bool { return !q.Mine || q.SessionKey != key || len(q.Options) == 0 }), nil
}

// answer answers a question and returns what the answer has caused.
func (c *conversation) answer(ctx context.Context, id string, option int64) (string, error) {
	var out wire.QuestionsAnswerResult
	err := c.conn.Call(ctx, "questions.answer", wire.QuestionsAnswerParams{ID: id, Option: option}, &out)
	return out.Text, err
}

type questionsCmd struct {
	List   questionsList   `cmd:"" default:"withargs" help:"List open questions of agents, oldest first."`
	Answer questionsAnswer `cmd:"" help:"Answer a question."`
}

type questionsList struct {
	clientFlags
	JSON bool `help:"Print JSON."`
}

// Run lists questions.
func (c *questionsList) Run(ctx context.Context, env *environment) error {
	var out wire.QuestionsListResult
	if err := c.call(ctx, env, "questions.list", wire.QuestionsListParams{}, &out); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	if len(out.Questions) == 0 {
		return env.printLine("no questions")
	}
	rows := [][]string{{"AGENT", "WANTS TO", "ANSWERS", "LEFT", "ASKED", "SESSION", "ID"}}
	for i := range out.Questions {
		q := &out.Questions[i]
		rows = append(rows, []string{
			cell(q.AgentID, 20), env.cell(q.Text, 100), cell(answersOf(q), 200), short(time.UnixMilli(q.ExpiresAtMs).Sub(env.now())), ago(env.now(), q.AskedAtMs),
			env.cell(q.SessionKey, 60), cell(q.ID, 20),
		})
	}
	return env.table(rows)
}

// answersOf returns the options with their numbers, or whose answer counts.
func answersOf(q *wire.Question) string {
	if !q.Mine {
		return "of " + q.Principal
	}
	var options []string
	for i, o := range q.Options {
		options = append(options, strconv.Itoa(i+1)+" "+o.Label)
	}
	return strings.Join(options, ", ")
}

type questionsAnswer struct {
	clientFlags
	ID     string `arg:"" help:"The question, from laneway questions."`
	Number int64  `arg:"" help:"The number of the answer, from laneway questions."`
	JSON   bool   `help:"Print JSON."`
}

// Run answers a question.
func (c *questionsAnswer) Run(ctx context.Context, env *environment) error {
	var out wire.QuestionsAnswerResult
	err := c.call(ctx, env, "questions.answer", wire.QuestionsAnswerParams{ID: c.ID, Option: c.Number}, &out)
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.DetailCode == string(chat.CodeNotFound) {
		return fmt.Errorf("%w; see laneway questions list", err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	return env.printLine(plain(out.Text))
}
