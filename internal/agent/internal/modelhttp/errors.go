package modelhttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/sse"
	"laneway/internal/chat"
	"laneway/internal/secret"
)

// StatusError is a refusal by a provider. It is the cause of the *agent.Error that Do returns.
type StatusError struct {
	// Status is the HTTP status; 0 means the error came inside a stream, without a status.
	Status int
	// Kind and Code are the provider's identifiers, such as `invalid_request_error` and
	// `context_length_exceeded`; "" if none.
	Kind, Code string
	// Param is the parameter that the provider names; "" if none.
	Param string
	// Message is the provider's message without secrets, at most 500 bytes, for the log and for
	// administrators.
	Message string
	// After is the server's Retry-After; 0 if none.
	After time.Duration
}

// Error returns one line for the log.
func (e *StatusError) Error() string {
	return strings.Join(strings.Fields(fmt.Sprintf("status %d %s %s %s", e.Status, e.Kind, e.Code, e.Message)), " ")
}

// sentence explains a failure to a person, and what to do about it.
func sentence(reason chat.FailReason) string {
	switch reason {
	case chat.FailFirstByte:
		return "The model did not begin to answer in time; try again later."
	case chat.FailSilence:
		return "The model stopped in the middle of its answer; try again."
	case chat.FailRateLimit:
		return "The model service takes no more requests for now; try again in a minute."
	case chat.FailOverloaded:
		return "The model service is overloaded; try again in a minute."
	case chat.FailServer:
		return "The model service reported an internal error; try again later."
	case chat.FailConnection:
		return "The connection to the model service broke or could not be made; try again, and check base_url if it stays so."
	case chat.FailAuth:
		return "The model service refused the credentials; the operator has to check the agent's API key."
	case chat.FailContextLength:
		return "The conversation is too long for the model; start a new one or send less."
	case chat.FailRefusal:
		return "The model declined to answer; ask in another way."
	case chat.FailBadRequest:
		return "The model service did not accept the request; the operator has to check the agent's model and settings."
	case chat.FailBadResponse:
		return "The model service returned an invalid answer; the operator has to check base_url."
	case chat.FailOutputLimit:
		return "The answer is longer than it may be; ask for less at once."
	default:
		return "The model gave no answer; try again."
	}
}

// Fail returns an *agent.Error with the sentence for reason.
func Fail(reason chat.FailReason, cause error) *agent.Error {
	return agent.NewError(reason, sentence(reason), cause)
}

// BrokeOff returns the error of a stream that ended before its answer was complete.
func BrokeOff() *agent.Error {
	return Fail(chat.FailConnection, io.ErrUnexpectedEOF)
}

// Garbled classifies an event whose data are not the expected JSON: cut off by the end of the
// stream, or never JSON. The data are not quoted, because they may contain the person's message.
func Garbled(event sse.Event, err error) *agent.Error {
	if event.Partial {
		return BrokeOff()
	}
	return Fail(chat.FailBadResponse, fmt.Errorf("an event of %d bytes is not understood: %w", len(event.Data), withoutText(err)))
}

// withoutText keeps the position of a JSON error and drops what it quotes.
func withoutText(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("no JSON from byte %d on", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("field %s has the wrong type", kind.Field)
	default:
		return errors.New("unreadable")
	}
}

// broken classifies an error of net/http or of reading a body.
func (c *Client) broken(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errFirstByte):
		return Fail(chat.FailFirstByte, fmt.Errorf("%w (%s)", errFirstByte, c.cfg.FirstByte))
	case errors.Is(cause, errSilence):
		return Fail(chat.FailSilence, fmt.Errorf("%w (%s)", errSilence, c.cfg.Silence))
	case cause != nil:
		return agent.Ended(ctx)
	case errors.Is(err, errTooMuch):
		return Fail(chat.FailOutputLimit, err)
	case errors.Is(err, sse.ErrTooLong):
		return Fail(chat.FailBadResponse, err)
	}
	failed := Fail(chat.FailConnection, secret.WithoutURL(err))
	failed.Detail = chat.Cut(c.redact(secret.WithoutURL(err).Error()), 500)
	failed.Retryable = !untrusted(err)
	return failed
}

