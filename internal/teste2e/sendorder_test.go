package teste2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// TestFramesOfOneSocketToOneSessionStayInOrder writes twenty chat.send frames back to back on one socket, without a wait for an answer, ten times: the session
// has them in the order in which they were written.
func TestFramesOfOneSocketToOneSessionStayInOrder(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0}\nqueue: {cap: 100}\ndrain_timeout: 1s\n").AtOnce()
		g.Start()
		c := mustDial(t, g, nil)
		o := OpenOracle(t, g, database)
		const rounds, frames = 10, 20
		for round := range rounds {
			key := fmt.Sprintf("agent:main:round-%d", round)
			want := make([]string, 0, frames)
			answers := make([]<-chan Response, 0, frames)
			for i := range frames {
				text := fmt.Sprintf("message %d of round %d", i, round)
				want = append(want, text)
				answers = append(answers, c.write(t, "chat.send", map[string]any{"sessionKey": key, "message": text, "idempotencyKey": fmt.Sprintf("r%d-%d", round, i)}))
			}
			for i, answer := range answers {
				if r := <-answer; !r.OK {
					t.Fatalf("message %d of round %d: %v", i, round, r.Error)
				}
			}
			got := o.Rows("SELECT body FROM inbox WHERE session_key = '" + key + "' ORDER BY seq")
			for i, body := range got {
				var content struct{ Text string }
				if err := json.Unmarshal([]byte(body), &content); err != nil {
					t.Fatal(err)
				}
				got[i] = content.Text
			}
			if !slices.Equal(got, want) {
				t.Errorf("round %d has %q", round, got)
			}
		}
	})
}

// write sends a request and does not wait for its answer, for which the channel is.
func (c *Client) write(t *testing.T, method string, params any) <-chan Response {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	id := strconv.Itoa(c.next)
	answer := make(chan Response, 1)
	c.pending[id] = answer
	frame, err := json.Marshal(map[string]any{"type": "req", "id": id, "method": method, "params": params})
	if err == nil {
		_ = c.ws.SetWriteDeadline(time.Now().Add(10 * time.Second))
		err = c.ws.WriteMessage(websocket.TextMessage, frame)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
