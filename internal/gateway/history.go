package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
)

const (
	historyLimit = 200
	historyChars = 12_000
	maxPending   = 20
)

type historyParams struct {
	_          struct{} `also:"messageId,inputRunIds,pendingBefore,agentId"`
	SessionKey string   `json:"sessionKey" p:"required,min=1,max=512"`
	Limit      *int64   `json:"limit" p:"min=1,max=1000"`
	Offset     int64    `json:"offset" p:"min=0"`
	Cursor     *string  `json:"cursor" p:"max=256"`
	MaxChars   *int64   `json:"maxChars" p:"min=1,max=500000"`
	SessionID  string   `json:"sessionId" p:"min=1,max=128"`
}

type historyResult struct {
	Kind          string            `json:"kind,omitempty"`
	SessionKey    string            `json:"sessionKey,omitempty"`
	SessionID     *string           `json:"sessionId,omitempty"`
	Messages      []json.RawMessage `json:"messages"`
	HasMore       *bool             `json:"hasMore,omitempty"`
	TotalMessages *int              `json:"totalMessages,omitempty"`
	DeltaCursor   string            `json:"deltaCursor"`
	PendingInputs pendingInputs     `json:"pendingInputs"`
	InFlightRun   *inFlightRun      `json:"inFlightRun,omitempty"`
	SessionInfo   sessionRow        `json:"sessionInfo"`
}

type pendingInputs struct {
	Items []pendingInput `json:"items"`
	Total int            `json:"total"`
}

type pendingInput struct {
	ID         string         `json:"id"`
	RunID      string         `json:"runId"`
	Message    historyMessage `json:"message"`
	AcceptedAt int64          `json:"acceptedAt"`
	State      string         `json:"state"`
}

type inFlightRun struct {
	RunID string `json:"runId"`
	Text  string `json:"text"`
	Seq   int64  `json:"seq"`
}

type historyMessage struct {
	ID         string      `json:"id,omitempty"`
	Seq        int64       `json:"seq,omitempty"`
	Role       string      `json:"role"`
	Content    []textPart  `json:"content"`
	Timestamp  int64       `json:"timestamp"`
	RunID      string      `json:"runId,omitempty"`
	StopReason string      `json:"stopReason,omitempty"`
	Command    bool        `json:"command,omitempty"`
	Openclaw   *clientMark `json:"__openclaw,omitempty"` //nolint:tagliatelle // the name that terminal clients look for
}

