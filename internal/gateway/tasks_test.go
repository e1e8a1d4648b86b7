package gateway_test

import (
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// An operator and a principal that sees only its own data list, show and stop tasks.
func TestACallerSeesTheTasksThatAreItsOwn(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	task := func(id, principal, state string) store.Task {
		return store.Task{
			ID: id, Session: chat.TaskKey("main", id), Parent: "r1", Root: "r1", Lane: "team", Text: "work of " + principal, Principal: principal, Agent: "main",
			State: state, AcceptedAt: time.UnixMilli(1000), StartedAt: time.UnixMilli(2000),
		}
	}
	ended := task("t3", "anna", store.StateDone)
	ended.Outcome, ended.EndedAt = chat.OutcomeAnswered, time.UnixMilli(3000)
	b.fakeBackend.mu.Lock()
	b.fakeBackend.tasks = []store.Task{task("t1", "anna", "yielded"), task("t2", "otto", "running"), ended}
	b.fakeBackend.mu.Unlock()
	admin, anna := b.login(adminToken), b.login(annaToken)
	ids := func(got params) string {
		var list []string
		for _, row := range got["tasks"].([]any) {
			list = append(list, row.(params)["id"].(string))
		}
		return strings.Join(list, " ")
	}
	for _, tt := range []struct {
		who  string
		got  string
		want string
	}{
		{"the operator", ids(admin.must("tasks.list", params{})), "t1 t2 t3"},
		{"the operator, open ones", ids(admin.must("tasks.list", params{"open": true})), "t1 t2"},
		{"the operator, one", ids(admin.must("tasks.list", params{"limit": 1})), "t1"},
		{"anna", ids(anna.must("tasks.list", params{})), "t1 t3"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s sees %q, want %q", tt.who, tt.got, tt.want)
		}
	}
	if got := anna.must("tasks.get", params{"id": "t2"}); got["task"] != nil {
		t.Errorf("anna is shown a task of another principal: %v", got)
	}
	row := anna.must("tasks.get", params{"id": "t3"})["task"].(params)
	if row["outcome"] != "answered" || row["endedAt"] != 3000.0 || row["sessionKey"] != "agent:main:task:t3" || row["parentRunId"] != "r1" {
		t.Errorf("a task that has ended: %v", row)
	}
	if got := anna.must("tasks.stop", params{"id": "t2"}); got["stopped"] != false {
		t.Errorf("anna stopped a task of another principal: %v", got)
	}
	anna.must("tasks.stop", params{"id": "t1"})
	b.fakeBackend.mu.Lock()
	defer b.fakeBackend.mu.Unlock()
	if len(b.fakeBackend.stops) != 1 || b.fakeBackend.stops[0].MessageID != "t1" || b.fakeBackend.stops[0].Scope != store.StopRun || b.fakeBackend.stops[0].Session != chat.TaskKey("main", "t1") {
		t.Errorf("stops: %+v, want the one of t1", b.fakeBackend.stops)
	}
}
