//go:build compat

package testcompat

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"laneway/internal/testtelegram"
)

// aPicture is a PNG of one pixel.
const aPicture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

var askedToApprove = regexp.MustCompile(`laneway pair approve ([A-Z2-7]{8})`)

// The dashboard must show the names of Telegram users instead of their numbers, and their photos as pictures.
func TestDashboardShowsPeopleOfTelegramAndTheirPhotos(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const anna = 70001
		dir := clients(t)
		telegram := testtelegram.New(testtelegram.Config{})
		telegram.AddPrivate(anna, "Anna")
		api := httptest.NewServer(telegram)
		t.Cleanup(api.CloseClientConnections) // a hanging poll must not delay the end of the test
		t.Cleanup(api.Close)
		g := begin(t, database, fmt.Sprintf("channels: {telegram: {token: %q, api_url: %q, poll_timeout: 2s}}\n", telegram.Token(), api.URL))
		says := func(what string, pattern *regexp.Regexp) (found []string) {
			t.Helper()
			ok := eventually(t, 30*time.Second, func() bool {
				for _, text := range telegram.Texts(anna) {
					if m := pattern.FindStringSubmatch(text); m != nil {
						found = m
					}
				}
				return found != nil
			})
			if !ok {
				t.Fatalf("%s: the bot wrote %q", what, telegram.Texts(anna))
			}
			return found
		}
		telegram.Say(anna, anna, "Hello?")
		code := says("a code", askedToApprove)[1]
		if out, errs, exit := g.CLI(t.Context(), "", "pair", "approve", code, "--token", adminToken); exit != 0 {
			t.Fatalf("pair approve: %s %s", out, errs)
		}
		says("the approval", regexp.MustCompile("You are let in"))
		photo, err := base64.StdEncoding.DecodeString(aPicture)
		if err != nil {
			t.Fatal(err)
		}
		telegram.AddFile("cat", photo)
		telegram.Say(anna, anna, "", testtelegram.With("caption", "a cat"), testtelegram.With("photo", []any{
			map[string]any{"file_id": "cat", "file_unique_id": "ucat", "width": 1, "height": 1, "file_size": len(photo)},
		}))
		says("the answer", regexp.MustCompile("a cat"))
		args := []string{filepath.Join(dir, "dashboardpeople.mjs"), socketURL(g), adminToken, "User 70001 · Telegram"}
		if shots := os.Getenv("LANEWAY_TEST_SHOTS"); shots != "" {
			args = append(args, shots)
		}
		drive(t, nil, node(dir), args...)
	})
}