type clientMark struct {
	ID             string `json:"id"`
	Seq            int64  `json:"seq"`
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// cursor is a place in a transcript. It names the transcript, because the numbers start again after a reset.
type cursor struct {
	seq       int64
	sessionID string // "" = the place before everything, in whatever transcript, or a cursor that does not say
}

const cursorPrefix = "m:"

func (c cursor) String() string {
	s := formatSeq(cursorPrefix, c.seq)
	if c.sessionID != "" {
		s += ":" + c.sessionID
	}
	return s
}

func parseCursor(s string) (cursor, bool) {
	rest, ok := strings.CutPrefix(s, cursorPrefix)
	number, id, _ := strings.Cut(rest, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	return cursor{seq, id}, ok && err == nil && seq >= 0
}

// lost reports whether the transcript that the cursor belongs to is not the current one.
func (c cursor) lost(t store.Transcript) bool {
	return (c.sessionID != "" && c.sessionID != t.SessionID) || c.seq > t.LastSeq
}

func chatHistory(ctx context.Context, c *call, p historyParams) (any, error) {
	key, err := c.session(p.SessionKey, "")
	if err != nil {
		return nil, err
	}
	if err := c.lookAt(ctx, key); err != nil {
		return nil, err
	}
	// The running text is read first: a run that ends in between is then in the transcript as well, and shown once.
	flight, flying := c.reader().InFlight(key)
	var out *historyResult
	if p.Cursor != nil {
		out, err = c.historyAfter(ctx, key, p)
	} else {
		out, err = c.historyPage(ctx, key, p)
	}
	if err != nil {
		return nil, err
	}
	if out == nil {
		return map[string]string{"kind": "reset"}, nil
	}
	if flying && !out.answers(chat.ShownRunID(flight.RunID)) {
		out.InFlightRun = &inFlightRun{chat.ShownRunID(flight.RunID), flight.Text, flight.Seq}
	}
	return out, c.historyState(ctx, key, int(orElse(p.MaxChars, historyChars)), out)
}

// answers reports whether the answer of a run is among the messages.
func (r *historyResult) answers(run string) bool {
	want := `"runId":` + string(strictjson.Encode(run))
	return slices.ContainsFunc(r.Messages, func(m json.RawMessage) bool {
		return strings.Contains(string(m), want) && strings.Contains(string(m), `"role":"assistant"`)
	})
}

// historyState adds what is true of the session now.
func (c *call) historyState(ctx context.Context, key chat.SessionKey, maxChars int, out *historyResult) error {
	waiting, total, err := c.reader().PendingInputs(ctx, key, 0, maxPending)
	if err != nil {
		return err
	}
	out.PendingInputs = pendingInputs{Items: []pendingInput{}, Total: total}
	for _, w := range waiting {
		out.PendingInputs.Items = append(out.PendingInputs.Items, pendingInput{
			ID: chat.ShownRunID(w.MessageID), RunID: chat.ShownRunID(w.MessageID), AcceptedAt: w.AcceptedAt.UnixMilli(), State: "queued",
			Message: historyMessage{Role: chat.RoleUser, Content: []textPart{{"text", cutChars(w.Content.Text, maxChars)}}, Timestamp: w.AcceptedAt.UnixMilli()},
		})
	}
	st, err := c.reader().Session(ctx, key, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		st, err = chat.SessionStatus{Key: key}, nil
	}
	out.SessionInfo = rowOf(st)
	return err
}

// historyPage is the last messages before the offset, oldest first.
func (c *call) historyPage(ctx context.Context, key chat.SessionKey, p historyParams) (*historyResult, error) {
	chars := int(orElse(p.MaxChars, historyChars))
	t, err := c.reader().Transcript(ctx, store.TranscriptQuery{
		Session: key, SessionID: p.SessionID, Visible: c.visible(), Limit: int(orElse(p.Limit, historyLimit)), Offset: int(p.Offset),
		MaxChars: chars, MaxBytes: listBytes,
	})
	if err != nil {
		return nil, err
	}
	messages, _ := encodeMessages(backwards(t.Entries), chars)
	slices.Reverse(messages)
	more := int(p.Offset)+len(messages) < t.Total
	id := cmp.Or(p.SessionID, t.SessionID)
	return &historyResult{
		SessionKey: key.String(), SessionID: &id, Messages: messages, HasMore: &more, TotalMessages: &t.Total,
		DeltaCursor: cursor{t.LastSeq, t.SessionID}.String(),
	}, nil
}

// historyAfter is exactly the messages after a cursor; nil when the transcript is another one.
func (c *call) historyAfter(ctx context.Context, key chat.SessionKey, p historyParams) (*historyResult, error) {
	from, ok := parseCursor(*p.Cursor)
	if !ok {
		return nil, nil //nolint:nilnil // nil is the reset
	}
	chars := int(orElse(p.MaxChars, historyChars))
	t, err := c.reader().Transcript(ctx, store.TranscriptQuery{
		Session: key, After: from.seq, FromStart: from.seq == 0, Limit: int(orElse(p.Limit, historyLimit)), MaxChars: chars, MaxBytes: listBytes,
	})
	if err != nil {
		return nil, err
	}
	if from.lost(t) {
		return nil, nil //nolint:nilnil // nil is the reset
	}
	messages, last := encodeMessages(t.Entries, chars)
	return &historyResult{Kind: "delta", Messages: messages, DeltaCursor: cursor{max(last, from.seq), t.SessionID}.String()}, nil
}

func orElse(v *int64, d int64) int64 {
	if v == nil {
		return d
	}
	return *v
}

func backwards(entries []chat.TranscriptEntry) []chat.TranscriptEntry {
	out := slices.Clone(entries)
	slices.Reverse(out)
	return out
}

// encodeMessages encodes entries in their order as long as they fit into an answer, at least one; last is the number of the last.
func encodeMessages(entries []chat.TranscriptEntry, maxChars int) (messages []json.RawMessage, last int64) {
	messages = []json.RawMessage{}
	size := 0
	for _, e := range entries {
		m := strictjson.Encode(messageOf(e, maxChars))
		if size += len(m); size > listBytes && len(messages) > 0 {
			break
		}
		messages = append(messages, m)
		last = e.Seq
	}
	return messages, last
}

func messageOf(e chat.TranscriptEntry, maxChars int) historyMessage {
	id := formatSeq("m-", e.Seq)
	m := historyMessage{
		ID: id, Seq: e.Seq, Role: e.Role, Content: []textPart{{"text", cutChars(e.Text, maxChars)}}, Timestamp: e.At.UnixMilli(),
		RunID: chat.ShownRunID(e.RunID), StopReason: e.StopReason, Command: e.Command, Openclaw: &clientMark{ID: id, Seq: e.Seq},
	}
	if e.Role == chat.RoleUser && e.RunID != "" {
		m.Openclaw.IdempotencyKey = chat.ShownRunID(e.RunID) + ":user"
	}
	return m
}

// cutChars shortens to n characters and says so.
func cutChars(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i] + "..."
		}
		n--
	}
	return s
}
