package teste2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testtelegram"
)

const webhookSecret = "a-secret-of-the-webhook-0123456789-abc"

// TestWebhookDeliveries sends updates to the binary as Telegram does, and as another sender: replays and a hundred deliveries at once
// are one turn; a wrong secret and a body that is too large leave no row.
func TestWebhookDeliveries(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7]\n    mode: webhook\n    webhook_url: https://bot.example.org/telegram/webhook/default\n"+
			"    webhook_secret: "+webhookSecret+"\n", testtelegram.Config{Drafts: true})
		c.Model.Answer(storyteller)
		c.Start()
		c.Await("the webhook is registered", func() bool { return len(c.Telegram.Calls("setWebhook")) == 1 })
		oracle := OpenOracle(t, c.Gateway, database)
		client := &http.Client{Timeout: 30 * time.Second}
		deliver := func(secret string, body []byte) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL()+"/telegram/webhook/default", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "bot.example.org" // the name that Telegram was given, and no other door knows
			r.Header.Set("Content-Type", "application/json")
			if secret != "" {
				r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
			}
			resp, err := client.Do(r)
			if err != nil {
				if strings.Contains(err.Error(), "reset") || strings.Contains(err.Error(), "broken pipe") {
					return http.StatusRequestEntityTooLarge // the rest of a refused body was not read
				}
				t.Errorf("delivering: %v", err)
				return 0
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		update := func(id int, text string) []byte {
			u := c.Telegram.Message(anna, anna, text)
			u["update_id"] = id
			raw, err := json.Marshal(u)
			if err != nil {
				t.Fatal(err)
			}
			return raw
		}

		for name, bad := range map[string]struct {
			secret string
			body   []byte
			want   int
		}{
			"no secret":           {"", update(1, "unknown"), http.StatusUnauthorized},
			"wrong secret":        {webhookSecret + "x", update(2, "unknown"), http.StatusUnauthorized},
			"10 MB":               {webhookSecret, bytes.Repeat([]byte(" "), 10<<20), http.StatusRequestEntityTooLarge},
			"10 MB, wrong secret": {"wrong", bytes.Repeat([]byte(" "), 10<<20), http.StatusUnauthorized},
			"no update":           {webhookSecret, []byte("{}"), http.StatusBadRequest},
		} {
			got := deliver(bad.secret, bad.body)
			if got != bad.want && (len(bad.body) < 1<<20 || got != http.StatusRequestEntityTooLarge) {
				t.Errorf("%s: %d, want %d", name, got, bad.want)
			}
		}
		if n := oracle.Count("SELECT count(*) FROM inbox"); n != 0 {
			t.Errorf("%d rows after deliveries that are none", n)
		}

		same := update(10, "a hundred times")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if code := deliver(webhookSecret, same); code != http.StatusOK {
					t.Errorf("a delivery: %d", code)
				}
			})
		}
		wg.Wait()
		for range 5 { // replays after the answer
			if code := deliver(webhookSecret, same); code != http.StatusOK {
				t.Errorf("a replay: %d", code)
			}
		}
		c.Says(anna, "a hundred times")
		c.rest()
		if n := oracle.Count("SELECT count(*) FROM inbox"); n != 1 || len(c.Model.Calls()) != 1 || c.Count(anna, "a hundred times") != 1 {
			t.Errorf("%d rows, %d turns, %d answers of one update", n, len(c.Model.Calls()), c.Count(anna, "a hundred times"))
		}
		c.Close()
	})
}
