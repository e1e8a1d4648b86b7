// Command hook-sender shows how a program calls a hook of laneway: it signs each call and retries
// until the hook has accepted it, without causing two messages.
//
//	echo "build 42 is green" | HOOK_SECRET=… go run ./docs/examples/hook-sender http://127.0.0.1:18790/hooks/deploy build-42
//
// The second argument names the event. It is the idempotency key: a repetition with the same key
// starts nothing and receives the first answer again. The secret is read from the environment,
// because arguments are visible to all users of a machine.
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"
)

const (
	attempts   = 5
	maxBody    = 256 << 10
	callTime   = 30 * time.Second
	firstPause = time.Second
)

func main() {
	secret := os.Getenv("HOOK_SECRET") //nolint:forbidigo // a program of its own
	if len(os.Args) != 3 || secret == "" {
		fmt.Fprintln(os.Stderr, "usage: HOOK_SECRET=… hook-sender URL KEY < MESSAGE")
		os.Exit(2) //nolint:forbidigo // as above
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // as above
	defer stop()
	c := caller{url: os.Args[1], key: os.Args[2], secret: []byte(secret), client: &http.Client{Timeout: callTime}}
	body, err := io.ReadAll(io.LimitReader(os.Stdin, maxBody))
	if err == nil {
		err = c.deliver(ctx, os.Stdout, body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hook-sender:", err)
		os.Exit(1) //nolint:forbidigo,gocritic // as above; the deferred stop is not needed
	}
}

// caller calls one hook for one event.
type caller struct {
	url, key string
	secret   []byte
	client   *http.Client
}

// deliver retries until the gateway has accepted the message or refused it permanently, and writes
// the answer to out.
func (c caller) deliver(ctx context.Context, out io.Writer, body []byte) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for attempt := 1; ; attempt++ {
		status, answer, err := c.send(ctx, body)
		switch {
		case err == nil && status == http.StatusAccepted:
			_, err = io.WriteString(out, answer)
			return err
		case err == nil && status != http.StatusTooManyRequests && status < 500:
			return fmt.Errorf("refused with %d: %s", status, answer) // a repetition would fail again
		case attempt == attempts && err != nil:
			return fmt.Errorf("not delivered: %w", err)
		case attempt == attempts:
			return fmt.Errorf("not delivered: %d: %s", status, answer)
		}
		pause.Reset(firstPause << (attempt - 1))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pause.C:
		}
	}
}

// send makes one call. Each call has a new signature, because a signature is valid for five
// minutes.
func (c caller) send(ctx context.Context, body []byte) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, "", fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("X-Laneway-Signature", sign(c.secret, time.Now(), body))
	req.Header.Set("Idempotency-Key", c.key)
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("calling the hook: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, string(text), err
}

// sign returns `t=<unix seconds>,v1=<hex>`: HMAC-SHA256 of the time, a dot and the body.
func sign(secret []byte, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
