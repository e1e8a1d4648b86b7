package gateway_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"laneway/internal/chat"
)

// A principal that sees only its own data finds no trace of others.
func TestOwnVisibilityHidesTheRest(t *testing.T) {
	t.Parallel()
	b := start(t)
	anna, otto, admin := b.login(annaToken), b.login(ottoToken), b.login(adminToken)
	otto.must("sessions.subscribe", nil)
	anna.must("chat.send", send("diary", "dear diary", "a1"))
	anna.next(chatState("a1", "final"))
	otto.request("quiet", "health", nil)
	if f := otto.read(); f.ID != "quiet" {
		t.Errorf("otto heard of anna's run: %s %s", f.Event, f.Payload)
	}
	for name, p := range map[string]params{
		"chat.send":         send("diary", "hello", "o1"),
		"chat.abort":        {"sessionKey": "diary"},
		"chat.history":      {"sessionKey": "diary"},
		"agent":             {"sessionKey": "diary", "message": "x", "idempotencyKey": "o2"},
		"wake":              {"sessionKey": "diary", "mode": "now", "text": "x"},
		"sessions.describe": {"key": "diary"},
		"sessions.reset":    {"key": "diary"},
		"sessions.delete":   {"key": "diary"},
	} {
		f := otto.call(name, p)
		if _, looks := absentAnswers()[name]; looks {
			wantHidden(t, name, name+" on another principal's session", f)
			continue
		}
		if f.OK || f.Error.Code != "INVALID_REQUEST" || !reflect.DeepEqual(f.Error.Details, params{"code": "SESSION_NOT_FOUND", "key": "agent:main:diary"}) {
			t.Errorf("%s on another principal's session: %s %+v", name, f.Payload, f.Error)
		}
	}
	if got := otto.must("sessions.list", nil); got["totalCount"] != 0.0 {
		t.Errorf("otto's sessions: %v", got)
	}
	if got := admin.must("sessions.list", nil); got["totalCount"] != 1.0 {
		t.Errorf("all sessions: %v", got)
	}
	for _, p := range []params{{"query": "dear"}, {"query": "dear", "key": "diary"}} {
		if got := otto.must("sessions.search", p); got["count"] != 0.0 || len(got["hits"].([]any)) != 0 || got["hasMore"] != false {
			t.Errorf("otto finds %v", got)
		}
		if got := anna.must("sessions.search", p); got["count"] == 0.0 {
			t.Errorf("anna finds %v", got)
		}
		if got := admin.must("sessions.search", p); got["count"] == 0.0 {
			t.Errorf("the operator finds %v", got)
		}
	}
	for _, p := range []params{nil, {"key": "diary"}} {
		if got := otto.must("toc.list", p); got["count"] != 0.0 || len(got["nodes"].([]any)) != 0 || got["hasMore"] != false {
			t.Errorf("otto reads %v", got)
		}
		if got := anna.must("toc.list", p); got["count"] == 0.0 {
			t.Errorf("anna reads %v", got)
		}
		if got := admin.must("toc.list", p); got["count"] == 0.0 {
			t.Errorf("the operator reads %v", got)
		}
	}
	otto.must("chat.send", send("notes", "mine", "o3"))
	if f := otto.next(func(f frame) bool { return f.Event == "chat" }); strings.Contains(string(f.Payload), "diary") {
		t.Errorf("otto got %s", f.Payload)
	}
	if by := b.fakeBackend.callers[0]; by.Principal != "anna" || !by.Own || len(by.Scopes) != 3 {
		t.Errorf("caller %+v", by)
	}
}

func TestHistoryByCursorGivesEveryMessageOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	say := func(id string) {
		s.must("chat.send", send("main", "text of "+id, id))
		s.next(chatState(id, "final"))
	}
	empty := s.must("chat.history", params{"sessionKey": "main"})
	cursor := empty["deltaCursor"].(string)
	if cursor != "m:0" || len(empty["messages"].([]any)) != 0 || empty["totalMessages"] != 0.0 {
		t.Errorf("unknown session: %v", empty)
	}
	for i := range 5 {
		say("m" + strconv.Itoa(i))
	}
	var got []string
	for {
		h := s.must("chat.history", params{"sessionKey": "main", "cursor": cursor, "limit": 3})
		if h["kind"] != "delta" {
			t.Fatalf("history %v", h)
		}
		for _, m := range h["messages"].([]any) {
			got = append(got, m.(params)["content"].([]any)[0].(params)["text"].(string))
		}
		cursor = h["deltaCursor"].(string)
		if len(h["messages"].([]any)) == 0 {
			break
		}
	}
	if len(got) != 10 || got[0] != "text of m0" || got[9] != "text of m4" {
		t.Errorf("messages %q", got)
	}
	page := s.must("chat.history", params{"sessionKey": "main", "limit": 2, "offset": 1, "maxChars": 4})
	messages := page["messages"].([]any)
	first := messages[0].(params)
	if len(messages) != 2 || page["hasMore"] != true || page["totalMessages"] != 10.0 || first["seq"] != 8.0 ||
		first["content"].([]any)[0].(params)["text"] != "text..." {
		t.Errorf("page %v", page)
	}
	if mark := messages[1].(params)["__openclaw"].(params); mark["idempotencyKey"] != "m4:user" || mark["id"] != "m-9" {
		t.Errorf("mark %v", mark)
	}
	s.must("sessions.reset", params{"key": "main"})
	if h := s.must("chat.history", params{"sessionKey": "main", "cursor": cursor}); h["kind"] != "reset" || len(h) != 1 {
		t.Errorf("after a reset: %v", h)
	}
	if h := s.must("chat.history", params{"sessionKey": "main", "cursor": "rubbish"}); h["kind"] != "reset" {
		t.Errorf("an invalid cursor: %v", h)
	}
}

func TestListAnswersAreCutAtFourMebibytes(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	b.fakeBackend.set(func() {
		fakeSession := b.fakeBackend.fakeSession(chat.MainKey("main"), "gateway")
		for range 50 {
			fakeSession.add(chat.TranscriptEntry{Role: chat.RoleAssistant, Text: strings.Repeat("x", 200_000)})
		}
	})
	f := s.call("chat.history", params{"sessionKey": "main", "limit": 1000, "maxChars": 500_000})
	h := decode[params](t, f.Payload)
	if n := len(f.Payload); n > 4<<20+8192 || h["hasMore"] != true || len(h["messages"].([]any)) != 20 {
		t.Errorf("%d bytes, %d messages, hasMore %v; want at most 4 MiB and more to come", n, len(h["messages"].([]any)), h["hasMore"])
	}
	if last := h["messages"].([]any)[19].(params); last["seq"] != 50.0 {
		t.Errorf("the newest message is missing: seq %v", last["seq"])
	}
}

func TestTotalOfSessionsStopsAtThousand(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.fakeBackend.set(func() {
		for i := range 1001 {
			b.fakeBackend.fakeSession(chat.SessionKey{Agent: "main", Rest: fmt.Sprintf("s%04d", i)}, "ann")
		}
	})
	s := b.login(adminToken)
	for offset, want := range map[int]params{0: {"totalCount": 1000.0, "totalIsLowerBound": true, "hasMore": true}, 1000: {"totalCount": 1001.0, "totalIsLowerBound": nil, "hasMore": false}} {
		list := s.must("sessions.list", params{"limit": 1, "offset": offset})
		for member, want := range want {
			if list[member] != want {
				t.Errorf("at %d: %s is %v, want %v", offset, member, list[member], want)
			}
		}
	}
	if n := s.must("status", nil)["sessions"].(params); n["known"] != 1000.0 || n["knownIsLowerBound"] != true {
		t.Errorf("status has %v", n)
	}
}