// untrusted reports certificate errors, which a retry does not fix.
func untrusted(err error) bool {
	var (
		unknown  x509.UnknownAuthorityError
		host     x509.HostnameError
		invalid  x509.CertificateInvalidError
		verified *tls.CertificateVerificationError
	)
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &verified)
}

// refused reads the body of an answer whose status is not 200.
func (c *Client) refused(ctx context.Context, response *http.Response, watch *watch) error {
	body := &watched{in: io.LimitReader(response.Body, maxErrorBody), watch: watch, left: maxErrorBody, anyByte: true}
	raw, err := io.ReadAll(body)
	if ended := agent.Ended(ctx); err != nil && ended != nil && !timedOut(ctx) {
		return ended
	}
	refusal := RefusalOf(document(raw))
	refusal.Status = response.StatusCode
	refusal.After = retryAfter(response.Header)
	return c.Refusal(refusal)
}

// document returns the JSON of a refusal that is written as an event of a stream, or else the body.
func document(body []byte) []byte {
	if json.Valid(body) {
		return body
	}
	events := sse.NewReader(bytes.NewReader(body), maxErrorBody)
	for event, err := events.Next(); err == nil; event, err = events.Next() {
		if json.Valid(event.Data) {
			return event.Data
		}
	}
	return body
}

// timedOut reports whether one of our own deadlines ended the reading; the status line suffices
// then.
func timedOut(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, errFirstByte) || errors.Is(cause, errSilence)
}

// Refusal classifies the refusal of a provider, in a response or inside a stream.
func (c *Client) Refusal(refusal StatusError) *agent.Error {
	refusal.Message = chat.Cut(c.redact(refusal.Message), 500)
	refusal.Kind = chat.Cut(c.redact(refusal.Kind), 100)
	refusal.Code = chat.Cut(c.redact(refusal.Code), 100)
	refusal.Param = chat.Cut(c.redact(refusal.Param), 100)
	failed := Fail(reasonFor(refusal), &refusal)
	failed.Detail = refusal.Message
	if outOfCredit(refusal) {
		failed.Retryable = false
		failed.Message = "The account at the model service has no credit left; the operator has to top it up."
	}
	return failed
}

// redact removes the key and the values of headers, which may be keys, from text. Values shorter
// than eight bytes are not keys and may be ordinary words.
func (c *Client) redact(text string) string {
	text = c.cfg.Key.Redact(chat.CleanText(text))
	for _, values := range c.cfg.Header {
		for _, value := range values {
			if value = strings.TrimPrefix(value, "Bearer "); len(value) >= 8 {
				text = strings.ReplaceAll(text, value, secret.Hidden)
			}
		}
	}
	return text
}

// RefusalOf reads an error in any of the forms that services use: a sentence, an object with its
// message under one of several names, a list of such, and each of them within another one. Anything
// else is quoted, a web page by its title.
func RefusalOf(raw json.RawMessage) StatusError {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return StatusError{Message: titleOf(string(raw))}
	}
	var refusal StatusError
	refusal.read(value, 0)
	if refusal.Message == "" && refusal.Kind == "" && refusal.Code == "" && len(raw) > len("{}") {
		refusal.Message = strings.TrimSpace(string(raw))
	}
	return refusal
}

// deepest bounds how deep an error is looked for within an error.
const deepest = 6

// messageNames are the members that services use for an error, its sentence, or more of it.
func messageNames() []string {
	return []string{
		"error", "message", "Message", "msg", "error_msg", "errmsg", "error_message", "errorMessage", "status_msg", "detail", "details", "error_description", "errors", "base_resp",
		"fault", "faultstring", "reason",
	}
}

// read takes what a value has and an earlier one had not.
func (e *StatusError) read(value any, depth int) {
	if depth > deepest {
		return
	}
	switch v := value.(type) {
	case string:
		if inner := strings.TrimSpace(v); strings.HasPrefix(inner, "{") && json.Unmarshal([]byte(inner), &value) == nil {
			e.read(value, depth+1) // a gateway quotes the answer of the service
			return
		}
		fill(&e.Message, v)
	case []any:
		for _, item := range v {
			e.read(item, depth+1)
		}
	case map[string]any:
		for _, name := range messageNames() {
			if member, ok := v[name]; ok {
				e.read(member, depth+1)
			}
		}
		e.readCodes(v)
	}
}

