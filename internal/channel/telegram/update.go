package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/chat"
)

// update is one update of Telegram, decoded twice: by the library, and for the members that the library does not know.
type update struct {
	id   int
	chat int64 // the chat in whose order it is handled
	// album joins messages that were sent as one; "" if none.
	album   string
	thread  int // topic; 0 if none or General
	message *tgbotapi.Message
	press   *tgbotapi.CallbackQuery
	// answers is what the library does not decode of the message that the message answers.
	answers answers
	// forwarded text has no authority.
	forwarded bool
	memo      *memo
	// fetch bounds the downloads of the update; it ends with Run, or earlier during a backlog.
	fetch context.Context //nolint:containedctx // an update is worked on by another goroutine than the one that ends this
}

// memo records the completed steps of an update, so that a further attempt does not repeat them. Only the goroutine that works on the update uses it.
type memo struct {
	counted bool // counted as a message
	paid    bool // the bytes of its file were counted
	content *chat.Content
}

// more has the members that the library does not decode.
type more struct {
	Message *struct {
		ThreadID      int             `json:"message_thread_id"`
		IsTopic       bool            `json:"is_topic_message"`
		ForwardOrigin json.RawMessage `json:"forward_origin"`
		answers
	} `json:"message"`
	CallbackQuery *struct {
		Message *struct {
			ThreadID int  `json:"message_thread_id"`
			IsTopic  bool `json:"is_topic_message"`
		} `json:"message"`
	} `json:"callback_query"`
}

// answers is what Telegram adds to a message that answers another one.
type answers struct {
	// Quote is the part of it that the person selected.
	Quote *struct {
		Text     string                   `json:"text"`
		Entities []tgbotapi.MessageEntity `json:"entities"`
	} `json:"quote"`
	// External is the message if it is in another chat or topic. It has no text.
	External *struct {
		Origin origin `json:"origin"`
		tgbotapi.Message
	} `json:"external_reply"`
	Replied *struct {
		TopicCreated  json.RawMessage `json:"forum_topic_created"`
		ForwardOrigin json.RawMessage `json:"forward_origin"`
	} `json:"reply_to_message"`
}

// origin is who wrote a message.
type origin struct {
	User       *tgbotapi.User `json:"sender_user"`
	UserName   string         `json:"sender_user_name"`
	SenderChat *tgbotapi.Chat `json:"sender_chat"`
	Chat       *tgbotapi.Chat `json:"chat"`
}

// name returns the display name of an origin.
func (o origin) name() string {
	switch {
	case o.User != nil:
		return nameOf(o.User)
	case o.SenderChat != nil:
		return cleanName(o.SenderChat.Title)
	case o.Chat != nil:
		return cleanName(o.Chat.Title)
	default:
		return cleanName(o.UserName)
	}
}

var errUpdate = errors.New("the update cannot be read")

// decode reads an update. Even if the rest cannot be read, the number of the update is set, if it has one.
func decode(raw []byte) (update, error) {
	var number struct {
		UpdateID int `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &number); err != nil || number.UpdateID <= 0 {
		return update{}, fmt.Errorf("%w: it has no number", errUpdate)
	}
	u := update{id: number.UpdateID, memo: &memo{}}
	var known tgbotapi.Update
	var extra more
	if err := json.Unmarshal(raw, &known); err != nil {
		return u, fmt.Errorf("%w: %w", errUpdate, err)
	}
	if err := json.Unmarshal(raw, &extra); err != nil {
		return u, fmt.Errorf("%w: %w", errUpdate, err)
	}
	u.message, u.press = known.Message, known.CallbackQuery
	if m := u.message; m != nil && m.Chat != nil {
		u.chat, u.album = m.Chat.ID, m.MediaGroupID
		u.forwarded = m.ForwardDate != 0 || len(extra.Message.ForwardOrigin) > 0
		u.thread = topic(extra.Message.IsTopic, extra.Message.ThreadID)
		u.answers = extra.Message.answers
	}
	if p := u.press; p != nil && p.Message != nil && p.Message.Chat != nil {
		u.chat = p.Message.Chat.ID
		if m := extra.CallbackQuery.Message; m != nil {
			u.thread = topic(m.IsTopic, m.ThreadID)
		}
	}
	return u, nil
}

// topic returns the thread of a forum's topic, 0 if none. Reply threads in a plain group are not topics, and General counts as no topic.
func topic(is bool, id int) int {
	if !is || id == general {
		return 0
	}
	return id
}