func TestSessionsMethods(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for _, k := range []string{"main", "telegram:group:-100:topic:7"} {
		s.must("chat.send", send(k, "hi", strings.ReplaceAll(k, ":", "-")))
		s.next(chatState(strings.ReplaceAll(k, ":", "-"), "final"))
	}
	list := s.must("sessions.list", params{"limit": 1, "includeGlobal": true, "sortBy": "updatedAt", "activeMinutes": 5})
	if list["count"] != 1.0 || list["totalCount"] != 2.0 || list["hasMore"] != true || list["nextOffset"] != 1.0 || list["limitApplied"] != 1.0 {
		t.Errorf("list %v", list)
	}
	list = s.must("sessions.list", params{"offset": 1})
	row := list["sessions"].([]any)[0].(params)
	if row["key"] != "agent:main:telegram:group:-100:topic:7" || row["kind"] != "group" || row["channel"] != "telegram" || row["isMain"] != false || list["nextOffset"] != nil {
		t.Errorf("row %v of %v", row, list)
	}
	if got := s.must("sessions.describe", params{"key": "main"}); got["session"].(params)["isMain"] != true || got["session"].(params)["lane"] != "main" {
		t.Errorf("describe %v", got)
	}
	if got := s.must("sessions.describe", params{"key": "none"}); got["session"] != nil {
		t.Errorf("describe of nothing %v", got)
	}
	if got := s.must("sessions.subscribe", params{"limit": 5}); got["subscribed"] != true || got["list"].(params)["count"] != 2.0 {
		t.Errorf("subscribe with a list %v", got)
	}
	reset := params{"key": "main", "reason": "new", "idempotencyKey": "once"}
	id := s.must("sessions.reset", reset)["entry"].(params)["sessionId"]
	if again := s.must("sessions.reset", reset)["entry"].(params)["sessionId"]; again != id {
		t.Errorf("a repeated reset made %v after %v", again, id)
	}
	if f := s.call("sessions.reset", params{"key": "other", "idempotencyKey": "once"}); f.OK || f.Error.Details["code"] != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("same key, other params: %+v", f.Error)
	}
	if f := s.call("sessions.delete", params{"key": "main", "expectedSessionId": "old"}); f.OK || f.Error.Details["code"] != "CONFLICT" {
		t.Errorf("delete of another transcript: %+v", f.Error)
	}
	if got := s.must("sessions.delete", params{"key": "main"}); got["deleted"] != true || got["key"] != "agent:main:main" || len(got["archived"].([]any)) != 0 {
		t.Errorf("delete %v", got)
	}
	if got := s.must("sessions.delete", params{"key": "main"}); got["deleted"] != false {
		t.Errorf("delete of nothing %v", got)
	}
}

func TestEventsGoToTheSenderAndSubscribersOnly(t *testing.T) {
	t.Parallel()
	b := start(t)
	sender, subscriber, other := b.login(adminToken), b.login(adminToken), b.login(adminToken)
	subscriber.must("sessions.subscribe", nil)
	sender.must("chat.send", send("main", "hello", "r"))
	sender.next(chatState("r", "final"))
	subscriber.next(chatState("r", "final"))
	other.request("h", "health", nil)
	if f := other.read(); f.ID != "h" {
		t.Errorf("a connection that neither sent nor subscribed got %s", f.Event)
	}
}

// The test counts the events of two runs that another connection starts, in the sessions main and other.
func TestASubscriptionWithoutDeltasGetsTheEndsOfOtherRuns(t *testing.T) {
	t.Parallel()
	b := start(t)
	sender := b.login(adminToken)
	subscribed := map[string]*socket{}
	for name, p := range map[string]params{"all": {}, "ends": {"deltas": false}, "ends, and main": {"deltas": false, "deltasOf": "main"}} {
		subscribed[name] = b.login(adminToken)
		if got := subscribed[name].must("sessions.subscribe", p); got["list"] != nil {
			t.Errorf("%s: a list without its parameters: %v", name, got)
		}
	}
	if got := subscribed["ends"].must("sessions.subscribe", params{"deltas": false, "limit": 1}); got["list"] == nil {
		t.Error("parameters of a list bring none")
	}
	if f := sender.call("sessions.subscribe", params{"deltasOf": "agent::"}); f.OK || !strings.Contains(f.Error.Message, "/deltasOf") {
		t.Errorf("the key is wrong: %+v", f.Error)
	}
	for _, key := range []string{"main", "other"} {
		sender.must("chat.send", send(key, "hello", key))
		sender.next(chatState(key, "final"))
	}
	type seen struct{ Grows, Ends int }
	want := map[string]map[string]bool{"all": {"main": true, "other": true}, "ends": {}, "ends, and main": {"main": true}}
	for name, s := range subscribed {
		got := map[string]*seen{"main": {}, "other": {}}
		s.request("last", "agents.list", nil)
		for f := s.read(); f.ID != "last"; f = s.read() {
			var ev struct {
				SessionKey, State string
				Data              struct{ Phase string }
			}
			if err := json.Unmarshal(f.Payload, &ev); err != nil {
				t.Fatal(err)
			}
			of := got[strings.TrimPrefix(ev.SessionKey, "agent:main:")]
			switch {
			case of == nil:
			case ev.State == "final" || ev.Data.Phase == "end":
				of.Ends++
			default:
				of.Grows++
			}
		}
		for key, is := range got {
			if (is.Grows > 0) != want[name][key] || is.Ends == 0 {
				t.Errorf("%s: %+v of the session %s", name, *is, key)
			}
		}
	}
	own := subscribed["ends"]
	own.must("chat.send", send("mine", "hello", "mine"))
	own.next(chatState("mine", "delta"))
}

