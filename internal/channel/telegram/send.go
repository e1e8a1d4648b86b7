package telegram

import (
	"cmp"
	"context"
	"errors"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Kinds of replies: answers of the agent take the place of their preview, notices are told once a minute.
const (
	kindReply  = "reply"
	kindNotice = "notice"
)

// Send delivers one reply: rendered, split, each part in its place, the first one into the preview of the same run if there is one. A part
// that has arrived is not sent again by a further attempt of this process. The same error is not told twice a minute in one chat: the
// second one counts as delivered by the first one's message.
func (c *Channel) Send(ctx context.Context, r chat.Reply) (chat.Sent, error) {
	to, err := c.target(r.Target)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonBadTarget, Permanent: true, Cause: err}
	}
	key := r.Target.ChatID + "/" + r.Target.Thread + "/" + r.Text
	if c.isError(r) {
		if id := c.errors.again(key); id != "" {
			return chat.Sent{ProviderID: id}, nil
		}
	}
	d := render(r.Text)
	if len(d.chunks(maxUnits)) == 0 {
		d = plain("(an empty answer)")
	}
	id, err := c.sendParts(ctx, r, to, d)
	if err != nil {
		return chat.Sent{}, err
	}
	c.sent.forget(r.ID)
	if c.isError(r) {
		c.errors.said(key, id)
	}
	return chat.Sent{ProviderID: id}, nil
}

// isError reports whether a reply says that something went wrong.
func (c *Channel) isError(r chat.Reply) bool { return r.Kind == kindNotice }

// sendParts sends what has not arrived yet of a document. A part that Telegram finds too long is split smaller, and so is what follows it.
func (c *Channel) sendParts(ctx context.Context, r chat.Reply, to address, d *document) (string, error) {
	done := c.sent.get(r.ID)
	preview := 0
	if r.Kind == kindReply {
		preview = c.previews.take(ctx, to, r.RunID)
	}
	chunks := d.chunksFrom(done.upTo, cmp.Or(done.limit, maxUnits))
	for len(chunks) > 0 {
		out := outgoing{to: to, chunk: chunks[0], plain: done.plain}
		if done.first == "" {
			out.edit = preview
		}
		if len(chunks) == 1 {
			out.markup = done.markup
		}
		id, err := c.deliver(ctx, out)
		switch {
		case err == nil:
			done.upTo, chunks = chunks[0].to, chunks[1:]
			if done.first == "" {
				done.first = number(int64(id))
			}
		case tooLong(err) && done.shrink():
			c.log.WarnContext(ctx, "Telegram found a message too long; splitting it smaller", "units", done.limit, "plain", done.plain)
			chunks = d.chunksFrom(done.upTo, done.limit)
		default:
			if done.first == "" {
				c.previews.giveBack(to, r.RunID, preview)
			}
			return "", err
		}
		c.sent.set(r.ID, done)
	}
	return done.first, nil
}

// tooLong reports whether Telegram refused a message for its length. It counts tags and entities in ways that it does not tell.
func tooLong(err error) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && (e.says("message is too long") || e.says("message_too_long"))
}

// shrink halves what one message of the reply may hold, and gives up its tags at the end; false = it is as small as it gets.
func (p *part) shrink() bool {
	switch limit := cmp.Or(p.limit, maxUnits); {
	case limit > minUnits:
		p.limit = limit / 2
	case !p.plain:
		p.plain = true
	default:
		return false
	}
	return true
}

// outgoing is one message on its way.
type outgoing struct {
	to    address
	chunk chunk
	// edit is a message to be replaced; 0 = a new one.
	edit    int
	replyTo int
	markup  string
	// plain leaves the tags out.
	plain bool
	// file is sent instead of the chunk; nil = none.
	file *upload
}

