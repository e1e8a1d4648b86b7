package teste2e

import (
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// A transcript that a deletion keeps stays with who owned the session: the next who takes the key does not read it by its id, nor delete it with a session of
// theirs. An operator reads it.
func TestAKeptTranscriptStaysWithItsOwner(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\n")
		g.Start()
		operator := dialWhenKnown(t, g, g.Token(), nil)
		defer operator.Close()
		alice := dialWhenKnown(t, g, g.named(t, "alice"), nil)
		defer alice.Close()
		bob := dialWhenKnown(t, g, g.named(t, "bob"), nil)
		defer bob.Close()
		const key = "agent:main:shared"
		say := func(c *Client, text string) {
			t.Helper()
			if _, err := c.Call("agent", map[string]any{"sessionKey": key, "message": text, "idempotencyKey": text}, 30*time.Second); err != nil {
				t.Fatal(err)
			}
			testrun.Eventually(t, "the answer to "+text, func() bool {
				var h struct{ Messages []struct{ Role string } }
				return c.Into(&h, "chat.history", map[string]any{"sessionKey": key}) == nil && len(h.Messages) == 2
			})
		}
		read := func(c *Client, id string) string {
			t.Helper()
			raw, err := c.Call("chat.history", map[string]any{"sessionKey": key, "sessionId": id}, 30*time.Second)
			if err != nil {
				return err.Error()
			}
			return string(raw)
		}
		remove := func(c *Client, transcript bool) {
			t.Helper()
			if _, err := c.Call("sessions.delete", map[string]any{"key": key, "deleteTranscript": transcript}, 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		say(alice, "the-secret-of-alice")
		var h struct{ SessionID string }
		if err := alice.Into(&h, "chat.history", map[string]any{"sessionKey": key}); err != nil {
			t.Fatal(err)
		}
		remove(alice, false)
		if got := read(alice, h.SessionID); !strings.Contains(got, "the-secret-of-alice") {
			t.Errorf("her own transcript, kept: %s", got)
		}
		if got := read(bob, h.SessionID); strings.Contains(got, "the-secret-of-alice") {
			t.Errorf("bob reads it before he takes the key: %s", got)
		}
		say(bob, "a-word-of-bob")
		if got := read(bob, h.SessionID); strings.Contains(got, "the-secret-of-alice") {
			t.Errorf("bob reads it by its id: %s", got)
		}
		remove(bob, true)
		if got := read(operator, h.SessionID); !strings.Contains(got, "the-secret-of-alice") {
			t.Errorf("after bob has deleted his session the operator reads: %s", got)
		}
	})
}
