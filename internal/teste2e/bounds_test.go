package teste2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// bound is one limit with the calls that stay below it, reach it, and exceed it by one.
type bound struct {
	name  string
	limit int
	// try uses the size; taken reports that it was accepted, and why is the refusal.
	try func(t *testing.T, size int) (taken bool, why string)
	// says is part of the refusal.
	says string
}

// Every documented limit is exact to the byte (to the character for names): one less and exactly that are accepted, and stored completely;
// one more is refused with the limit.
func TestBoundsHoldToTheByte(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "limits: {chat: 0, cron_writes: 0, requests: 0, hooks: 0}\nqueue: {cap: 100}\nhooks: {ci: {secret: "+hookSecret+"}}\n")
		g.Start()
		c := connect(t, g)
		for _, b := range bounds(g, c) {
			for _, size := range []int{b.limit - 1, b.limit, b.limit + 1} {
				taken, why := b.try(t, size)
				switch {
				case taken != (size <= b.limit):
					t.Errorf("%s of %d: taken %v (%.200s), the bound is %d", b.name, size, taken, why, b.limit)
				case !taken && !strings.Contains(why, b.says):
					t.Errorf("%s of %d was refused with %.200q, want %q", b.name, size, why, b.says)
				}
			}
		}
		o := OpenOracle(t, g, database)
		stored := func(column, letter, from string) string { // how often it occurs in each row
			return fmt.Sprintf("SELECT length(%[1]s) - length(replace(%[1]s, '%[2]s', '')) FROM %[3]s ORDER BY 1", column, letter, from)
		}
		for query, want := range map[string]string{
			stored("name", "日", "cron_jobs WHERE name LIKE '日%'"):                 "[199 200]",
			stored("payload", "Q", "cron_jobs WHERE name = 'text'"):               "[65535 65536]",
			stored("body", "Q", "inbox WHERE session_key = 'agent:main:ascii'"):   "[262143 262144]",
			stored("body", "ü", "inbox WHERE session_key = 'agent:main:umlauts'"): "[131071 131072]",
			stored("body", "Q", "inbox WHERE session_key = 'agent:main:hook:ci'"): "[262143 262144]",
		} {
			if got := fmt.Sprint(o.Rows(query)); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
	})
}

func bounds(g *Gateway, c *Client) []bound {
	call := func(method string, params map[string]any) (bool, string) {
		_, err := c.Call(method, params, 30*time.Second)
		return err == nil, fmt.Sprint(err)
	}
	job := func(name, message string) (bool, string) {
		return call("cron.add", map[string]any{
			"name": name, "schedule": at(time.Now().Add(time.Hour)), "sessionTarget": "isolated", "wakeMode": "now",
			"payload": map[string]any{"kind": "agentTurn", "message": message},
		})
	}
	say := func(session, text string) (bool, string) {
		return call("chat.send", map[string]any{"sessionKey": session, "message": text, "idempotencyKey": fmt.Sprint(session, len(text))})
	}
	return []bound{
		{"name of a job in characters", 200, func(_ *testing.T, n int) (bool, string) { return job(strings.Repeat("日", n), "x") }, "200"},
		{"text of a job", 65_536, func(_ *testing.T, n int) (bool, string) { return job("text", strings.Repeat("Q", n)) }, "65536"},
		{"text of a message", 262_144, func(_ *testing.T, n int) (bool, string) { return say("ascii", strings.Repeat("Q", n)) }, "262144"},
		{"text of two-byte characters", 131_072, func(_ *testing.T, n int) (bool, string) { return say("umlauts", strings.Repeat("ü", n)) }, "262144"},
		{"body of a hook", 262_144, func(_ *testing.T, n int) (bool, string) {
			a := g.Hook("ci", hookSecret, strings.Repeat("Q", n))
			return a.Status == http.StatusAccepted, fmt.Sprint(a.Status, a.Body, a.Err)
		}, "413"},
		{"maxPayload", 1_048_576, func(t *testing.T, n int) (bool, string) { return frameOf(t, g, n) }, "1009"},
		{"message before hello", 65_536, func(t *testing.T, n int) (bool, string) { return connectOf(t, g, n) }, "1009"},
	}
}

// frameOf sends a request of n bytes on an authenticated socket.
func frameOf(t *testing.T, g *Gateway, n int) (bool, string) {
	t.Helper()
	b, err := login(g.addr(), g.Token())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const head, tail = `{"type":"req","id":"big","method":"health","x":"`, `"}`
	return sized(t, b, "big", head+strings.Repeat("x", n-len(head)-len(tail))+tail)
}

// connectOf sends a connect of n bytes.
func connectOf(t *testing.T, g *Gateway, n int) (bool, string) {
	t.Helper()
	b, err := upgrade(g.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	head := `{"type":"req","id":"c","method":"connect","params":{"minProtocol":4,"maxProtocol":4,"auth":{"token":"` + g.Token() +
		`"},"client":{"id":"bare","version":"1","platform":"test","mode":"test"},"scopes":["operator.read"]}`
	return sized(t, b, "c", head+strings.Repeat(" ", n-len(head)-1)+"}")
}

func sized(t *testing.T, b *bare, id, text string) (bool, string) {
	t.Helper()
	_ = b.SetDeadline(time.Now().Add(30 * time.Second))
	err := b.text(text)
	if err == nil {
		_, err = b.answer(id)
	}
	if closed := (*closedError)(nil); err != nil && !errors.As(err, &closed) {
		t.Errorf("%d bytes: %v, want a close frame", len(text), err)
	}
	return err == nil, fmt.Sprint(err)
}
