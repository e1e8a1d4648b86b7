package teste2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// peak returns the peak resident memory of the process, in bytes.
func (g *Gateway) peak() int {
	g.tb.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.pid()))
	if err != nil {
		g.tb.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				g.tb.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	g.tb.Fatal("the process has no VmHWM")
	return 0
}

// bigSession creates a session of n messages of 262,000 bytes each, and as many answers of that size.
func bigSession(t *testing.T, c *Client, key string, n int) {
	t.Helper()
	text := strings.Repeat("x", 262_000)
	for i := range n {
		params := map[string]any{"sessionKey": key, "message": text, "idempotencyKey": fmt.Sprintf("big-%d", i)}
		if _, err := c.Call("agent", params, 30*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Eventually(t, "the turns of the session have ended", func() bool {
		var h struct{ TotalMessages int }
		if err := c.Into(&h, "chat.history", map[string]any{"sessionKey": key, "limit": 1, "maxChars": 1}); err != nil {
			t.Fatal(err)
		}
		return h.TotalMessages == 2*n
	})
}

// Many histories of a session with large messages are requested concurrently, with one character of each message. The memory of the process
// depends on the limits of a read and of concurrent reads, not on the size of the session.
func TestManyHistoriesAtOnceTakeLittleMemory(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "limits: {chat: 0, requests: 0}\nqueue: {cap: 100}\n").AtOnce()
		g.Start()
		bigSession(t, mustDial(t, g, nil), "agent:main:big", 60)
		for _, chars := range []int{1, 500_000} {
			const calls, mostGrown = 24, 200 << 20
			g.Kill()
			g.Start() // measure the memory of a process that has not received the messages
			before, began := g.peak(), time.Now()
			var calling sync.WaitGroup
			var readers []*Client // each reads some of the answers, because one that reads too slowly is disconnected
			for range 4 {
				readers = append(readers, mustDial(t, g, nil))
			}
			for i := range calls {
				calling.Go(func() {
					if _, err := readers[i%len(readers)].Call("chat.history", map[string]any{"sessionKey": "agent:main:big", "limit": 1000, "maxChars": chars}, 60*time.Second); err != nil {
						t.Error(err)
					}
				})
			}
			calling.Wait()
			took, grown := time.Since(began), g.peak()-before
			t.Logf("figure: %d histories of %d characters at once took %s, memory from %d MB to %d MB", calls, chars, took.Round(time.Millisecond), before>>20, (before+grown)>>20)
			if len(raceFlag()) == 0 && grown > mostGrown {
				t.Errorf("%d characters: memory grew by %d MB, want at most %d", chars, grown>>20, mostGrown>>20)
			}
		}
	})
}
