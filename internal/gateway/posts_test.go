package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
)

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	return decode[map[string]any](t, a.body)
}

// fault returns type and code of an error below /v1.
func (a answer) fault(t *testing.T) (kind, code string) {
	t.Helper()
	f := decode[struct {
		Error struct{ Type, Code, Message string }
	}](t, a.body).Error
	if f.Message == "" {
		t.Errorf("the error says nothing: %s", a.body)
	}
	return f.Type, f.Code
}

// text returns the text of a completion.
func (a answer) text(t *testing.T) string {
	t.Helper()
	c := decode[struct {
		Choices []struct{ Message struct{ Content string } }
	}](t, a.body)
	if len(c.Choices) != 1 {
		t.Fatalf("want one choice: %s", a.body)
	}
	return c.Choices[0].Message.Content
}

func header(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }

func (b *bench) postRequest(ctx context.Context, path string, body any, change ...func(*http.Request)) *http.Request {
	b.t.Helper()
	raw, ok := body.(string)
	if !ok {
		out, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		raw = string(out)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.addr+path, strings.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+writeToken)
	for _, f := range change {
		f(req)
	}
	return req
}

func (b *bench) post(path string, body any, change ...func(*http.Request)) answer {
	b.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(b.postRequest(context.Background(), path, body, change...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, all}
}

func says(role, text string) map[string]any { return map[string]any{"role": role, "content": text} }

func ask(text string, more ...params) params {
	p := params{"model": "laneway", "messages": []any{says("user", text)}}
	for _, m := range more {
		maps.Copy(p, m)
	}
	return p
}

const completionsPath = "/v1/chat/completions"