// readCodes takes the identifiers of an error.
func (e *StatusError) readCodes(members map[string]any) {
	for _, name := range []string{"type", "status", "__type"} {
		if word, ok := members[name].(string); ok && word != "error" {
			fill(&e.Kind, word)
		}
	}
	for _, name := range []string{"param", "field"} {
		if param, ok := members[name].(string); ok {
			fill(&e.Param, param)
		}
	}
	if place, ok := members["loc"].([]any); ok { // of FastAPI: ["body", "stream_options"]
		var path []string
		for _, name := range place {
			path = append(path, fmt.Sprint(name))
		}
		fill(&e.Param, strings.Join(path, "."))
	}
	for _, name := range []string{"code", "status", "status_code", "error_code", "errcode"} {
		switch code := members[name].(type) {
		case float64:
			e.readCode(name, strconv.Itoa(int(code)))
		case string:
			e.readCode(name, code)
		}
	}
}

// readCode takes a status of HTTP, or else an identifier: some services number their errors on
// their own.
func (e *StatusError) readCode(name, code string) {
	switch status, err := strconv.Atoi(code); {
	case err == nil && status >= http.StatusMultipleChoices && status < 600:
		e.Status = cmp.Or(e.Status, status)
	case name != "status" && name != "status_code" && code != "0":
		fill(&e.Code, code)
	}
}

func fill(to *string, value string) {
	if *to == "" {
		*to = strings.TrimSpace(value)
	}
}

// titleOf returns the title of a web page, or the text itself.
func titleOf(body string) string {
	lower := strings.ToLower(body)
	if from := strings.Index(lower, "<title>"); from >= 0 && len(lower) == len(body) {
		from += len("<title>")
		if to := strings.Index(lower[from:], "</title>"); to >= 0 {
			return "a web page with the title " + strings.TrimSpace(body[from:from+to])
		}
	}
	if strings.HasPrefix(strings.TrimSpace(body), "<") {
		return fmt.Sprintf("%d bytes of a web page", len(body))
	}
	return strings.TrimSpace(body)
}

// retryAfter reads both forms of the header, and the milliseconds that some providers send in
// addition.
func retryAfter(header http.Header) time.Duration {
	const longest = 24 * 60 * 60
	if ms, err := strconv.ParseFloat(header.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, longest*1000) * float64(time.Millisecond))
	}
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, longest) * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, min(time.Until(at), longest*time.Second))
	}
	return 0
}

// statusOverloaded is sent by Anthropic in addition to 503.
const statusOverloaded = 529

// reasonFor classifies a refusal: first by words that are more specific than the status, then by
// the status.
func reasonFor(refusal StatusError) chat.FailReason {
	if outOfCredit(refusal) {
		return chat.FailRateLimit
	}
	if tooLong(refusal) {
		return chat.FailContextLength
	}
	if refusal.Status < http.StatusInternalServerError {
		words := strings.ToLower(refusal.Code + " " + refusal.Kind + " " + refusal.Message)
		switch {
		case containsAny(words, "content_filter", "content_policy", "content management policy", "responsibleaipolicy", "data_inspection_failed", "datainspectionfailed",
			"prohibited_content", "prompt_blocked", "moderation_blocked", "flagged by moderation"):
			return chat.FailRefusal
		case containsAny(words, "api key not valid", "api_key_invalid", "invalid api key", "invalid api-key", "incorrect api key", "invalid_api_key"):
			return chat.FailAuth
		}
	}
	if refusal.Status != 0 {
		return reasonForStatus(refusal.Status)
	}
	return reasonForKind(refusal.Kind + " " + refusal.Code)
}

