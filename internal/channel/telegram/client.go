package telegram

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

const (
	// maxBody is the largest answer that is read, in bytes. Telegram's largest, a hundred updates,
	// is far smaller.
	maxBody = 4 << 20
	// callTime bounds a call without another bound.
	callTime = 15 * time.Second
	dialTime = 5 * time.Second
)

// client makes calls of the Bot API. The library encodes them and decodes their envelope. The
// library never has the token and opens no connection; the context of each call bounds it. It is
// safe for concurrent use.
type client struct {
	base, token string
	transport   http.RoundTripper
	metrics     *Metrics
	limits      *limiter
}

// newTransport makes a transport whose connections detect within seconds that the other end is
// gone. HTTP/2 is off: there a canceled call leaves its dead connection for the next call. A nil
// proxy means the one that the environment names.
func newTransport(proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	d := &net.Dialer{
		Timeout:         dialTime,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 2},
	}
	p := &http.Protocols{}
	p.SetHTTP1(true)
	return &http.Transport{
		Proxy: proxy, DialContext: d.DialContext, TLSHandshakeTimeout: dialTime, Protocols: p,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 60 * time.Second,
	}
}

// doer is a function as the library's HTTP client.
type doer func(*http.Request) (*http.Response, error)

// Do implements tgbotapi.HTTPClient.
func (f doer) Do(r *http.Request) (*http.Response, error) { return f(r) }

// call makes one call within limit and decodes its result into out (nil means not wanted). Errors
// are *apiError.
func (c *client) call(ctx context.Context, limit time.Duration, method string, params tgbotapi.Params, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errCallTime)
	defer cancel()
	return c.exchange(ctx, request{method: method, chat: chatOf(params), params: params}, out)
}

// chatOf returns the chat that a call concerns, or anyChat.
func chatOf(params tgbotapi.Params) int64 {
	chat, err := strconv.ParseInt(params["chat_id"], 10, 64)
	if err != nil {
		return anyChat
	}
	return chat
}

// request is one call of the Bot API.
type request struct {
	method string
	// chat is the chat that the call concerns, for the cooldowns, or anyChat.
	chat   int64
	params tgbotapi.Params
	// complete replaces the body of the library's request; nil means that the body has the params.
	complete func(*http.Request) error
}

// exchange makes one call within the time that ctx has. During a cooldown of its chat or of the bot
// it makes no call: it returns the error with which Telegram would answer. Only exchange records
// cooldowns.
func (c *client) exchange(ctx context.Context, q request, out any) error {
	if left := c.limits.cooldown(q.chat); left > 0 {
		return &apiError{method: q.method, reason: reasonRateLimited, code: http.StatusTooManyRequests, text: "Telegram has asked to wait", retryAfter: left}
	}
	bot := &tgbotapi.BotAPI{Client: doer(func(r *http.Request) (*http.Response, error) {
		r = r.WithContext(ctx)
		if q.complete != nil {
			if err := q.complete(r); err != nil {
				return nil, err
			}
		}
		return c.do(r, q.method)
	})}
	bot.SetAPIEndpoint("http://bot.invalid/%s/%s")
	resp, err := bot.MakeRequest(q.method, q.params)
	if err == nil && out != nil {
		err = json.Unmarshal(resp.Result, out)
	}
	if err == nil {
		c.metrics.call(q.method, "ok")
		return nil
	}
	failed := c.understand(ctx, q.method, err)
	c.metrics.call(q.method, failed.reason)
	if d := failed.cooldown(); d > 0 {
		c.limits.cool(q.chat, d)
	}
	if failed.broken() {
		c.dropConnections()
	}
	return failed
}

