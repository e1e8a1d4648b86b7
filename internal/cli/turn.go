package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/client"
	"laneway/internal/retry"
	"laneway/internal/wire"
)

// conversation sends messages to one session and survives a lost connection: it sends a message again with the same key, which attaches to
// the run that the message started.
type conversation struct {
	dial    func(ctx context.Context) (gatewayConn, error)
	session string
	agent   string
	timeout *int64
	files   []wire.Attachment // of each message
	follows bool              // receive what happens in the session besides the messages of this client
	// asked is called when the open questions of the session may have changed while a message waits for its end, with the reason of the
	// event, and answered for each line of typed; their errors end the wait. nil = questions are not shown.
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

// A gateway that restarts is available again within seconds. After half a minute, the person has to be informed.
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

// submit sends a message to the gateway with this key. Status is started, in_flight, or the outcome when it has ended.
func (c *conversation) submit(ctx context.Context, key, text string) (wire.ChatSendResult, error) {
	var result wire.ChatSendResult
	params := wire.ChatSendParams{SessionKey: c.session, Message: text, IdempotencyKey: key, AgentID: c.agent, TimeoutMs: c.timeout, Attachments: c.files}
	err := c.conn.Call(ctx, "chat.send", params, &result)
	return result, err
}

// next waits for one chat event. It returns client.ErrClosed when the connection has ended or an event was missed, and client.ErrProtocol
// when the gateway sends an invalid event.
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
		return nil
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

// ask sends one message with key and waits for its end. show is called for each piece of the answer; may be nil.
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

// redial opens a new connection, with increasing delays, and runs then on it; an error of then also causes another attempt.
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
	if err := c.conn.Call(ctx, "chat.history", wire.ChatHistoryParams{SessionKey: c.session, Limit: new(int64(200)), MaxChars: new(int64(500_000))}, &history); err != nil {
		return turnEnd{}, err
	}
	end.SessionKey = history.SessionKey
	for _, m := range history.Messages {
		switch {
		case m.RunID != key:
		case m.Role == chat.RoleAssistant:
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

// abort stops a run whose reader has gone; aborted is false when there was nothing to stop. It has its own deadline, because the command's
// context is done.
func (c *conversation) abort(ctx context.Context, run string) (aborted bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
	defer cancel()
	var result wire.ChatAbortResult
	err = c.conn.Call(ctx, "chat.abort", wire.ChatAbortParams{SessionKey: c.session, RunID: run}, &result)
	return result.Aborted, err
}

// giveUp stops a run whose reader has gone, and reports the result. A run that has already ended is not stopped: end is how it ended, nil
// when that is unknown.
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
