package telegram

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Reasons of a failed call: a closed set, also the label of metrics and of undelivered messages.
const (
	reasonBadTarget    = "bad_target"     // not an address of this bot
	reasonBadRequest   = "bad_request"    // refused, and would be refused again
	reasonBlocked      = "blocked"        // the person blocked the bot, or the group removed it
	reasonChatNotFound = "chat_not_found" // no such chat
	reasonConflict     = "conflict"       // another program polls
	reasonUnauthorized = "unauthorized"   // the token is refused
	reasonRateLimited  = "rate_limited"
	reasonServer       = "server_error"
	reasonConnection   = "connection"
	reasonTimeout      = "timeout"
	reasonBadResponse  = "bad_response"
	reasonCanceled     = "canceled"
)

var (
	errCallTime = errors.New("the call took too long")
	errAddress  = errors.New("the address of the Bot API cannot be used")
	errTooLarge = errors.New("the answer is larger than allowed")
)

// apiError is a failed call. It contains only parts without secrets: the errors of net/http print the address, and the address has the token.
type apiError struct {
	method, reason string
	code           int
	text           string
	retryAfter     time.Duration
	migrateTo      int64
	// unknown is true when Telegram may have executed the call.
	unknown bool
}

// Error names the call and the failure.
func (e *apiError) Error() string { return "telegram " + e.method + ": " + e.reason + ": " + e.text }

// broken reports whether the cause may be the connection.
func (e *apiError) broken() bool {
	switch e.reason {
	case reasonConnection, reasonTimeout, reasonBadResponse, reasonServer:
		return true
	default:
		return false
	}
}

// cooldown returns how long no call is made for the chat of the call, or for the bot, after the failure. Telegram may refuse a call for its rate
// without a time to wait.
func (e *apiError) cooldown() time.Duration {
	if e.reason == reasonRateLimited {
		return max(e.retryAfter, time.Second)
	}
	return e.retryAfter
}

// describes reports whether Telegram's description contains a phrase.
func (e *apiError) describes(phrase string) bool {
	return strings.Contains(strings.ToLower(e.text), phrase)
}

// understand makes an *apiError of the error of a call.
func (c *client) understand(ctx context.Context, method string, err error) *apiError {
	var (
		ready   *apiError
		refused *tgbotapi.Error
	)
	switch {
	case errors.As(err, &ready):
		return ready
	case errors.As(err, &refused):
		return &apiError{
			method: method, reason: reasonOf(refused.Code, refused.Message), code: refused.Code, text: chat.Cut(c.clean(refused.Message), 300),
			retryAfter: time.Duration(refused.RetryAfter) * time.Second, migrateTo: refused.MigrateToChatID,
			unknown: refused.Code >= http.StatusInternalServerError,
		}
	case errors.Is(context.Cause(ctx), errCallTime):
		return &apiError{method: method, reason: reasonTimeout, text: errCallTime.Error(), unknown: !beforeSending(err)}
	case ctx.Err() != nil:
		return &apiError{method: method, reason: reasonCanceled, text: "given up", unknown: true}
	case errors.Is(err, errTooLarge):
		return &apiError{method: method, reason: reasonBadResponse, text: errTooLarge.Error(), unknown: true}
	default:
		return &apiError{method: method, reason: reasonConnection, text: network(err), unknown: !beforeSending(err)}
	}
}

func reasonOf(code int, text string) string {
	if strings.Contains(strings.ToLower(text), "chat not found") {
		return reasonChatNotFound
	}
	return reasonOfStatus(code)
}

func reasonOfStatus(code int) string {
	switch {
	case code == http.StatusUnauthorized, code == http.StatusNotFound:
		return reasonUnauthorized // Telegram answers 404 for a malformed token
	case code == http.StatusForbidden:
		return reasonBlocked
	case code == http.StatusConflict:
		return reasonConflict
	case code == http.StatusTooManyRequests:
		return reasonRateLimited
	case code >= http.StatusInternalServerError:
		return reasonServer
	case code >= http.StatusBadRequest:
		return reasonBadRequest
	default:
		return reasonBadResponse
	}
}

// beforeSending reports whether the request was never sent, so that Telegram cannot have executed it.
func beforeSending(err error) bool {
	var (
		op  *net.OpError
		dns *net.DNSError
		tl  *tls.CertificateVerificationError
	)
	return errors.As(err, &dns) || errors.As(err, &tl) || (errors.As(err, &op) && op.Op == "dial")
}

// network describes a failure of the network without its address.
func network(err error) string {
	var (
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		auth x509.UnknownAuthorityError
		op   *net.OpError
	)
	switch {
	case errors.As(err, &dns):
		return "the name of the server cannot be resolved"
	case errors.As(err, &cert), errors.As(err, &auth):
		return "the server's certificate is not trusted"
	case errors.As(err, &op) && op.Op == "dial":
		return "the server cannot be reached"
	default:
		return "the connection broke"
	}
}

// noTopic reports whether a call was refused because of its topic.
func (e *apiError) noTopic() bool {
	return e.describes("thread not found") || e.describes("topic_deleted") || e.describes("topic_closed")
}

// tooLong reports whether Telegram refused a message for its length. Telegram counts tags and entities by rules that it does not document.
func (e *apiError) tooLong() bool {
	return e.describes("message is too long") || e.describes("message_too_long")
}

// tooManyMarks reports whether Telegram refused the number or the size of the entities of a message.
func (e *apiError) tooManyMarks() bool {
	return e.describes("entities_too_long") || e.describes("entities_too_many") || e.describes("too many entities")
}

// ofKeyboard reports whether a call was refused because of its buttons.
func (e *apiError) ofKeyboard() bool {
	return e.reason == reasonBadRequest && (e.describes("button") || e.describes("keyboard") || e.describes("reply_markup") || e.describes("reply markup"))
}

// aboutChat are words of refusals that no other form of a message would avoid.
//
//nolint:gochecknoglobals // a constant table
var aboutChat = []string{"rights", "forbidden", "chat_", "chat ", "peer_id", "user_", "administrator", "thread", "topic", "bot was", "bots can't", "migrated", "upgraded"}

// ofForm reports whether Telegram refused a message for what it is, and not for where it goes: another form may pass. Its descriptions are not documented, so
// everything counts that does not concern the chat.
func (e *apiError) ofForm() bool {
	return e.reason == reasonBadRequest && e.migrateTo == 0 && !slices.ContainsFunc(aboutChat, e.describes)
}

// sendError returns a failed call in the form that the outbox uses.
func (e *apiError) sendError() *channel.SendError {
	s := &channel.SendError{Reason: e.reason, RetryAfter: e.retryAfter, Unknown: e.unknown, Uncounted: true, Cause: e}
	switch e.reason {
	case reasonBadRequest:
		s.Permanent, s.Uncounted = true, false
	case reasonBlocked, reasonChatNotFound:
		s.Permanent, s.Gone, s.Uncounted = true, true, false
	case reasonUnauthorized:
		s.RetryAfter = refusedPause
	case reasonRateLimited:
		s.RetryAfter = e.cooldown()
	case reasonServer, reasonBadResponse:
		// A proxy reports that it cannot reach Telegram. A 500 may concern this message alone, so the outbox backs off.
		if e.code > http.StatusInternalServerError && s.RetryAfter == 0 {
			s.RetryAfter = serverPause
		}
	default:
	}
	return s
}

// reasonFor returns the reason of any error of a call.
func reasonFor(err error) string {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e.reason
	}
	if s, ok := errors.AsType[*channel.SendError](err); ok {
		return s.Reason
	}
	return reasonConnection
}