// do sends a request of the library to the address of the Bot API, which has the token, and reads
// the whole answer.
func (c *client) do(r *http.Request, method string) (*http.Response, error) {
	u, err := url.Parse(c.base + "/bot" + c.token + "/" + method)
	if err != nil {
		return nil, errAddress
	}
	r.URL, r.Host = u, u.Host
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := readBody(resp.Body, maxBody)
	if err != nil {
		return nil, err
	}
	if !envelope(body) {
		reason := reasonBadResponse
		if resp.StatusCode >= http.StatusInternalServerError {
			reason = reasonServer
		}
		return nil, &apiError{method: method, reason: reason, code: resp.StatusCode, text: "the answer is not Telegram's", unknown: true}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// envelope reports whether an answer is Telegram's own: it has `ok`, and with a refusal its code.
// The page of a proxy has no such member and is ignored, whatever its status is.
func envelope(body []byte) bool {
	var e struct {
		OK   *bool `json:"ok"`
		Code int   `json:"error_code"`
	}
	return json.Unmarshal(body, &e) == nil && e.OK != nil && (*e.OK || e.Code != 0)
}

func readBody(body io.ReadCloser, limit int64) (data []byte, err error) {
	defer func() { err = errors.Join(err, body.Close()) }()
	data, err = io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, errTooLarge
	}
	return data, err
}

// dropConnections makes the next call use a new connection.
func (c *client) dropConnections() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// download streams a file that getFile has named, at most limit bytes.
func (c *client) download(ctx context.Context, path string, limit int64, w io.Writer) (int64, error) {
	u, err := url.Parse(c.base + "/file/bot" + c.token + "/")
	if err != nil {
		return 0, c.understand(ctx, methodFile, errAddress)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath(strings.TrimPrefix(path, "/")).String(), nil)
	if err != nil {
		return 0, c.understand(ctx, methodFile, errAddress)
	}
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return 0, c.understand(ctx, methodFile, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		reason := reasonOfStatus(resp.StatusCode)
		if resp.StatusCode == http.StatusNotFound {
			reason = reasonBadRequest
		}
		return 0, &apiError{method: methodFile, reason: reason, code: resp.StatusCode, text: "the file is not available"}
	}
	n, err := io.Copy(w, io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return n, c.understand(ctx, methodFile, err)
	case n > limit:
		return n, errTooLarge
	}
	return n, nil
}

// methodFile names a download in errors and metrics.
const methodFile = "file"

// clean removes the token from a string. No code is known to put it there; this is a second
// safeguard.
func (c *client) clean(s string) string {
	_, secret, _ := strings.Cut(c.token, ":")
	for _, hidden := range []string{c.token, url.QueryEscape(c.token), secret} {
		s = strings.ReplaceAll(s, hidden, "[token]")
	}
	return s
}

// jsonOf encodes a parameter that is an object. Its callers pass maps and slices that always
// encode.
func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%q", err.Error())
	}
	return string(b)
}

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

// apiError is a failed call. It contains only parts without secrets: the errors of net/http print
// the address, and the address has the token.
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

// cooldown returns how long no call is made for the chat of the call, or for the bot, after the
// failure. Telegram may refuse a call for its rate without a time to wait.
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

// beforeSending reports whether the request was never sent, so that Telegram cannot have executed
// it.
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

// tooLong reports whether Telegram refused a message for its length. Telegram counts tags and
// entities by rules that it does not document.
func (e *apiError) tooLong() bool {
	return e.describes("message is too long") || e.describes("message_too_long")
}

// tooManyMarks reports whether Telegram refused the number or the size of the entities of a
// message.
func (e *apiError) tooManyMarks() bool {
	return e.describes("entities_too_long") || e.describes("entities_too_many") || e.describes("too many entities")
}

// ofKeyboard reports whether a call was refused because of its buttons.
func (e *apiError) ofKeyboard() bool {
	return e.reason == reasonBadRequest && (e.describes("button") || e.describes("keyboard") || e.describes("reply_markup") || e.describes("reply markup"))
}

// aboutChat are words of refusals that no other form of a message would avoid.
func aboutChat() []string {
	return []string{"rights", "forbidden", "chat_", "chat ", "peer_id", "user_", "administrator", "thread", "topic", "bot was", "bots can't", "migrated", "upgraded"}
}

// ofForm reports whether Telegram refused a message for what it is, and not for where it goes:
// another form may pass. Its descriptions are not documented, so everything counts that does not
// concern the chat.
func (e *apiError) ofForm() bool {
	return e.reason == reasonBadRequest && e.migrateTo == 0 && !slices.ContainsFunc(aboutChat(), e.describes)
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
		// A proxy reports that it cannot reach Telegram. A 500 may concern this message alone, so
		// the outbox backs off.
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
