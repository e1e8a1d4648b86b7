package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	// sendTimeout bounds one attempt. A channel has shorter bounds of its own.
	sendTimeout = 60 * time.Second
	// fileTimeout bounds an attempt with a file: twice the time for the largest file at two megabits a second.
	fileTimeout = 7 * time.Minute
)

// errSendTime is the cause of an attempt that took too long.
var errSendTime = errors.New("sending took too long")

// delivery is one attempt to send one row.
type delivery struct {
	node string
	row  store.Outgoing
	kind string // kind of the channel: the label of metrics and logs
	// claim is the right to send the row.
	claim *claim
	sent  chat.Sent
	err   error
	// abandoned: the shutdown of the process interrupted the attempt.
	abandoned bool
	// unrecorded: the result of the attempt could not be written.
	unrecorded bool
}

// stage does one step of an attempt; ended = the attempt has ended.
type stage func(ctx context.Context, d *delivery) (ended bool)

// pipeline is the order of the stages.
func (s *Sender) pipeline() []stage {
	return []stage{s.expire, s.transmit, s.confirm, s.reschedule}
}

// attempt makes one attempt to send a row and records its result; false when that failed.
func (s *Sender) attempt(ctx context.Context, node string, row store.Outgoing) (recorded bool) {
	d := &delivery{node: node, row: row, kind: label(row.Target.Channel), claim: &claim{s: s, node: node, id: row.ID}}
	for _, run := range s.pipeline() {
		if run(ctx, d) {
			break
		}
	}
	return !d.unrecorded
}

// expire ends the attempt for a row that the store has ended as expired.
func (s *Sender) expire(ctx context.Context, d *delivery) bool {
	if !d.row.Expired {
		return false
	}
	s.obs.Sent(d.kind, d.row.Kind, "expired")
	s.log.WarnContext(ctx, "an outgoing message expired before it was sent", "outbox_id", d.row.ID, "channel", d.kind)
	return true
}

// transmit passes the message to its channel.
func (s *Sender) transmit(ctx context.Context, d *delivery) bool {
	if d.row.MaybeSent {
		s.obs.Sent(d.kind, d.row.Kind, "resent")
	}
	bounded, cancel := sendContext(ctx, d.row)
	defer cancel()
	d.sent, d.err = send(bounded, s.cfg.Channels[d.row.Target.Channel], reply(d.row), d.claim)
	d.abandoned = errors.Is(context.Cause(ctx), errAbandoned)
	return false
}

// confirm records a delivery.
func (s *Sender) confirm(ctx context.Context, d *delivery) bool {
	if d.err != nil {
		return false
	}
	s.cooldowns.delivered(d.row.Target.Channel, time.Now())
	s.obs.Sent(d.kind, d.row.Kind, "delivered")
	var entry *store.ShownEntry
	p := store.DeliveredParams{Node: d.node, ID: d.row.ID, ProviderID: d.sent.ProviderID, Shown: s.shown(d, reply(d.row).Text)}
	fenced := s.record(ctx, d, "recording a delivery", func(ctx context.Context) (err error) {
		entry, err = s.store.Delivered(ctx, p)
		return err
	})
	s.publish(ctx, entry)
	if fenced {
		s.obs.Sent(d.kind, d.row.Kind, "late")
	}
	return true
}

// reschedule records a failure: with the time of the next attempt, or as the end of the row.
func (s *Sender) reschedule(ctx context.Context, d *delivery) bool {
	name := d.row.Target.Channel
	p := undelivered(d.node, d.row, d.err, s.down(name))
	failed, _ := errors.AsType[*channel.SendError](d.err)
	if failed != nil && failed.Global {
		s.cooldowns.hold(name, time.Now().Add(p.RetryIn))
	}
	if d.abandoned && failed != nil {
		abandon(&p, failed)
	}
	p.Progress = d.claim.arrived()
	if p.Permanent {
		p.Shown = s.shown(d, s.seen(d, p))
	}
	var done store.Gone
	result, write := "retry", func(ctx context.Context) (err error) {
		done, err = s.store.Undelivered(ctx, p)
		return err
	}
	switch {
	case failed != nil && failed.Gone && s.cfg.Gone != nil:
		result, write = "gone", func(ctx context.Context) error { return s.cfg.Gone(ctx, d.row, p) }
	case p.State() == store.OutMaybeSent:
		result = "maybe_sent"
	case p.Permanent:
		result = "failed"
	case failed != nil && failed.Reason == reasonStale:
		result = "stale"
	}
	s.obs.Sent(d.kind, d.row.Kind, result)
	s.log.WarnContext(ctx, "a message was not delivered", "outbox_id", d.row.ID, "channel", d.kind, "attempt", d.row.Attempt,
		"permanent", p.Permanent, "reason", p.Error, "err", d.err)
	s.record(ctx, d, "recording a failed delivery", write)
	s.publish(ctx, done.Entry)
	return true
}

