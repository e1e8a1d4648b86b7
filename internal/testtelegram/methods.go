package testtelegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// parameters returns the allowed parameters of a method that this server supports.
func parameters(method string) ([]string, bool) {
	known := map[string][]string{
		"getMe":                  {},
		"getUpdates":             {"offset", "limit", "timeout", "allowed_updates"},
		"deleteWebhook":          {"drop_pending_updates"},
		"setWebhook":             {"url", "secret_token", "allowed_updates", "max_connections", "drop_pending_updates"},
		"getWebhookInfo":         {},
		"sendMessage":            {"chat_id", "message_thread_id", "text", "parse_mode", "link_preview_options", "reply_parameters", "reply_markup", "disable_notification"},
		"editMessageText":        {"chat_id", "message_id", "text", "parse_mode", "link_preview_options", "reply_markup"},
		"editMessageReplyMarkup": {"chat_id", "message_id", "reply_markup"},
		"deleteMessage":          {"chat_id", "message_id"},
		"sendMessageDraft":       {"chat_id", "message_thread_id", "draft_id", "text", "parse_mode"},
		"sendChatAction":         {"chat_id", "message_thread_id", "action"},
		"setMessageReaction":     {"chat_id", "message_id", "reaction", "is_big"},
		"getMyCommands":          {},
		"setMyCommands":          {"commands"},
		"getFile":                {"file_id"},
		"getChatMember":          {"chat_id", "user_id"},
		"answerCallbackQuery":    {"callback_query_id", "text", "show_alert"},
	}
	for upload := range uploads() {
		known[upload] = []string{"chat_id", "message_thread_id"}
	}
	list, ok := known[method]
	return list, ok
}

