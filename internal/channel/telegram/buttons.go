package telegram

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// buttonLife is how long the buttons of a message work.
const buttonLife = 10 * time.Minute

// errNotYours is the refusal of a press by somebody else, or in another chat.
var errNotYours = errors.New("this button is not for you")

// Ask sends text with buttons. What a button says stays here: Telegram gets a random id for each, so that nobody can press what was
// never offered.
func (c *Channel) Ask(ctx context.Context, target chat.Target, userID, text string, rows [][]channel.Button) (chat.Sent, error) {
	to, err := c.target(target)
	user := int64(0)
	if err == nil && userID != "" {
		user, err = strconv.ParseInt(userID, 10, 64)
	}
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonBadTarget, Permanent: true, Cause: err}
	}
	set := ButtonSet{Bot: c.name, ChatID: to.chat, UserID: user, Texts: map[string]string{}, Expires: time.Now().Add(buttonLife)}
	keyboard, err := set.fill(rows)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonBadRequest, Permanent: true, Cause: err}
	}
	if err := c.buttons.Put(ctx, set); err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonConnection, Cause: fmt.Errorf("keeping the buttons: %w", err)}
	}
	chunks := render(text).chunks(maxUnits)
	if len(chunks) == 0 {
		chunks = plain("?").chunks(maxUnits)
	}
	first := 0
	for i, part := range chunks {
		o := outgoing{to: to, chunk: part}
		if i == len(chunks)-1 {
			o.markup = keyboard
		}
		id, err := c.deliver(ctx, o)
		if err != nil {
			return chat.Sent{}, err
		}
		if first == 0 {
			first = id
		}
	}
	return chat.Sent{ProviderID: number(int64(first))}, nil
}

// fill gives each button an id and makes the keyboard of them.
func (s *ButtonSet) fill(rows [][]channel.Button) (string, error) {
	keyboard := [][]map[string]string{}
	for _, row := range rows {
		var line []map[string]string
		for _, b := range row {
			if b.Text == "" || b.Label == "" {
				return "", errors.New("a button needs a label and something to say")
			}
			id := buttonID()
			s.Texts[id] = b.Text
			line = append(line, map[string]string{"text": escaped(b.Label), "callback_data": id})
		}
		keyboard = append(keyboard, line)
	}
	if len(s.Texts) == 0 {
		return "", errors.New("there are no buttons")
	}
	return jsonOf(map[string]any{"inline_keyboard": keyboard}), nil
}

func buttonID() string {
	var raw [18]byte
	_, _ = rand.Read(raw[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// escaped shows characters that would make a label lie.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range chat.CleanText(s) {
		if chat.Unprintable(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// pressed turns the press of a button into the message that it stands for. It is answered in every case, else the button spins. The same
// rules hold as for a typed message; the set is used up by a press that they allow.
func (c *Channel) pressed(ctx context.Context, u update) error {
	p := u.press
	if p.From == nil || p.Message == nil || p.Message.Chat == nil {
		c.obs.Update("ignored")
		return nil
	}
	if done := u.memo.content; done != nil { // the button is used up, the store was away
		return c.offerPress(ctx, u, *done)
	}
	who, err := c.judge(ctx, p.From, p.Message.Chat)
	if err != nil {
		return err
	}
	if who != admit {
		c.obs.Update("refused")
		c.answerPress(ctx, p.ID, "You may not use this.")
		return nil
	}
	set, ok, err := c.buttons.Take(ctx, p.Data, func(s ButtonSet) error {
		if s.Bot != c.name || s.ChatID != p.Message.Chat.ID || (s.UserID != 0 && s.UserID != p.From.ID) {
			return errNotYours
		}
		return nil
	})
	switch {
	case errors.Is(err, errNotYours):
		c.obs.Update("refused")
		c.answerPress(ctx, p.ID, "This button is for somebody else.")
		return nil
	case err != nil:
		return fmt.Errorf("looking for a button: %w", err)
	case !ok:
		c.obs.Update("refused")
		c.answerPress(ctx, p.ID, "This button was used or is too old. Ask again.")
		return nil
	}
	to := address{chat: u.chat, thread: u.thread}
	content := chat.Content{
		Text: set.Texts[p.Data], Sender: chat.Sender{ID: number(p.From.ID), Name: nameOf(p.From)},
		Options: chat.Options{ReplyTo: c.targetOf(to), NoMerge: true},
	}
	content.Thread = content.Options.ReplyTo.Thread
	u.memo.content = &content
	c.answerPress(ctx, p.ID, "")
	return c.offerPress(ctx, u, content)
}

func (c *Channel) offerPress(ctx context.Context, u update, content chat.Content) error {
	u.message = &tgbotapi.Message{MessageID: u.press.Message.MessageID}
	return c.offer(ctx, u, address{chat: u.chat, thread: u.thread}, content)
}

func (c *Channel) answerPress(ctx context.Context, id, text string) {
	p := tgbotapi.Params{"callback_query_id": id}
	if text != "" {
		p["text"] = text
	}
	if err := c.api.call(ctx, signTime, "answerCallbackQuery", p, nil); err != nil {
		c.log.DebugContext(ctx, "a press was not answered", "reason", reasonFor(err))
	}
}

// buttonMemory is Buttons in memory: at most a thousand messages, forgotten at the end of the process.
type buttonMemory struct {
	mu   sync.Mutex
	sets map[string]*ButtonSet // by button id
}

const maxButtons = 10_000

func newButtonMemory() *buttonMemory { return &buttonMemory{sets: map[string]*ButtonSet{}} }

// Put implements Buttons.
func (m *buttonMemory) Put(_ context.Context, b ButtonSet) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.sets, func(_ string, s *ButtonSet) bool { return now.After(s.Expires) })
	if len(m.sets)+len(b.Texts) > maxButtons {
		return errors.New("too many buttons are open")
	}
	for id := range b.Texts {
		m.sets[id] = &b
	}
	return nil
}

// Take implements Buttons.
func (m *buttonMemory) Take(_ context.Context, id string, check func(ButtonSet) error) (ButtonSet, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[id]
	if s == nil || time.Now().After(s.Expires) {
		return ButtonSet{}, false, nil
	}
	if err := check(*s); err != nil {
		return ButtonSet{}, false, err
	}
	for other := range s.Texts {
		delete(m.sets, other)
	}
	return *s, true, nil
}