// shown is the entry of a row in the conversation at its address; nil when the row has no origin, nothing was seen, the conversation has the text already
// because it made the row, or the channel has no conversations of its own.
func (s *Sender) shown(d *delivery, text string) *store.Shown {
	c, ok := s.cfg.Channels[d.row.Target.Channel].(channel.Converser)
	if !ok || d.row.Origin == nil || text == "" {
		return nil
	}
	key, principal, err := c.Conversation(d.row.Target)
	if err != nil || key.String() == d.row.Origin.By {
		return nil
	}
	run := d.row.RunID
	if run == "" {
		run = d.row.ID
	}
	return &store.Shown{Session: key, Principal: principal, Entry: chat.TranscriptEntry{
		RunID: run, Role: chat.RoleAssistant, Text: text, StopReason: "stop", Origin: d.row.Origin, Outside: d.row.Origin.Outside,
	}}
}

// seen is what a person has seen, or may have, of a row that ends without its delivery; "" = nothing.
func (s *Sender) seen(d *delivery, p store.UndeliveredParams) string {
	r := reply(d.row)
	if p.MaybeSent || d.row.MaybeSent {
		return r.Text + "\n(may not have arrived)"
	}
	c, ok := s.cfg.Channels[d.row.Target.Channel].(channel.Converser)
	if p.Progress != "" {
		r.Progress = p.Progress
	}
	if !ok || r.Progress == "" {
		return ""
	}
	arrived := c.Arrived(r)
	if arrived == "" {
		return ""
	}
	return arrived + "\n(the rest was not delivered)"
}

func (s *Sender) publish(ctx context.Context, entry *store.ShownEntry) {
	if entry != nil && s.cfg.Shown != nil {
		s.cfg.Shown(ctx, entry)
	}
}

// record writes the result of an attempt. A fenced write is not an error: the row now belongs to another node.
func (s *Sender) record(ctx context.Context, d *delivery, what string, write func(context.Context) error) (fenced bool) {
	err := s.node.Final(ctx, what, write)
	fenced = errors.Is(err, chat.ErrFenced)
	if err != nil && !fenced {
		d.unrecorded = true
		s.log.ErrorContext(ctx, "the result of an attempt to send was not recorded; the message may be sent again", "outbox_id", d.row.ID, "err", err)
	}
	return fenced
}

// sendContext bounds one attempt.
func sendContext(ctx context.Context, row store.Outgoing) (context.Context, context.CancelFunc) {
	if row.File != nil {
		return context.WithTimeoutCause(ctx, fileTimeout, errSendTime)
	}
	return context.WithTimeoutCause(ctx, sendTimeout, errSendTime)
}

// reply is a row in the form that a channel sends.
func reply(row store.Outgoing) chat.Reply {
	text := row.Text
	if row.Count > 1 && row.TextMany != "" {
		text = fmt.Sprintf(row.TextMany, row.Count)
	}
	return chat.Reply{
		ID: row.ID, RunID: runID(row), Target: row.Target, Principal: row.Principal, Kind: row.Kind, Text: text, Choice: row.Choice, File: row.File,
		Attempt: row.Attempt, Progress: row.Progress, Origin: row.Origin,
	}
}

// runID is the run of a reply. To URLs and the web all attempts of a run have one id, by which receivers recognise a repetition.
func runID(row store.Outgoing) string {
	if row.Target.Channel == channel.Webhook || row.Target.Channel == channel.Web {
		run, _, _ := strings.Cut(row.RunID, "/")
		return run
	}
	return row.RunID
}

// send passes a reply to a channel: a file as a file and a choice as buttons where the channel supports them, else as text.
func send(ctx context.Context, c channel.Channel, r chat.Reply, claim *claim) (chat.Sent, error) {
	if r.File != nil {
		if filer, ok := c.(channel.Filer); ok {
			return filer.SendFile(ctx, r, claim)
		}
		r.File = nil
	}
	if r.Choice == nil {
		return c.Send(ctx, r, claim)
	}
	if asker, ok := c.(channel.Asker); ok {
		return asker.Ask(ctx, r, claim)
	}
	r.Text, r.Choice = channel.InWords(r.Text, r.Choice), nil
	return c.Send(ctx, r, claim)
}
