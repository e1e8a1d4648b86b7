package teste2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"laneway/internal/testtelegram"
)

const webhookSecret = "a-secret-of-the-webhook-0123456789-abc"

// An update is delivered to the gateway as by Telegram, and one with another secret, which leaves no row.
func TestAWebhookIsReachedUnderTheNameThatTelegramWasGiven(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7]\n    mode: webhook\n    webhook_url: https://bot.example.org/telegram/webhook/default\n"+
			"    webhook_secret: "+webhookSecret+"\n", testtelegram.Config{Drafts: true})
		c.Model.Answer(storyteller)
		c.Start()
		c.Await("the webhook is registered", func() bool { return len(c.Telegram.Calls("setWebhook")) == 1 })
		deliver := func(secret, text string) int {
			t.Helper()
			update := c.Telegram.Message(anna, anna, text)
			update["update_id"] = 10
			raw, err := json.Marshal(update)
			if err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL()+"/telegram/webhook/default", bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "bot.example.org" // a name that is valid for no other route
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
			status, _ := roundTrip(t, r)
			return status
		}
		if status := deliver(webhookSecret+"x", "unknown"); status != http.StatusUnauthorized {
			t.Errorf("with another secret: %d", status)
		}
		if status := deliver(webhookSecret, "hello"); status != http.StatusOK {
			t.Errorf("a delivery: %d", status)
		}
		c.Says(anna, "hello")
		c.rest()
		if n := OpenOracle(t, c.Gateway, database).Count("SELECT count(*) FROM inbox"); n != 1 {
			t.Errorf("%d messages of one update", n)
		}
		c.Close()
	})
}
