package teste2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
)

// forgeries are strings that would look like a line of the gateway in a log or a list, if they were written unchanged.
func forgeries() []string {
	return []string{
		"x\ntime=1999-01-01T00:00:00.000Z level=ERROR msg=forged", "x\r\nlaneway: forged", "x\rforged", "\x1b[2J\x1b[31mforged", "x\u202eforged\u202c",
		"x\u2028time=1999-01-01T00:00:00.000Z level=ERROR msg=forged", "x\u0085forged", "x\u009b31mforged", "\ufefforged\x7f", "x\" level=ERROR msg=forged y=\"",
	}
}

// For any content of a name, a text, a key, a header or a path, the gateway wrote every line of the log, and no output can control a
// terminal. The same applies to the lists of the command line.
func TestNothingForgesALineOfTheLog(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	g := Install(t, "", "log: {level: debug}\nlimits: {chat: 0, cron_writes: 0, requests: 0, hooks: 0}\nhooks: {ci: {secret: "+hookSecret+"}}\nagents:\n"+
		"  main: {runner: echo, script: true}\n  talker: {runner: command, command: [\"sh\", \"-c\", \"tee /dev/stderr; exit 3\"]}\n")
	g.Start()
	e := newEndings()
	c := mustDial(t, g, e.take)
	for i, evil := range forgeries() {
		forgeOverTheWire(t, g, c, evil)
		forgeOverHTTP(t, g, evil)
		for _, agent := range []string{"main", "talker"} {
			id := fmt.Sprintf("%s-%d", agent, i)
			if _, err := c.Call("chat.send", map[string]any{"sessionKey": "agent:" + agent + ":s" + id, "message": evil, "idempotencyKey": id}, 20*time.Second); err != nil {
				t.Errorf("%q to %s: %v", evil, agent, err)
			}
			e.end(t, id)
		}
	}
	checkNotForged(t, "the log", g.Output())
	for line := range strings.SplitSeq(g.Output(), "\n") {
		if i := strings.Index(line, `" level=ERROR msg=forged`); i > 0 && line[i-1] != '\\' {
			t.Errorf("the log has a forged attribute: %q", line)
		}
	}
	if n := strings.Count(g.Output(), "forged"); n < len(forgeries()) {
		t.Errorf("the log has %d of the forgeries; this test looks at nothing", n)
	}
	shown := 0
	for _, args := range [][]string{{"sessions", "list"}, {"sessions", "show", "agent:main:smain-3"}, {"cron", "list"}, {"cron", "runs"}, {"status"}, {"scheduler", "list"}} {
		out, errs, code := g.CLI(t.Context(), "", args...)
		if code != 0 {
			t.Errorf("laneway %v: exit code %d, %s", args, code, errs)
		}
		checkNotForged(t, "laneway "+strings.Join(args, " "), out+errs)
		shown += strings.Count(out, "\\u001b[2J") + strings.Count(out, "\\u202eforged")
	}
	if shown < 2 {
		t.Error("the lists do not show what they made harmless")
	}
}

// checkNotForged requires text without control characters except its line ends, none of which comes from a sender.
func checkNotForged(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "time=1999") || strings.HasPrefix(line, "laneway: forged") || strings.HasPrefix(line, "forged") {
			t.Errorf("%s has the forged line %q", what, line)
		}
		if strings.ContainsFunc(line, chat.Unprintable) {
			t.Errorf("%s has control characters: %q", what, line)
		}
	}
}

// forgeOverTheWire puts a string into everything that a client may name.
func forgeOverTheWire(t *testing.T, g *Gateway, c *Client, evil string) {
	t.Helper()
	job := func(name, value string) map[string]any {
		p := map[string]any{"name": "job", "schedule": json.RawMessage(yearlyJob), "message": "tea?"}
		p[name] = value
		return p
	}
	for _, call := range []struct {
		method string
		params map[string]any
	}{
		{evil, nil},
		{"cron.add", job("name", evil)},
		{"cron.add", job("key", evil)},
		{"cron.add", job("agentId", evil)},
		{"cron.run", map[string]any{"id": evil}},
		{"chat.send", map[string]any{"sessionKey": "agent:main:" + evil, "message": "x", "idempotencyKey": "k"}},
		{"chat.send", map[string]any{"sessionKey": "main", "message": "x", "idempotencyKey": evil}},
		{"sessions.reset", map[string]any{"key": evil}},
	} {
		if _, err := c.Call(call.method, call.params, 20*time.Second); err == nil && !strings.HasPrefix(evil, "x\"") { // quotes are allowed in names
			t.Errorf("%q was taken by %.40q", evil, call.method)
		}
	}
	for _, field := range []string{"id", "version", "platform", "mode", "displayName"} {
		b, err := upgrade(g.addr())
		if err != nil {
			t.Fatal(err)
		}
		me := map[string]string{"id": "page", "version": "1", "platform": "test", "mode": "test"}
		me[field] = evil
		err = b.request("c", "connect", map[string]any{"minProtocol": 4, "maxProtocol": 4, "auth": map[string]string{"token": g.Token()}, "scopes": []string{"operator.read"}, "client": me})
		if err == nil {
			_, _ = b.answer("c") // it does not matter whether it is accepted
		}
		_ = b.Close()
	}
}

// forgeOverHTTP puts it into paths, and byte by byte into headers.
func forgeOverHTTP(t *testing.T, g *Gateway, evil string) {
	t.Helper()
	for _, path := range []string{"/" + url.PathEscape(evil), "/hooks/" + url.PathEscape(evil), "/telegram/webhook/" + url.PathEscape(evil), "/v1/models?x=" + url.QueryEscape(evil)} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL()+path, strings.NewReader(evil))
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, req)
	}
	for _, name := range []string{"Host", "User-Agent", "X-Forwarded-For", "Origin", "Authorization", "Idempotency-Key", "X-Laneway-Signature"} {
		conn, err := net.DialTimeout("tcp", g.addr(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		head := "GET /ws HTTP/1.1\r\nConnection: close\r\n"
		if name != "Host" {
			head += "Host: " + g.addr() + "\r\n"
		}
		if _, err := io.WriteString(conn, head+name+": "+evil+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%q in %s: %v", evil, name, err)
		} else {
			_ = resp.Body.Close()
		}
		_ = conn.Close()
	}
}
