package modelhttp

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRefusalsAreSorted(t *testing.T) {
	t.Parallel()
	tests := []struct {
		said   StatusError
		reason chat.FailReason
		again  bool
	}{
		{StatusError{Status: 400}, chat.FailBadRequest, false},
		{StatusError{Status: 400, Code: "context_length_exceeded"}, chat.FailContextLength, false},
		{StatusError{Status: 400, Message: "This model's maximum context length is 8"}, chat.FailContextLength, false},
		{StatusError{Status: 500, Message: "context length"}, chat.FailServer, true},
		{StatusError{Status: 400, Code: "content_filter", Message: "The response was filtered"}, chat.FailRefusal, false},
		{StatusError{Status: 400, Code: "data_inspection_failed"}, chat.FailRefusal, false},
		{StatusError{Status: 400, Kind: "INVALID_ARGUMENT", Message: "API key not valid. Please pass a valid API key."}, chat.FailAuth, false},
		{StatusError{Status: 401}, chat.FailAuth, false},
		{StatusError{Status: 403}, chat.FailAuth, false},
		{StatusError{Status: 402}, chat.FailRateLimit, false},
		{StatusError{Status: 404}, chat.FailBadRequest, false},
		{StatusError{Status: 408}, chat.FailServer, true},
		{StatusError{Status: 413}, chat.FailContextLength, false},
		{StatusError{Status: 422}, chat.FailBadRequest, false},
		{StatusError{Status: 429}, chat.FailRateLimit, true},
		{StatusError{Status: 429, Code: "insufficient_quota"}, chat.FailRateLimit, false},
		{StatusError{Status: 500}, chat.FailServer, true},
		{StatusError{Status: 502}, chat.FailServer, true},
		{StatusError{Status: 503}, chat.FailOverloaded, true},
		{StatusError{Status: 529}, chat.FailOverloaded, true},
		{StatusError{Status: 302}, chat.FailBadResponse, false},
		{StatusError{Kind: "overloaded_error"}, chat.FailOverloaded, true},
		{StatusError{Kind: "invalid_request_error"}, chat.FailBadRequest, false},
		{StatusError{Kind: "permission_error"}, chat.FailAuth, false},
		{StatusError{Message: "unknown cause"}, chat.FailServer, true},
	}
	client := newClient(t, Config{})
	for _, tt := range tests {
		got := client.Refusal(tt.said)
		if got.Reason != tt.reason || got.Retryable != tt.again || got.Message == "" {
			t.Errorf("%+v: got %s, retryable %t, %q; want %s, %t", tt.said, got.Reason, got.Retryable, got.Message, tt.reason, tt.again)
		}
	}
}

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	cfg.URL = "http://model.test/x"
	client, err := New(cfg, http.NewFileTransport(http.Dir(t.TempDir())), nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestEveryReasonHasASentenceOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]chat.FailReason{}
	for _, reason := range agent.Reasons() {
		if slices.Contains([]chat.FailReason{chat.FailTimeout, chat.FailProgram, chat.FailPanic, chat.FailUnknown}, reason) {
			continue // this package does not return it
		}
		text := sentence(reason)
		if other, ok := seen[text]; ok || !strings.HasSuffix(text, ".") {
			t.Errorf("%s: sentence %q is the one of %q or no sentence", reason, text, other)
		}
		seen[text] = reason
	}
}

