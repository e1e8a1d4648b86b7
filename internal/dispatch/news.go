package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Broadcasts begin with what they are about.
const (
	cronNews  = "cron "
	chatNews  = "chat "
	helloNews = "hello"
)

// newsWait bounds reading what one piece of news is about.
const newsWait = 5 * time.Second

// newsLoop tells the watchers of this process what others broadcast.
func (d *Dispatcher) newsLoop(ctx context.Context) {
	b, ok := d.store.(store.Broadcaster)
	if !ok {
		return
	}
	heard := b.Broadcasts()
	d.node.SawPeer() // until a heartbeat knows
	b.Broadcast(helloNews)
	for {
		select {
		case <-ctx.Done():
			return
		case text := <-heard:
			d.node.SawPeer()
			if text, ok := strings.CutPrefix(text, chatNews); ok {
				d.hearChat(ctx, text)
			}
			if text, ok := strings.CutPrefix(text, cronNews); ok && d.jobs != nil && d.cronEvents.wanted() {
				d.hearCron(ctx, text)
			}
		}
	}
}

// broadcast tells the other processes, if there are any. News points to plain data that can always be written; what is too long is made shorter first.
func (d *Dispatcher) broadcast(prefix string, news any, shorten func()) {
	b, ok := d.store.(store.Broadcaster)
	if !ok || !d.node.HasPeers() {
		return
	}
	text, err := json.Marshal(news)
	if err == nil && len(prefix)+len(text) > store.MaxBroadcast {
		shorten()
		text, err = json.Marshal(news)
	}
	if err == nil {
		b.Broadcast(prefix + string(text))
	}
}

// maxNewsText is how many bytes of text travel with the news. Longer ones are read from the transcript, by those processes where somebody wants them.
const maxNewsText = 2_000

// runNews is the end of a run, or a change of a session, on its way to another process.
type runNews struct {
	Kind       chat.EventKind `json:"k"`
	Session    string         `json:"s"`
	Principal  string         `json:"p,omitempty"`
	RunID      string         `json:"r,omitempty"`
	Seq        int64          `json:"n,omitempty"`
	Lane       string         `json:"l,omitempty"`
	At         int64          `json:"t"` // Unix milliseconds
	Text       string         `json:"x,omitempty"`
	Cut        bool           `json:"c,omitempty"` // the text is in the transcript
	Reason     string         `json:"w,omitempty"`
	Message    string         `json:"m,omitempty"`
	MergedInto string         `json:"i,omitempty"`
	Command    bool           `json:"o,omitempty"`
	EntrySeq   int64          `json:"e,omitempty"`
	Usage      *chat.Usage    `json:"u,omitempty"`
}

// tell publishes an event that is about something durable: here, and on every other process that shares the store.
func (d *Dispatcher) tell(e chat.Event) {
	if !d.publish(&e) || !d.node.HasPeers() {
		return
	}
	n := runNews{
		Kind: e.Kind, Session: e.Session.String(), Principal: e.Principal, RunID: e.RunID, Seq: e.Seq, Lane: e.Lane, At: e.At.UnixMilli(), Text: e.Text,
		Reason: e.Reason, Message: chat.Cut(e.Message, maxNewsText), MergedInto: e.MergedInto, Command: e.Command, EntrySeq: e.EntrySeq,
	}
	if e.Usage != (chat.Usage{}) {
		n.Usage = &e.Usage
	}
	if len(n.Text) > maxNewsText {
		n.Text, n.Cut = "", true
	}
	d.broadcast(chatNews, &n, func() { n.Message = chat.Cut(n.Message, maxNewsText/10); n.Text, n.Cut = "", n.Cut || n.Text != "" })
}

func (d *Dispatcher) hearChat(ctx context.Context, text string) {
	var n runNews
	err := json.Unmarshal([]byte(text), &n)
	key, keyErr := chat.ParseSessionKey(n.Session, d.DefaultAgent())
	if err = errors.Join(err, keyErr); err != nil {
		d.log.DebugContext(ctx, "news that cannot be understood, of another version perhaps", "err", err)
		return
	}
	e := chat.Event{
		Kind: n.Kind, Session: key, Principal: n.Principal, RunID: n.RunID, Seq: n.Seq, Lane: n.Lane, At: time.UnixMilli(n.At), Text: n.Text,
		Reason: n.Reason, Message: n.Message, MergedInto: n.MergedInto, Command: n.Command, EntrySeq: n.EntrySeq,
	}
	if n.Usage != nil {
		e.Usage = *n.Usage
	}
	if n.Cut && d.hub.wanted(e) {
		if e.Text, err = d.saidBy(ctx, key, n.RunID, n.EntrySeq); err != nil {
			d.log.DebugContext(ctx, "news whose text watchers do not hear", "run_id", n.RunID, "err", err)
		}
		if err != nil && e.Kind == chat.EventFinal { // an answer without its text would be another one; the history has it
			return
		}
	}
	d.publish(&e)
}

// saidBy is the text of an entry that a run has left in the transcript.
func (d *Dispatcher) saidBy(ctx context.Context, key chat.SessionKey, runID string, seq int64) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, newsWait, errors.New("reading the news took too long"))
	defer cancel()
	tr, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: key, RunID: runID, After: seq - 1, FromStart: true, Limit: 1})
	if err != nil {
		return "", err
	}
	for _, entry := range tr.Entries {
		if entry.Seq == seq {
			return entry.Text, nil
		}
	}
	return "", chat.ErrNotFound
}