func reasonForStatus(status int) chat.FailReason {
	switch {
	case status == http.StatusTooManyRequests:
		return chat.FailRateLimit
	case status == http.StatusServiceUnavailable, status == statusOverloaded:
		return chat.FailOverloaded
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return chat.FailAuth
	case status == http.StatusRequestEntityTooLarge:
		return chat.FailContextLength
	case status == http.StatusRequestTimeout, status >= http.StatusInternalServerError:
		return chat.FailServer
	case status >= http.StatusBadRequest:
		return chat.FailBadRequest
	default: // 1xx, other 2xx, and redirects, which are not followed
		return chat.FailBadResponse
	}
}

// reasonForKind classifies an error inside a stream, which has no status. Without a known word it
// is a server error, because the server had accepted the request.
func reasonForKind(words string) chat.FailReason {
	for _, known := range []struct {
		word   string
		reason chat.FailReason
	}{
		{"overloaded", chat.FailOverloaded},
		{"rate_limit", chat.FailRateLimit},
		{"authentication", chat.FailAuth},
		{"permission", chat.FailAuth},
		{"request_too_large", chat.FailContextLength},
		{"not_found", chat.FailBadRequest},
		{"invalid_request", chat.FailBadRequest},
		{"content_filter", chat.FailRefusal},
	} {
		if strings.Contains(words, known.word) {
			return known.reason
		}
	}
	return chat.FailServer
}

// tooLong reports whether a refusal states that the input does not fit: by a fixed sign, or by
// words for the input, for tokens or a length, and for more than fits, in one sentence.
func tooLong(refusal StatusError) bool {
	words := strings.ToLower(refusal.Code + " " + refusal.Kind + " " + refusal.Message)
	if containsAny(words, "rate limit", "per min", "per day", "tpm", "quota", "deadline", "timeout", "timed out") {
		return false
	}
	fixed := containsAny(words, "context_length", "context length", "context window", "context size", "exceed_context", "context limit", "maximum context",
		"model token limit", "request_too_large", "request too large", "body too large", "tokens_limit_reached", "string_above_max_length",
		"reduce the length of the messages", "reduce your prompt", "reduce the prompt", "too many tokens in", "too many total text bytes", "truncated prompt",
		"prompt_too_long", "max_tokens must be at least 1, got -", "max message tokens", "長すぎ", "コンテキスト長", "token限制",
		"超长", "上下文长度", "长度超过", "长度超出", "输入过长", "最大长度")
	about := containsAny(words, "prompt", "input", "messages", "conversation", "request contains", "context", "your request", "the request", "in request", "max tokens of", "request token",
		"token count", "number of tokens")
	measured := containsAny(words, "token", "length", "too long", "too large", "range of input", "characters")
	beyond := containsAny(words, "exceed", "too long", "too large", "too many", "maximum", "maxlength", "max_length", "at most", "must be <=", "less than", "fewer than",
		"greater than", "longer than", "should be [", "larger than", "limit of", "does not fit", "doesn't fit", "more than", "over the limit", "is over", "are over", "out of range")
	switch {
	case refusal.Status >= http.StatusInternalServerError: // mostly other failures; some servers report the length with 500
		return (fixed || about && measured) && beyond
	case refusal.Status == http.StatusTooManyRequests:
		return fixed
	default:
		return fixed || about && measured && beyond && !isOutput(words)
	}
}

// isOutput reports a sentence about the bound of the answer, which is a parameter of the request:
// "max_tokens: 9000 > 8192", "supports at most 4096 completion tokens".
func isOutput(words string) bool {
	return containsAny(words, "completion tokens", "output tokens", "max_tokens", "max_new_tokens", "max_output_tokens", "max_completion_tokens", "stop sequence", "tool_call",
		"function name", "tool name", "tools[") &&
		!containsAny(words, "prompt", "input token", "input length", "inputs` tokens")
}

func containsAny(words string, signs ...string) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(words, sign) })
}

// outOfCredit recognises refusals that look like a rate limit but do not end by waiting.
func outOfCredit(refusal StatusError) bool {
	return refusal.Status == http.StatusPaymentRequired || refusal.Code == "insufficient_quota" || refusal.Kind == "insufficient_quota" ||
		refusal.Kind == "billing_error"
}
