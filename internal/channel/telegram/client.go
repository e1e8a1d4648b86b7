package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
)

const (
	// maxBody is the largest answer that is read, in bytes. Telegram's largest, a hundred updates, is far smaller.
	maxBody = 4 << 20
	// callTime bounds a call without another bound.
	callTime = 15 * time.Second
	dialTime = 5 * time.Second
)

// client makes calls of the Bot API. The library encodes them and decodes their envelope. The library never has the token and opens no connection;
// the context of each call bounds it. It is safe for concurrent use.
type client struct {
	base, token string
	transport   http.RoundTripper
	obs         Observer
	limits      *limiter
}

// newTransport makes a transport whose connections detect within seconds that the other end is gone. HTTP/2 is off: there a canceled call leaves its
// dead connection for the next call. A nil proxy means the one that the environment names.
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

// call makes one call within limit and decodes its result into out (nil means not wanted). Errors are *apiError.
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

// exchange makes one call within the time that ctx has. During a cooldown of its chat or of the bot it makes no call: it returns the error with which
// Telegram would answer. Only exchange records cooldowns.
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
		c.obs.Call(q.method, "ok")
		return nil
	}
	failed := c.understand(ctx, q.method, err)
	c.obs.Call(q.method, failed.reason)
	if d := failed.cooldown(); d > 0 {
		c.limits.cool(q.chat, d)
	}
	if failed.broken() {
		c.dropConnections()
	}
	return failed
}

// do sends a request of the library to the address of the Bot API, which has the token, and reads the whole answer.
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

// envelope reports whether an answer is Telegram's own: it has `ok`, and with a refusal its code. The page of a proxy has no such member and is
// ignored, whatever its status is.
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

// clean removes the token from a string. No code is known to put it there; this is a second safeguard.
func (c *client) clean(s string) string {
	_, secret, _ := strings.Cut(c.token, ":")
	for _, hidden := range []string{c.token, url.QueryEscape(c.token), secret} {
		s = strings.ReplaceAll(s, hidden, "[token]")
	}
	return s
}

// jsonOf encodes a parameter that is an object. Its callers pass maps and slices that always encode.
func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%q", err.Error())
	}
	return string(b)
}