func TestErrorMembersAreRead(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]StatusError{
		`{"message":"m","type":"t","code":"c"}`: {Message: "m", Kind: "t", Code: "c"},
		`{"message":"m","code":429}`:            {Message: "m", Status: 429},
		`{"message":"m","code":"429"}`:          {Message: "m", Status: 429},
		`{"message":"m","code":null}`:           {Message: "m"},
		`"plain"`:                               {Message: "plain"},
		`[1]`:                                   {Message: "[1]"},
	} {
		if diff := cmp.Diff(want, RefusalOf(json.RawMessage(raw))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
	for _, body := range []string{"event: error\ndata: {\"error\":{\"message\":\"m\"}}\n\n", "\n{\"detail\":\"m\"}\n"} {
		if got := RefusalOf(document([]byte(body))); got.Message != "m" {
			t.Errorf("%q: got %+v", body, got)
		}
	}
	for raw, want := range map[string]StatusError{
		`{"error":{"message":"m"}}`:                                              {Message: "m"},
		`{"error":"model not here"}`:                                             {Message: "model not here"},
		`{"detail":"d"}`:                                                         {Message: "d"},
		`{"error":{"code":"1261","message":"m"}}`:                                {Message: "m", Code: "1261"},
		`[{"error":{"code":400,"message":"m","status":"NOT_FOUND"}}]`:            {Message: "m", Status: 400, Kind: "NOT_FOUND"},
		`{"detail":[{"type":"extra_forbidden","loc":["body","x",0],"msg":"m"}]}`: {Message: "m", Kind: "extra_forbidden", Param: "body.x.0"},
		`{"code":20015,"msg":"m"}`:                                               {Message: "m", Code: "20015"},
		`{"error_code":336003,"error_msg":"m"}`:                                  {Message: "m", Code: "336003"},
		`{"base_resp":{"status_code":1008,"status_msg":"m"}}`:                    {Message: "m"},
		`{"fault":{"faultstring":"m"}}`:                                          {Message: "m"},
		`{"error":{"message":"m","details":[{"fieldViolations":[{"field":"tools","description":"d"}]}]}}`: {Message: "m"},
		`{"error":{"message":"{\"error\":{\"message\":\"m\"}}"}}`:                                         {Message: "m"},
		`{"Message":"m","__type":"ValidationException"}`:                                                  {Message: "m", Kind: "ValidationException"},
		`<html><head><TITLE>502 Bad</TITLE></head></html>`:                                                {Message: "a web page with the title 502 Bad"},
		`no healthy upstream`: {Message: "no healthy upstream"},
		`{"error":{"type":"t","param":"temperature","message":"m"}}`: {Message: "m", Kind: "t", Param: "temperature"},
		`<html>`: {Message: "6 bytes of a web page"},
	} {
		if diff := cmp.Diff(want, RefusalOf([]byte(raw))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func TestRetryAfterIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		date := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
		for _, tt := range []struct {
			name, value string
			want        time.Duration
		}{
			{"Retry-After", "7", 7 * time.Second},
			{"Retry-After", "1.5", 1500 * time.Millisecond},
			{"Retry-After", "-3", 0},
			{"Retry-After", "1e300", 24 * time.Hour},
			{"Retry-After", "NaN", 0},
			{"Retry-After", date, 90 * time.Second},
			{"Retry-After", "Mon, 02 Jan 1990 15:04:05 GMT", 0},
			{"Retry-After", "soon", 0},
			{"Retry-After-Ms", "250", 250 * time.Millisecond},
		} {
			if got := retryAfter(http.Header{tt.name: {tt.value}}); got != tt.want {
				t.Errorf("%s: %s: got %s, want %s", tt.name, tt.value, got, tt.want)
			}
		}
	})
}

func TestFaultsOfCertificatesAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	client := newClient(t, Config{})
	wrapped := &url.Error{Op: "Post", URL: "https://user:secret@host/x", Err: fmt.Errorf("tls: %w", x509.UnknownAuthorityError{})}
	var failed *agent.Error
	err := client.broken(t.Context(), wrapped)
	if !errors.As(err, &failed) || failed.Reason != chat.FailConnection || failed.Retryable || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v (%+v), want a connection error that is not retryable and has no URL", err, failed)
	}
}

// FuzzRefusal checks that no answer of a server breaks the classification or reveals the key.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"bad key sk-12345678","type":"t","code":17}}`), 401)
	f.Add([]byte(`<html>`), 502)
	client, err := New(Config{URL: "http://model.test/", Key: secret.New("sk-12345678")}, nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		said := RefusalOf(body)
		said.Status = status
		got := client.Refusal(said)
		var refusal *StatusError
		if !errors.As(got, &refusal) || got.Message == "" {
			t.Fatalf("got %#v, want a refusal with a sentence", got)
		}
		if strings.Contains(refusal.Message, "sk-12345678") || len(refusal.Message) > 500 {
			t.Errorf("message %q shows the key or is too long", refusal.Message)
		}
	})
}