// The test counts the events that a connection receives of a run of another one, and of its own run, which ends after the unsubscription.
func TestUnsubscribeEndsTheEventsOfSessions(t *testing.T) {
	t.Parallel()
	b := start(t)
	s, other := b.login(adminToken), b.login(adminToken)
	s.must("sessions.subscribe", nil)
	other.must("sessions.subscribe", nil)
	s.must("chat.send", send("main", "wait mine", "mine"))
	s.next(isEvent("agent", "mine"))
	if got := s.must("sessions.unsubscribe", nil); got["subscribed"] != false {
		t.Errorf("the answer is %v", got)
	}
	b.fakeBackend.proceed()
	other.next(chatState("mine", "final"))
	other.must("chat.send", send("other", "hello", "theirs"))
	other.next(chatState("theirs", "final"))
	got := 0
	s.request("last", "agents.list", nil)
	for f := s.read(); f.ID != "last"; f = s.read() {
		if f.Event == "chat" || f.Event == "agent" || f.Event == "sessions.changed" {
			got++
		}
	}
	if got != 0 {
		t.Errorf("%d events of sessions came after it", got)
	}
	s.must("chat.send", send("next", "hello", "next"))
	s.next(chatState("next", "final"))
}

func TestASessionHasWhetherTheCallerMayResetIt(t *testing.T) {
	t.Parallel()
	b := start(t)
	admin, writer, reader := b.login(adminToken), b.login(writeToken), b.login(readToken)
	admin.must("chat.send", send("agent:main:theirs", "hello", "r1"))
	writer.must("chat.send", send("agent:main:mine", "hello", "r2"))
	for name, c := range map[string]struct {
		s    *socket
		want map[string]bool
	}{
		"admin":  {admin, map[string]bool{"agent:main:theirs": true, "agent:main:mine": true, "agent:main:none": true}},
		"writer": {writer, map[string]bool{"agent:main:theirs": false, "agent:main:mine": true, "agent:main:none": true}},
		"reader": {reader, map[string]bool{"agent:main:theirs": false, "agent:main:mine": false, "agent:main:none": false}},
	} {
		for key, want := range c.want {
			if got := c.s.must("chat.history", params{"sessionKey": key})["sessionInfo"].(params)["mayReset"]; got != want {
				t.Errorf("chat.history of %s as %s: mayReset %v, want %v", key, name, got, want)
			}
			if row, ok := c.s.must("sessions.describe", params{"key": key})["session"].(params); ok && row["mayReset"] != want {
				t.Errorf("sessions.describe of %s as %s: mayReset %v, want %v", key, name, row["mayReset"], want)
			}
		}
		for _, row := range c.s.must("sessions.list", nil)["sessions"].([]any) {
			if key := row.(params)["key"].(string); row.(params)["mayReset"] != c.want[key] {
				t.Errorf("sessions.list as %s: %v, want mayReset %v", name, row, c.want[key])
			}
		}
	}
}
