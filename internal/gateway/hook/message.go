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

// message returns the message of a call. Under the scheme laneway its id is derived from the signature, which does not cover headers like
// Idempotency-Key. A recorded call that is sent again with another key has the same id and is refused, on every replica. GitHub signs only
// the body, so two deliveries may have the same signature; the id of the delivery distinguishes them. A message that may use only sessions
// that the hook has created is marked as Own.
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

// idempotencyKey returns the name of the event: the key of the caller, or the signature. For GitHub it is the id of the delivery. A header
// that GitHub does not send would let a caller submit a recorded delivery under many names.
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

// read extracts the text, and the session that the caller requests, from a JSON object with a message; any other body is the text itself.
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

// membersOf returns the members of a JSON object; nil for any other body.
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

// session returns the session of a message. own: the session may be used only if it is new or the hook's own, which its acceptance decides.
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