// TestTooLongIsRecognisedByKind has sentences in the shape of each service, with numbers of our
// own, and sentences that mean something else.
func TestTooLongIsRecognisedByKind(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]chat.FailReason{
		// OpenAI, vLLM, LM Studio, OpenRouter
		"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.":                                   chat.FailContextLength,
		"Your input exceeds the context window of this model. Please adjust your input and try again.":                                          chat.FailContextLength,
		"This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens.":                                    chat.FailContextLength,
		"Please reduce the length of the messages or completion.":                                                                               chat.FailContextLength,
		"Trying to keep the first 6000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens": chat.FailContextLength,
		"The decoder prompt (length 9000) is longer than the maximum model length of 8192.":                                                     chat.FailContextLength,
		// Anthropic
		"prompt is too long: 208310 tokens > 200000 maximum":                                chat.FailContextLength,
		"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000":       chat.FailContextLength,
		"Request exceeds the maximum size; the request is too large for the context window": chat.FailContextLength,
		// Gemini, xAI, Mistral, Moonshot, Zhipu, Qwen, Cohere, GitHub
		"The input token count (40000) exceeds the maximum number of tokens allowed (32768).":                    chat.FailContextLength,
		"This model's maximum prompt length is 131072 but the request contains 200000 tokens.":                   chat.FailContextLength,
		"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length": chat.FailContextLength,
		"Your request exceeded model token limit: 8192":                                                          chat.FailContextLength,
		"Prompt exceeds max length":                  chat.FailContextLength,
		"Range of input length should be [1, 30720]": chat.FailContextLength,
		"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000": chat.FailContextLength,
		"prompt token count of 70000 exceeds the limit of 64000":                                   chat.FailContextLength,
		// llama.cpp, Ollama, TGI, Bedrock
		"the request exceeds the available context size. try increasing the context size or enable context shift": chat.FailContextLength,
		"the input length exceeds the context length":                                                             chat.FailContextLength,
		"`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000":                                         chat.FailContextLength,
		"Input is too long for requested model.":                                                                  chat.FailContextLength,
		"Too many input tokens. Max input tokens: 8000, request input token count: 9000":                          chat.FailContextLength,
		"`inputs` must have less than 4095 tokens. Given: 5000":                                                   chat.FailContextLength,
		"Malformed input request: expected maxLength: 400000, actual: 523000, please reformat":                    chat.FailContextLength,
		"The engine prompt length 1601 exceeds the max_model_len 1024. Please reduce prompt.":                     chat.FailContextLength,
		"The input (5000 tokens) is longer than the model's context length (4096 tokens).":                        chat.FailContextLength,
		"Request body too large for m model. Max size: 8000 tokens.":                                              chat.FailContextLength,
		"the total number of tokens in the request (9000) exceeds what the model takes (8192)":                    chat.FailContextLength,
		"Invalid 'messages[1].content': string too long. Expected a string with maximum length 1000":              chat.FailContextLength,
		"invalid params, context window exceeds limit (2013)":                                                     chat.FailContextLength,
		"Prompt 超长": chat.FailContextLength,
		// words of further services, proxies and local servers
		"Prompt contains 9000 input tokens and requested 1 output tokens. However, the model's context length is only 8192 tokens.":                                   chat.FailContextLength,
		"max_tokens must be at least 1, got -808. The prompt takes 9000 of 8192 tokens.":                                                                              chat.FailContextLength,
		"request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it":                                                                   chat.FailContextLength,
		"input is too large to process. increase the physical batch size":                                                                                             chat.FailContextLength,
		"prompt too long; exceeded max context length by 123 tokens":                                                                                                  chat.FailContextLength,
		"The number of tokens to keep from the initial prompt is greater than the context length":                                                                     chat.FailContextLength,
		"The model returned the following errors: Input tokens exceeded the configured limit of 8192":                                                                 chat.FailContextLength,
		"Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192":                                                          chat.FailContextLength,
		"The prompt is too long: 140000, model maximum context length: 131071":                                                                                        chat.FailContextLength,
		"Requested token count exceeds the model's maximum context length of 32768 tokens.":                                                                           chat.FailContextLength,
		"Prompt length (5000) exceeds maximum input length (4096).":                                                                                                   chat.FailContextLength,
		"The provided prompt is 9000 tokens long, so generating 1 tokens requires a sequence length of 9001, but the maximum supported sequence length is just 8192!": chat.FailContextLength,
		"Total tokens of image and text exceed max message tokens":                                                                                                    chat.FailContextLength,
		"the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model":                                                                    chat.FailContextLength,
		"max tokens of 32768 exceeded":                                                                         chat.FailContextLength,
		"Maximum number of tokens exceeded: 9000 of 8192 in the messages":                                      chat.FailContextLength,
		"The total length of the messages is over 8192 tokens; shorten them":                                   chat.FailContextLength,
		"conversation too long, please start a new chat":                                                       chat.FailContextLength,
		"Error: prompt_too_long":                                                                               chat.FailContextLength,
		"The message you submitted was too long, please reload the conversation and submit something shorter.": chat.FailContextLength,
		"tokens in request more than max tokens allowed":                                                       chat.FailContextLength,
		"The context window is full: 8192 of 8192 tokens used":                                                 chat.FailContextLength,
		"Input text exceeds the token limit of 8000":                                                           chat.FailContextLength,
		"This request would exceed the model's context limit":                                                  chat.FailContextLength,
		"input too long: 9001 tokens, limit 8192":                                                              chat.FailContextLength,
		"入力が長すぎます: コンテキスト長を超えています":                                                                             chat.FailContextLength,
		"请求的token数超过模型上下文长度限制":                                                                                 chat.FailContextLength,
		"输入内容超过模型的最大token限制":                                                                                   chat.FailContextLength,
		// other things
		"max_new_tokens must be less than 4096, the largest number of tokens of an answer":                    chat.FailBadRequest,
		"Invalid 'tools[0].function.name': string too long. Expected a maximum length of 64":                  chat.FailBadRequest,
		"max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens for m":                 chat.FailBadRequest,
		"max_tokens is too large: 9000. This model supports at most 4096 completion tokens":                   chat.FailBadRequest,
		"Invalid input: messages must not be empty":                                                           chat.FailBadRequest,
		"messages with role tool must follow a message with tool_calls":                                       chat.FailBadRequest,
		"max_completion_tokens is too large: 9000. This model supports at most 4096 completion tokens":        chat.FailBadRequest,
		"messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes": chat.FailBadRequest,
		"Too many images in the request: 21, at most 20 are allowed":                                          chat.FailBadRequest,
		"tools: too many tools; at most 128 are allowed":                                                      chat.FailBadRequest,
		"Invalid schema for function 'set': schema is too large, limit 5000 properties":                       chat.FailBadRequest,
		"max_tokens must be less than or equal to 8192":                                                       chat.FailBadRequest,
		"Invalid value for n: must be at most 1":                                                              chat.FailBadRequest,
		"Invalid user: string too long. Expected a string with maximum length 64":                             chat.FailBadRequest,
		"thinking.budget_tokens: must be less than max_tokens":                                                chat.FailBadRequest,
		"metadata: too many keys, at most 16":                                                                 chat.FailBadRequest,
		"temperature must be at most 2":                                                                       chat.FailBadRequest,
	} {
		if got := reasonFor(StatusError{Status: http.StatusBadRequest, Message: said}); got != want {
			t.Errorf("%s: got %s, want %s", said, got, want)
		}
	}
	for _, said := range []string{"the input length exceeds the context length", "Input is too long for requested model."} {
		if got := reasonFor(StatusError{Status: http.StatusInternalServerError, Message: said}); got != chat.FailContextLength {
			t.Errorf("%s with 500: got %s", said, got)
		}
	}
	late := StatusError{Status: http.StatusGatewayTimeout, Message: "context deadline exceeded: the upstream took too long"}
	if got := reasonFor(late); got != chat.FailServer {
		t.Errorf("a deadline: got %s", got)
	}
	limited := StatusError{Status: http.StatusTooManyRequests, Message: "Request too large for m on tokens per minute (TPM): Limit 30000, Requested 40000. The input must be reduced."}
	if got := reasonFor(limited); got != chat.FailRateLimit {
		t.Errorf("a limit by the minute: got %s", got)
	}
}