// perform executes a method.
func (s *Server) perform(ctx context.Context, method string, p url.Values, file *File) answer {
	s.mu.Lock()
	allowed, known := parameters(method)
	if !known || (method == "sendMessageDraft" && !s.cfg.Drafts) {
		if !known {
			s.violate("there is no method %s", method)
		}
		s.mu.Unlock()
		return refuse(http.StatusNotFound, "Not Found")
	}
	for name := range maps.Keys(p) {
		if !slices.Contains(allowed, name) {
			s.violate("%s has no parameter %s", method, name)
		}
	}
	if _, upload := uploads()[method]; file != nil && !upload {
		s.violate("%s takes no file", method)
	}
	s.mu.Unlock()
	if method == "getUpdates" {
		return s.getUpdates(ctx, p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.touch()
	return botAPI{s}.call(method, p, file)
}

// botAPI has the methods of the Bot API. The mutex is held while one is called.
type botAPI struct{ *Server }

func (s botAPI) call(method string, p url.Values, file *File) answer {
	if _, upload := uploads()[method]; upload {
		return s.sendFile(method, p, file)
	}
	switch method {
	case "getMe":
		return ok(s.me())
	case "sendMessage":
		return s.sendMessage(p)
	case "editMessageText":
		return s.editMessageText(p)
	case "editMessageReplyMarkup":
		return s.editMessageReplyMarkup(p)
	case "deleteMessage":
		return s.deleteMessage(p)
	case "sendMessageDraft":
		return s.sendMessageDraft(p)
	case "sendChatAction":
		return s.sendChatAction(p)
	case "setMessageReaction":
		return s.setMessageReaction(p)
	case "getFile":
		return s.getFile(p)
	case "getChatMember":
		return s.getChatMember(p)
	case "answerCallbackQuery":
		return ok(true)
	default:
		return s.settings(method, p)
	}
}

func (s *Server) me() map[string]any {
	return map[string]any{"id": s.bot, "is_bot": true, "first_name": "Lane", "username": s.cfg.Username, "can_join_groups": true}
}

// settings are the methods that concern the bot itself.
func (s botAPI) settings(method string, p url.Values) answer {
	switch method {
	case "getMyCommands":
		if s.commands == "" {
			return ok([]any{})
		}
		return ok(json.RawMessage(s.commands))
	case "setMyCommands":
		if !json.Valid([]byte(p.Get("commands"))) {
			return badRequest("can't parse commands")
		}
		s.commands = p.Get("commands")
		return ok(true)
	case "deleteWebhook":
		s.webhook = webhook{}
		return ok(true)
	case "setWebhook":
		s.webhook = webhook{url: p.Get("url"), secret: p.Get("secret_token")}
		return ok(true)
	default: // getWebhookInfo
		return ok(map[string]any{"url": s.webhook.url, "pending_update_count": len(s.updates)})
	}
}

func (s botAPI) sendMessage(p url.Values) answer {
	r, refused := s.reach(p.Get("chat_id"))
	if refused != nil {
		return *refused
	}
	thread, refused := r.thread(p.Get("message_thread_id"))
	if refused != nil {
		return *refused
	}
	m, refused := s.read(p.Get("text"), p.Get("parse_mode"))
	if refused != nil {
		return *refused
	}
	if raw := p.Get("reply_parameters"); raw != "" {
		var reply map[string]any
		if json.Unmarshal([]byte(raw), &reply) != nil {
			return badRequest("can't parse reply parameters")
		}
		id, isNumber := reply["message_id"].(float64)
		if !isNumber {
			return badRequest("message to be replied not found")
		}
		m.ReplyTo = int(id)
	}
	m.ID, m.Thread, m.SentAt, m.Buttons = r.next, thread, time.Now(), buttonsOf(p.Get("reply_markup"))
	r.next++
	r.messages = append(r.messages, &m)
	return ok(s.messageJSON(r, &m))
}

func (s botAPI) messageJSON(r *chatState, m *Message) map[string]any {
	out := map[string]any{"message_id": m.ID, "date": m.SentAt.Unix(), "chat": r.json(), "from": s.me()}
	if m.File == nil {
		out["text"] = m.Text
	} else {
		out["document"] = map[string]any{"file_id": "sent", "file_unique_id": "sent", "file_name": m.File.Name, "file_size": len(m.File.Content)}
	}
	if m.Thread != 0 {
		out["message_thread_id"], out["is_topic_message"] = m.Thread, true
	}
	return out
}

func (s botAPI) editMessageText(p url.Values) answer {
	r, refused := s.reach(p.Get("chat_id"))
	if refused != nil {
		return *refused
	}
	old := r.find(p.Get("message_id"))
	if old == nil {
		return badRequest("message to edit not found")
	}
	m, refused := s.read(p.Get("text"), p.Get("parse_mode"))
	if refused != nil {
		return *refused
	}
	if m.Text == old.Text && m.HTML == old.HTML {
		return badRequest("message is not modified: specified new message content and reply markup are exactly the same")
	}
	old.Edits = append(old.Edits, old.Text)
	old.Text, old.HTML, old.Entities = m.Text, m.HTML, m.Entities
	old.Buttons = buttonsOf(p.Get("reply_markup"))
	return ok(s.messageJSON(r, old))
}

func (s botAPI) editMessageReplyMarkup(p url.Values) answer {
	r, refused := s.reach(p.Get("chat_id"))
	if refused != nil {
		return *refused
	}
	m := r.find(p.Get("message_id"))
	if m == nil {
		return badRequest("message to edit not found")
	}
	buttons := buttonsOf(p.Get("reply_markup"))
	if len(buttons) == 0 && len(m.Buttons) == 0 {
		return badRequest("message is not modified: specified new message content and reply markup are exactly the same")
	}
	m.Buttons = buttons
	return ok(s.messageJSON(r, m))
}

func (s botAPI) deleteMessage(p url.Values) answer {
	r, refused := s.reach(p.Get("chat_id"))
	if refused != nil {
		return *refused
	}
	m := r.find(p.Get("message_id"))
	if m == nil {
		return badRequest("message to delete not found")
	}
	r.messages = slices.DeleteFunc(r.messages, func(other *Message) bool { return other == m })
	return ok(true)
}

func (s botAPI) sendMessageDraft(p url.Values) answer {
	r, refused := s.reach(p.Get("chat_id"))
	if refused != nil {
		return *refused
	}
	if r.kind != "private" {
		return badRequest("drafts are for private chats")
	}
	if id, err := strconv.Atoi(p.Get("draft_id")); err != nil || id == 0 {
		return badRequest("draft_id must be non-zero")
	}
	if _, refused := s.read(p.Get("text"), p.Get("parse_mode")); refused != nil {
		return *refused
	}
	return ok(true)
}

func (s botAPI) sendChatAction(p url.Values) answer {
	r, refused := s.reach(p.Get("chat_id"))
	if refused != nil {
		return *refused
	}
	if _, refused := r.thread(p.Get("message_thread_id")); refused != nil {
		return *refused
	}
	if p.Get("action") != "typing" {
		return badRequest("wrong parameter action in request")
	}
	return ok(true)
}

func (s botAPI) setMessageReaction(p url.Values) answer {
	r, refused := s.reach(p.Get("chat_id"))
	switch {
	case refused != nil:
		return *refused
	case r.noReact:
		return badRequest("REACTION_INVALID")
	case p.Get("message_id") == "":
		return badRequest("message to react not found")
	}
	return ok(true)
}

func (s botAPI) getChatMember(p url.Values) answer {
	r, refused := s.reach(p.Get("chat_id"))
	if refused != nil {
		return *refused
	}
	id, err := strconv.ParseInt(p.Get("user_id"), 10, 64)
	if err != nil {
		return badRequest("invalid user_id specified")
	}
	status := "member"
	if r.admins[id] {
		status = "administrator"
	}
	return ok(map[string]any{"status": status, "user": map[string]any{"id": id, "is_bot": false, "first_name": "x"}})
}

// MaxText is the longest text of a message in UTF-16 units, counted after the entities were parsed.
const MaxText = 4096

// MaxEntities is the largest number of entities of a message, and MaxEntityBytes about what their
// arguments may have together.
const (
	MaxEntities    = 100
	MaxEntityBytes = 9500
)

// EntityBytes returns the bytes of the arguments of entities.
func EntityBytes(entities []Entity) int {
	n := 0
	for _, e := range entities {
		n += len(e.Arg)
	}
	return n
}

// Units returns the length of a string as Telegram counts it.
func Units(s string) int { return len(utf16.Encode([]rune(s))) }

// Entity is a piece of text with a style; Offset and Length are in bytes.
type Entity struct {
	Type           string
	Offset, Length int
	// Arg is the address of a link or the language of a code block.
	Arg string
}

// errParse is wrapped by every refusal of ParseHTML.
var errParse = errors.New("can't parse entities")

// ParseHTML reads Telegram's HTML: it returns the displayed text and its entities, or the error
// with which Telegram would refuse it. nested names the entities that are nested against the rules,
// "" if none.
func ParseHTML(src string) (text string, entities []Entity, nested string, err error) {
	p := htmlParser{}
	for src != "" {
		i := strings.IndexByte(src, '<')
		if i < 0 {
			i = len(src)
		}
		p.text.WriteString(unescape(src[:i]))
		src = src[i:]
		if src == "" {
			break
		}
		end := strings.IndexByte(src, '>')
		if end < 0 {
			return "", nil, "", fmt.Errorf("%w: unclosed start tag", errParse)
		}
		if err := p.tag(src[1:end]); err != nil {
			return "", nil, "", err
		}
		src = src[end+1:]
	}
	if len(p.stack) > 0 {
		return "", nil, "", fmt.Errorf("%w: can't find end tag corresponding to start tag %q", errParse, p.stack[len(p.stack)-1].Type)
	}
	return p.text.String(), p.done, p.nested, nil
}

// unescape replaces the four named entities and the numbers that Telegram supports; everything else
// is unchanged.
func unescape(s string) string {
	if !strings.Contains(s, "&") {
		return s
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '&')
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		s = s[i:]
		end := strings.IndexByte(s, ';')
		name := ""
		if end > 0 && end < 12 {
			name = s[1:end]
		}
		if name != "lt" && name != "gt" && name != "amp" && name != "quot" && !strings.HasPrefix(name, "#") {
			b.WriteByte('&')
			s = s[1:]
			continue
		}
		b.WriteString(html.UnescapeString(s[:end+1]))
		s = s[end+1:]
	}
	return b.String()
}

type htmlParser struct {
	text   strings.Builder
	stack  []Entity
	done   []Entity
	nested string
}

// tagNames maps the spellings of a tag to the type of its entity.
func tagType(name string) string {
	switch name {
	case "b", "strong":
		return "bold"
	case "i", "em":
		return "italic"
	case "u", "ins":
		return "underline"
	case "s", "strike", "del":
		return "strikethrough"
	case "tg-spoiler":
		return "spoiler"
	case "a":
		return "text_link"
	case "code", "pre", "blockquote":
		return name
	default:
		return ""
	}
}

func (p *htmlParser) tag(tag string) error {
	if name, closing := strings.CutPrefix(tag, "/"); closing {
		return p.closeTag(tagType(strings.TrimSpace(name)))
	}
	name, attributes, _ := strings.Cut(tag, " ")
	e := Entity{Type: tagType(name), Offset: p.text.Len()}
	switch {
	case e.Type == "":
		return fmt.Errorf("%w: unsupported start tag %q at byte offset %d", errParse, name, p.text.Len())
	case name == "a":
		href, quoted := strings.CutPrefix(strings.TrimSpace(attributes), `href="`)
		if !quoted || !strings.HasSuffix(href, `"`) {
			return fmt.Errorf("%w: a link needs href", errParse)
		}
		e.Arg = unescape(strings.TrimSuffix(href, `"`))
	case name == "code" && attributes != "":
		class, isClass := strings.CutPrefix(attributes, `class="language-`)
		if !isClass || len(p.stack) == 0 || p.stack[len(p.stack)-1].Type != "pre" {
			return fmt.Errorf("%w: code takes a language inside of pre only", errParse)
		}
		p.stack[len(p.stack)-1].Arg = unescape(strings.TrimSuffix(class, `"`))
		e.Type = "language"
	case attributes != "":
		return fmt.Errorf("%w: %s takes no attributes", errParse, name)
	}
	p.checkNesting(e)
	p.stack = append(p.stack, e)
	return nil
}

// checkNesting checks the documented rules of nesting.
func (p *htmlParser) checkNesting(e Entity) {
	for _, outer := range p.stack {
		hard := outer.Type == "code" || (outer.Type == "pre" && e.Type != "language")
		inner := (e.Type == "code" || e.Type == "pre") && outer.Type != "blockquote"
		same := outer.Type == e.Type
		if hard || inner || same {
			p.nested = e.Type + " inside of " + outer.Type
		}
	}
}

func (p *htmlParser) closeTag(kind string) error {
	if len(p.stack) == 0 {
		return fmt.Errorf("%w: unexpected end tag", errParse)
	}
	top := p.stack[len(p.stack)-1]
	if top.Type == "language" && kind == "code" {
		p.stack = p.stack[:len(p.stack)-1]
		return nil
	}
	if top.Type != kind {
		return fmt.Errorf("%w: unmatched end tag, expected %q, found %q", errParse, top.Type, kind)
	}
	p.stack = p.stack[:len(p.stack)-1]
	top.Length = p.text.Len() - top.Offset
	if top.Length > 0 {
		p.done = append(p.done, top)
	}
	return nil
}
