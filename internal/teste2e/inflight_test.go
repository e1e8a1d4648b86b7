package teste2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/testpg"
)

// A thousand calls at once on one socket: as many as have a place run, each of the others is refused with a clear error at once, and the socket goes
// on: looking has places of its own, and what had a place is answered when it can be.
func TestAThousandCallsInFlightOnOneSocket(t *testing.T) {
	t.Parallel()
	const calls, places = 1_000, 64
	database := testpg.DB(t)
	g := Install(t, database, "limits: {chat: 0, requests: 0}\n").AtOnce()
	g.Start()
	b, err := login(g.addr(), g.Token())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_ = b.SetDeadline(time.Now().Add(60 * time.Second))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	message := func(i int) map[string]any {
		return map[string]any{"sessionKey": "agent:main:a", "message": "hello", "idempotencyKey": fmt.Sprintf("m-%d", i)}
	}
	must(b.request("first", "chat.send", message(-1)))
	if _, err := b.answer("first"); err != nil {
		t.Fatal(err)
	}
	// Another transaction holds the session, so that whatever is sent to it waits.
	held, err := writable(t, g, database).BeginTx(t.Context(), nil)
	must(err)
	_, err = held.ExecContext(t.Context(), "SELECT 1 FROM sessions WHERE key = 'agent:main:a' FOR UPDATE")
	must(err)
	sent := make(chan error, 1)
	go func() { // the answers are read meanwhile
		for i := range calls {
			if err := b.request(fmt.Sprintf("wait-%d", i), "chat.send", message(i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	refused := map[string]bool{}
	for len(refused) < calls-places {
		id, r := response(t, b)
		if r.OK || r.Error == nil || r.Error.Code != "UNAVAILABLE" || r.Error.Details["code"] != "TOO_MANY_IN_FLIGHT" || !r.Error.Retryable || r.Error.Message == "" || refused[id] {
			t.Fatalf("%s: %+v %+v", id, r, r.Error)
		}
		refused[id] = true
	}
	must(<-sent)
	must(b.request("look", "health", map[string]any{}))
	if id, r := response(t, b); id != "look" || !r.OK { // no other request has been answered since
		t.Errorf("looking while every place is taken: %s %+v %+v", id, r, r.Error)
	}
	must(held.Rollback())
	for answered := range places {
		if id, r := response(t, b); !r.OK || refused[id] {
			t.Fatalf("answer %d, %s: %+v %+v", answered, id, r, r.Error)
		}
	}
	if n := OpenOracle(t, g, database).Count("SELECT count(*) FROM inbox WHERE message_id LIKE 'm-%'"); n != places+1 {
		t.Errorf("%d messages are stored, want the %d that had a place and the first", n, places)
	}
	must(b.request("again", "chat.send", message(calls)))
	if id, r := response(t, b); id != "again" || !r.OK {
		t.Errorf("a call afterwards: %s %+v %+v", id, r, r.Error)
	}
	if out := g.Output(); strings.Contains(out, "level=ERROR") {
		t.Errorf("the log has errors:\n%s", out)
	}
}

// response is the next answer to a request, whichever; events are passed over.
func response(t *testing.T, b *bare) (string, Response) {
	t.Helper()
	data, err := b.until(`"type":"res"`)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Response

		ID string `json:"id"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r.ID, r.Response
}
