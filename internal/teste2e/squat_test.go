package teste2e

import (
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testtelegram"
)

// Bob's token sees its own. He tries to be in Anna's conversation with the bot before she is, and to speak there as the bot; she writes; he finds
// nothing of it.
func TestASessionOfAnotherChatCannotBeTakenInAdvance(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    access: open\n", testtelegram.Config{})
		c.Model.Answer(storyteller)
		c.Start()
		const key = "agent:main:telegram:direct:7"
		var (
			mu    sync.Mutex
			heard []string
		)
		him := dialWhenKnown(t, c.Gateway, c.named(t, "bob"), func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, e.Name+" "+string(e.Payload))
		})
		refused := func(method string, params map[string]any) {
			t.Helper()
			raw, err := him.Call(method, params, 30*time.Second)
			if err == nil || !strings.Contains(err.Error(), "session not found") {
				t.Errorf("%s %v: %s %v", method, params, raw, err)
			}
		}
		absent := func(method string, p map[string]any) { // as if there were no such session
			t.Helper()
			raw, err := him.Call(method, p, 30*time.Second)
			for _, word := range []string{"Anna", "Who are you", `"aborted":true`, `"deleted":true`, `"role"`} {
				if err != nil || strings.Contains(string(raw), word) {
					t.Errorf("%s %v: %s %v", method, p, raw, err)
				}
			}
		}
		tries := func(round string) {
			t.Helper()
			refused("chat.send", map[string]any{"sessionKey": key, "message": "/status", "idempotencyKey": "b1" + round})
			refused("chat.send", map[string]any{"sessionKey": key, "message": "mine", "idempotencyKey": "b2" + round, "deliver": true})
			refused("agent", map[string]any{"sessionKey": key, "message": "mine", "idempotencyKey": "b3" + round})
			refused("agent", map[string]any{
				"sessionKey": "agent:main:bobs", "message": "mine", "idempotencyKey": "b4" + round, "deliver": true, "channel": "telegram", "to": "7",
			})
			refused("wake", map[string]any{"sessionKey": key, "text": "mine", "mode": "next-heartbeat"})
			refused("cron.add", jobParams("in", every(time.Hour), map[string]any{"sessionTarget": "session:" + key}))
			refused("cron.add", jobParams("to", every(time.Hour), map[string]any{"delivery": map[string]any{"mode": "announce", "channel": "telegram", "to": "7"}}))
			refused("sessions.reset", map[string]any{"key": key})
			for method, p := range map[string]map[string]any{
				"chat.history": {"sessionKey": key}, "chat.abort": {"sessionKey": key}, "sessions.describe": {"key": key}, "sessions.delete": {"key": key},
			} {
				absent(method, p)
			}
		}
		if _, err := him.Call("sessions.subscribe", map[string]any{}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		tries("before")
		c.Telegram.Say(anna, anna, "Who are you?")
		c.Says(anna, "Who are you?")
		tries("after")
		raw, err := him.Call("sessions.list", map[string]any{}, 30*time.Second)
		if err != nil || strings.Contains(string(raw), "telegram") {
			t.Errorf("bob's list: %s %v", raw, err)
		}
		for _, m := range c.Telegram.Messages(anna) {
			if strings.Contains(m.Text, "mine") {
				t.Errorf("the bot says %q", m.Text)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range heard {
			if strings.HasPrefix(e, "health ") { // the channels of the gateway, which are for all
				continue
			}
			if strings.Contains(e, "telegram") || strings.Contains(e, "Who are you") {
				t.Errorf("bob hears %s", e)
			}
		}
	})
}
