package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// An operator and a principal that sees only its own data list and show runs. The latter does not see the position in the lane, which would
// reveal how much work of others waits.
func TestACallerSeesTheRunsThatAreItsOwn(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	run := func(id, principal, state string) store.Turn {
		return store.Turn{
			ID: id, Session: chat.MainKey("main"), Lane: "main", Channel: "api", Text: "work of " + principal, Principal: principal, State: state, Node: "gw-1",
			AcceptedAt: time.UnixMilli(1000), Detail: "the service's words",
		}
	}
	child := run("c1", "anna", store.RunRunning)
	child.Parent, child.Root, child.Channel = "anna:r1", "anna:r1", chat.ChannelTask
	ended := run("anna:r1", "anna", store.StateDone)
	ended.Outcome, ended.Error, ended.EndedAt = chat.OutcomeFailed, "no route", time.UnixMilli(3000)
	ended.Sent = []store.Sending{{Target: chat.Target{Channel: "telegram:1", ChatID: "7"}, Kind: store.KindReply, State: store.OutFailed, Attempts: 3, Error: "403"}}
	b.fakeBackend.mu.Lock()
	b.fakeBackend.turnList = []store.Turn{run("otto:r2", "otto", store.RunRunning), run("w1", "anna", store.StateWaiting), child, ended}
	b.fakeBackend.waits = map[string]chat.Waiting{"w1": {Cause: chat.WaitLane, Position: 57}}
	b.fakeBackend.mu.Unlock()
	admin, anna := b.login(adminToken), b.login(annaToken)
	list := func(got params) string {
		var lines []string
		for _, r := range got["runs"].([]any) {
			row := r.(params)
			line := fmt.Sprint(row["id"], " ", row["kind"], " ", row["state"])
			if w, ok := row["waitingFor"].(params); ok {
				line += fmt.Sprintf(" (%v)", w["text"])
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, ", ")
	}
	for _, tt := range []struct{ who, got, want string }{
		{"the operator, ended ones", list(admin.must("runs.list", params{"state": "ended"})), "anna:r1 api done"},
		{"the operator", list(admin.must("runs.list", params{})), "otto:r2 api running, w1 api waiting (a slot of its lane, place 57), c1 task running, anna:r1 api done"},
		{"anna", list(anna.must("runs.list", params{})), "w1 api waiting (a slot of its lane), c1 task running, anna:r1 api done"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s sees %q, want %q", tt.who, tt.got, tt.want)
		}
	}
	if got := anna.must("runs.get", params{"id": "otto:r2"}); got["run"] != nil {
		t.Errorf("anna is shown a run of another principal: %v", got)
	}
	got := anna.must("runs.get", params{"id": "r1"}) // by its idempotency key
	row, _ := got["run"].(params)
	if row["error"] != "no route" || row["runId"] != "r1" || row["detail"] != nil {
		t.Errorf("a run that has ended: %v", got)
	}
	if x := got["answer"].(params); x["why"] != "failed" || !strings.Contains(fmt.Sprint(x["text"]), "without an answer (failed): no route. The reply to telegram:1 7 was given up") {
		t.Errorf("where its answer is: %v", x)
	}
	if x := anna.must("runs.get", params{"id": "w1"})["answer"].(params); x["why"] != "waiting" || strings.Contains(fmt.Sprint(x["text"]), "57") {
		t.Errorf("where the answer of one that waits is: %v", x)
	}
	if sent := fmt.Sprint(got["deliveries"]); !strings.Contains(sent, "403") || len(got["tasks"].([]any)) != 1 {
		t.Errorf("what it sent and asked for: %v", got)
	}
	if row := admin.must("runs.get", params{"id": "anna:r1"})["run"].(params); row["detail"] != "the service's words" {
		t.Errorf("an administrator is shown %v", row)
	}
	page := admin.must("runs.list", params{"limit": 1})
	admin.must("runs.list", params{"limit": 1, "cursor": page["nextCursor"]})
	b.fakeBackend.mu.Lock()
	defer b.fakeBackend.mu.Unlock()
	if after := b.fakeBackend.turnFilters[len(b.fakeBackend.turnFilters)-1].After; after == nil || *after != (store.TurnMark{At: time.UnixMilli(1000), ID: "otto:r2"}) {
		t.Errorf("the second page begins after %+v", after)
	}
	if f := admin.call("runs.list", params{"cursor": "x"}); f.OK || !strings.Contains(f.Error.Message, "nextCursor") {
		t.Errorf("a wrong cursor: %+v", f)
	}
}