// deliver waits for the limits and sends one message, in the form and to the place that Telegram takes it. It returns the message's id.
func (c *Channel) deliver(ctx context.Context, o outgoing) (int, error) {
	asPlain := o.plain
	for range 6 { // each way out below is taken once
		if err := c.limits.wait(ctx, o.to.chat); err != nil {
			return 0, err
		}
		id, err := c.post(ctx, o, asPlain)
		var e *apiError
		switch {
		case err == nil:
			return id, nil
		case !errors.As(err, &e):
			return 0, &channel.SendError{Reason: reasonConnection, Unknown: true, Uncounted: true, Cause: err}
		case o.edit != 0 && e.says("message is not modified"):
			return o.edit, nil
		case o.edit != 0 && (e.says("message to edit not found") || e.says("message can't be edited")):
			o.edit = 0
		case e.says("can't parse entities") && !asPlain:
			c.log.WarnContext(ctx, "Telegram could not read a formatted message; sending it as plain text")
			asPlain = true
		case o.to.thread != 0 && e.noTopic():
			o.to.thread = 0
		case e.migrateTo != 0 && o.to.chat != e.migrateTo:
			if err := c.migrate(ctx, o.to.chat, e.migrateTo); err != nil { // this message finds its way
				c.log.WarnContext(ctx, "a group moved", "err", err)
			}
			o.to.chat, o.edit = e.migrateTo, 0
		case o.file != nil && o.file.form != asDocument() && e.reason == reasonBadRequest:
			c.log.WarnContext(ctx, "Telegram does not take a file as what it looks like; sending it as a document", "err", e)
			o.file.form = asDocument()
		default:
			return 0, undelivered(e)
		}
	}
	return 0, &channel.SendError{Reason: reasonBadRequest, Permanent: true}
}

// undelivered is the outbox's error for a failed call.
func undelivered(e *apiError) *channel.SendError {
	s := e.sendError()
	if e.reason == reasonRateLimited {
		s.RetryAfter = e.cooldown()
	}
	return s
}

// post makes the one call.
func (c *Channel) post(ctx context.Context, o outgoing, asPlain bool) (int, error) {
	if o.file != nil {
		return c.postFile(ctx, o)
	}
	method, p := "sendMessage", place(o.to)
	if o.edit != 0 {
		method, p = "editMessageText", tgbotapi.Params{"chat_id": number(o.to.chat), "message_id": number(int64(o.edit))}
	}
	p["text"] = o.chunk.plain
	if !asPlain {
		p["text"], p["parse_mode"] = o.chunk.html, "HTML"
	}
	p["link_preview_options"] = jsonOf(map[string]bool{"is_disabled": true})
	if o.replyTo != 0 && o.edit == 0 {
		p["reply_parameters"] = jsonOf(map[string]any{"message_id": o.replyTo, "allow_sending_without_reply": true})
	}
	if o.markup != "" {
		p["reply_markup"] = o.markup
	}
	var m tgbotapi.Message
	if err := c.api.call(ctx, c.patience(), method, p, &m); err != nil {
		return 0, err
	}
	return messageID(method, m)
}

// messageID is the number of a message that was sent: what delivered means.
func messageID(method string, m tgbotapi.Message) (int, error) {
	if m.MessageID == 0 {
		return 0, &apiError{method: method, reason: reasonBadResponse, text: "the answer names no message", unknown: true}
	}
	return m.MessageID, nil
}

// place is the parameters that say where.
func place(to address) tgbotapi.Params {
	p := tgbotapi.Params{"chat_id": number(to.chat)}
	if to.thread != 0 && to.thread != general {
		p["message_thread_id"] = number(int64(to.thread))
	}
	return p
}

const sayTime = 5 * time.Second

// say tells a person something that the channel itself has to say. It is no part of any conversation and is not tried again.
func (c *Channel) say(ctx context.Context, to address, text string, replyTo int) {
	c.sayOut(ctx, outgoing{to: to, replyTo: replyTo}, text)
}

// sayWith is say with a keyboard below; "" = none.
func (c *Channel) sayWith(ctx context.Context, to address, text, markup string) {
	c.sayOut(ctx, outgoing{to: to, markup: markup}, text)
}

// sayOut reports whether Telegram took it.
func (c *Channel) sayOut(ctx context.Context, o outgoing, text string) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, sayTime, errCallTime)
	defer cancel()
	o.chunk = plain(text).chunks(maxUnits)[0]
	_, err := c.deliver(ctx, o)
	if err != nil {
		c.log.WarnContext(ctx, "a person was not told", "reason", reasonFor(err))
	}
	return err == nil
}

// sayOnce says the same thing at most once a minute in one place.
func (c *Channel) sayOnce(ctx context.Context, to address, text string) {
	if c.told.first(number(to.chat) + "/" + number(int64(to.thread)) + "/" + text) {
		c.say(ctx, to, text, 0)
	}
}
