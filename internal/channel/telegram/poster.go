package telegram

import (
	"context"
	"errors"
	"log/slog"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
)

// outgoing is one message to be sent.
type outgoing struct {
	to    address
	chunk chunk
	// edit is a message to be replaced; 0 means a new one.
	edit    int
	replyTo int
	markup  string // the keyboard as JSON, "" if none
	// file is sent instead of the chunk; nil if none.
	file *upload
	// claim is checked before each request; nil if the message is not a row of the outbox.
	claim channel.Claim
}

// poster sends single messages. It is safe for concurrent use and has no state.
type poster struct {
	api       *client
	limits    *limiter
	addresses *addresses
	conn      *connection
	log       *slog.Logger
}

// deliver waits for the limits and sends one message. A message that Telegram refuses at one place is sent to another: outside of a deleted topic, to the new id of
// a group, as a new message; a file is sent as a document. It returns the message's id; its errors are [*channel.SendError].
func (p *poster) deliver(ctx context.Context, o outgoing) (int, error) {
	for range 6 { // each change of the form is made at most once
		if err := p.limits.wait(ctx, o.to.chat); err != nil {
			return 0, err
		}
		if o.claim != nil { // the claim may have ended during the wait
			if err := o.claim.Check(); err != nil {
				return 0, err
			}
		}
		id, err := p.post(ctx, o)
		var e *apiError
		switch {
		case err == nil:
			return id, nil
		case !errors.As(err, &e):
			return 0, &channel.SendError{Reason: reasonConnection, Unknown: true, Uncounted: true, Cause: err}
		case o.edit != 0 && e.describes("message is not modified"):
			return o.edit, nil
		case o.edit != 0 && (e.describes("message to edit not found") || e.describes("message can't be edited")):
			o.edit = 0
		case o.to.thread != 0 && e.noTopic():
			o.to.thread = 0
		case e.migrateTo != 0 && o.to.chat != e.migrateTo:
			if err := p.addresses.move(ctx, o.to.chat, e.migrateTo); err != nil { // this message needs no record
				p.log.WarnContext(ctx, "the new id of a group was not recorded", "err", err)
			}
			o.to.chat, o.edit = e.migrateTo, 0
		case o.file != nil && o.file.form != asDocument() && e.reason == reasonBadRequest:
			p.log.WarnContext(ctx, "Telegram refused a file in its own form; sending it as a document", "err", e)
			o.file.form = asDocument()
		default:
			return 0, e.sendError()
		}
	}
	return 0, &channel.SendError{Reason: reasonBadRequest, Permanent: true}
}

// post makes the one call. It does not wait for the limits; its callers have counted the message.
func (p *poster) post(ctx context.Context, o outgoing) (int, error) {
	if o.file != nil {
		return p.postFile(ctx, o)
	}
	method, params := "sendMessage", place(o.to)
	if o.edit != 0 {
		method, params = "editMessageText", tgbotapi.Params{"chat_id": number(o.to.chat), "message_id": number(int64(o.edit))}
	}
	params["text"] = o.chunk.plain
	if o.chunk.html != "" {
		params["text"], params["parse_mode"] = o.chunk.html, "HTML"
	}
	params["link_preview_options"] = jsonOf(map[string]bool{"is_disabled": true})
	if o.replyTo != 0 && o.edit == 0 {
		params["reply_parameters"] = jsonOf(map[string]any{"message_id": o.replyTo, "allow_sending_without_reply": true})
	}
	if o.markup != "" {
		params["reply_markup"] = o.markup
	}
	var m tgbotapi.Message
	if err := p.api.call(ctx, p.conn.patience(), method, params, &m); err != nil {
		return 0, err
	}
	return messageID(method, m)
}

// postFile makes the one call of a file.
func (p *poster) postFile(ctx context.Context, o outgoing) (int, error) {
	var m tgbotapi.Message
	if err := p.api.upload(ctx, o.to.chat, place(o.to), o.file, &m); err != nil {
		return 0, err
	}
	return messageID(o.file.method, m)
}

// messageID returns the id of a message that was sent. An answer without an id does not prove a delivery.
func messageID(method string, m tgbotapi.Message) (int, error) {
	if m.MessageID == 0 {
		return 0, &apiError{method: method, reason: reasonBadResponse, text: "the answer names no message", unknown: true}
	}
	return m.MessageID, nil
}

// place returns the parameters that name an address.
func place(to address) tgbotapi.Params {
	p := tgbotapi.Params{"chat_id": number(to.chat)}
	if to.thread != 0 && to.thread != general {
		p["message_thread_id"] = number(int64(to.thread))
	}
	return p
}
