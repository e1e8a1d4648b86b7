package teste2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Answer is the result of an HTTP call of the gateway. Err is set when there was no response.
type Answer struct {
	Status int
	Body   string
	Err    error
}

// Complete calls POST /v1/chat/completions in a session and waits for the whole answer.
func (g *Gateway) Complete(session, text string) Answer {
	body, err := json.Marshal(map[string]any{"model": "laneway", "messages": []any{map[string]string{"role": "user", "content": text}}})
	if err != nil {
		return Answer{Err: err}
	}
	return g.post("/v1/chat/completions", body, map[string]string{"Authorization": "Bearer " + g.Token(), "X-Laneway-Session-Key": session})
}

// Hook calls POST /hooks/{name} with a signature.
func (g *Gateway) Hook(name, secret, body string) Answer {
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(at + "." + body)) // a hash never returns an error
	return g.post("/hooks/"+name, []byte(body), map[string]string{"X-Laneway-Signature": fmt.Sprintf("t=%s,v1=%s", at, hex.EncodeToString(mac.Sum(nil)))})
}

func (g *Gateway) post(path string, body []byte, header map[string]string) Answer {
	req, err := http.NewRequest(http.MethodPost, g.URL()+path, bytes.NewReader(body))
	if err != nil {
		return Answer{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Body: string(text), Err: err}
}
