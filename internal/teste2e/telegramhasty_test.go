package teste2e

import (
	"testing"
	"time"

	"laneway/internal/testtelegram"
)

// TestAServerThatDoesNotWaitIsPolledOnceASecond runs the binary beside servers that answer getUpdates at once, with nothing or with an update that no
// offset confirms, and counts the polls in each second of the server's own record.
func TestAServerThatDoesNotWaitIsPolledOnceASecond(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, forgetful := range map[string]bool{"with nothing": false, "with the same update again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openChatroom(t, "", "", testtelegram.Config{Hurry: time.Millisecond, Forgetful: forgetful})
			if forgetful {
				c.Telegram.Say(anna, anna, "hello")
			}
			c.Start()
			began := time.Now()
			c.Await("ten polls", func() bool { return len(c.Telegram.Calls("getUpdates")) >= 10 })
			perSecond := map[int]int{}
			first := c.Telegram.Calls("getUpdates")[0].At
			for _, call := range c.Telegram.Calls("getUpdates") {
				perSecond[int(call.At.Sub(first).Seconds())]++
			}
			t.Logf("figure: polls in each second: %v", perSecond)
			for second, n := range perSecond {
				if allowed := 2; n > allowed && second > 0 || n > 6 {
					t.Errorf("%d polls in second %d, want one, and a few in the first", n, second)
				}
			}
			if took := time.Since(began); took < 4*time.Second {
				t.Errorf("ten polls took %s", took)
			}
			c.Close()
		})
	}
}
