package hook

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

// call is one call of a hook.
type call struct {
	name   string
	hook   Hook
	header http.Header
	body   []byte
	sig    proof
}

func (c *call) principal() string { return channel + ":" + c.name }

// message makes the message of a call. Under the scheme laneway its id follows from the signature, which headers like Idempotency-Key are
// no part of: a call that was recorded and is sent again under another key meets its own id and is refused, on every replica. GitHub signs
// the body alone, so two deliveries may well have one signature; the id of the delivery distinguishes them. A message that may use only
// what the hook has made is marked as Own.
func (c *call) message(defaultAgent string) (chat.Message, error) {
	var m chat.Message
	text, asked, err := c.read()
	if err != nil {
		return m, err
	}
	key, own, err := c.session(asked, defaultAgent)
	if err != nil {
		return m, err
	}
	idempotency, err := c.idempotencyKey()
	if err != nil {
		return m, err
	}
	digest := sha256.Sum256(c.body)
	id := c.sig.time + "\n" + strings.ToLower(c.sig.given)
	if c.hook.Scheme == GitHub {
		id = GitHub + "\n" + idempotency
	}
	return chat.Message{
		Session: key, Own: own, ID: uuid.NewSHA1(uuid.Nil, []byte(c.name+"\n"+id)).String(),
		Channel: channel, Dedupe: c.principal() + "/" + idempotency, ParamsHash: hex.EncodeToString(digest[:]),
		Content: chat.Content{
			Text: text, External: true, Sender: chat.Sender{ID: c.principal()},
			Options: chat.Options{NoMerge: true, ReplyTo: key.Target()},
		},
	}, nil
}

// idempotencyKey names the event: the key of the caller, else the signature. From GitHub it is the id of the delivery; a header that GitHub does not
// send would let a recorded delivery come in again under as many names as its sender likes.
func (c *call) idempotencyKey() (string, error) {
	header := "Idempotency-Key"
	if c.hook.Scheme == GitHub {
		header = "X-GitHub-Delivery"
	}
	if key := c.header.Get(header); key != "" {
		return key, chat.CheckMessageID(header, key)
	}
	return strings.ToLower(c.sig.given), nil
}

// read takes the text, and the session that the caller asks for, out of a JSON object with a message; any other body is the text itself.
func (c *call) read() (text, session string, err error) {
	if !utf8.Valid(c.body) {
		return "", "", fault.Invalid("the body is not valid UTF-8")
	}
	members := membersOf(c.body)
	text, ok := stringOf(members["message"])
	if !ok {
		text = c.hook.Prefix + string(c.body)
	}
	if c.hook.AllowSessionKey {
		session, _ = stringOf(members["sessionKey"])
	}
	return text, session, nil
}

// membersOf are the members of a JSON object; none for any other text.
func membersOf(body []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if strictjson.Inspect(body) != nil || json.Unmarshal(body, &members) != nil {
		return nil
	}
	return members
}

func stringOf(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 {
		return "", false
	}
	return strictjson.Unquote(raw)
}

// session is where a message goes. own: the session may be used only when it is new or the hook's own, which its acceptance decides.
func (c *call) session(asked, defaultAgent string) (key chat.SessionKey, own bool, err error) {
	id := cmp.Or(c.hook.Agent, defaultAgent)
	text := cmp.Or(asked, c.hook.Session)
	if text == "" {
		return chat.SessionKey{Agent: id, Rest: c.principal()}, false, nil
	}
	if key, err = chat.ParseSessionKey(text, id); err != nil {
		return key, false, fault.Invalid("sessionKey: " + err.Error())
	}
	if asked == "" || key == chat.MainKey(id) {
		return key, false, nil
	}
	right := key.RightOf(c.principal())
	if key.Agent != id || right != chat.RightFree && right != chat.RightMine {
		return key, false, chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
	}
	return key, true, nil
}
