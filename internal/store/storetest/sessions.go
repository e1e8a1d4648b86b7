package storetest

import (
	"fmt"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func sessionTests() []test {
	return []test{
		{"OnlyTheOwnerSeesASession", onlyTheOwnerSees},
		{"ListIsNewestFirst", listIsNewestFirst},
		{"ListByLastMessage", listByLastMessage},
		{"ListPages", listPages},
		{"TotalsStopAtTheirBound", totalsStop},
		{"ListFilters", listFilters},
		{"ListLeavesOutRunsOfJobsAndSubTurns", listWithoutRuns},
		{"NamedSessionsAreCounted", namedSessionsAreCounted},
		{"SearchTakesSignsLiterally", searchTakesSignsLiterally},
		{"SearchFoldsTheCaseOfAllLetters", searchFoldsTheCase},
		{"ModeIsStored", modeIsStored},
		{"NotesAreStored", notesAreStored},
		{"ASessionIsGivenOnce", sessionIsGivenOnce},
		{"DeleteRemovesTheSession", deleteRemoves},
		{"DeletedNameStartsAfresh", deletedNameStartsAfresh},
		{"DeleteRefuses", deleteRefuses},
	}
}

func (w *world) list(f store.SessionFilter) ([]string, int) {
	w.Helper()
	list, total, err := w.st.ListSessions(w.ctx, f)
	w.ok(err)
	var names []string
	for _, s := range list {
		names = append(names, s.Key.Rest)
	}
	return names, total
}

// rooms creates sessions with these names, one second apart.
func (w *world) rooms(node, agent, principal string, names ...string) {
	w.Helper()
	for _, name := range names {
		w.clock.advance(time.Second)
		p := w.message(node, chat.SessionKey{Agent: agent, Rest: name})
		p.Message.Principal = principal
		w.accept(p)
	}
}

func namedSessionsAreCounted(w *world) {
	node := w.node()
	names := []string{
		"main", "work", "Main", "api:0b6c1f7e", "api:ann:phone", "API:x", "api", "cron:job:manual-1", "cron:job", "Cron:job:1", "hook:ci", "telegram:direct:7",
		"a:api:x", "a:cron:b:c", "api:", "100%", "a_b*?[c]",
	}
	w.rooms(node, "main", "ann", names...)
	w.rooms(node, "other-agent", "ann", "main", "work", "api:1")
	w.rooms(node, "main", "bob", "bobs")
	want := []string{"work"} // of the other agent
	for _, name := range slices.Backward(names) {
		if (chat.SessionKey{Agent: "main", Rest: name}).Named() {
			want = append(want, name)
		}
	}
	for principal, want := range map[string][]string{"ann": want, "bob": {"bobs"}, "carol": nil} {
		list, n := w.list(store.SessionFilter{Visible: principal, Named: true})
		equal(w, "named sessions of "+principal, list, want)
		equal(w, "their number", n, len(want))
	}
	equal(w, "named", len(want), 14)
}

func onlyTheOwnerSees(w *world) {
	node, key := w.node(), w.key()
	w.acceptText(node, key)
	s := try(w.st.Session(w.ctx, key, "ann")).ok(w)
	equal(w, "session", s, w.session(key))
	try(w.st.Session(w.ctx, key, "bob")).fails(w, chat.ErrSessionNotFound)
}

func listWithoutRuns(w *world) {
	node := w.node()
	w.rooms(node, "main", "ann", "room", "cron:019c2a7e:schedule-1803974400000", "cron:tea", "cron:019c2a7e:buffered", "cron", "x:cron:y:z", "task:0b6c1f7e", "x:task:y", "task")
	names, total := w.list(store.SessionFilter{NoRuns: true})
	equal(w, "names", names, []string{"task", "x:task:y", "x:cron:y:z", "cron", "cron:tea", "room"})
	equal(w, "total", total, 6)
	names, total = w.list(store.SessionFilter{NoRuns: true, Search: "CRON:", Limit: 1})
	equal(w, "found", names, []string{"x:cron:y:z"})
	equal(w, "total found", total, 2)
	_, total = w.list(store.SessionFilter{})
	equal(w, "all", total, 9)
}

func listIsNewestFirst(w *world) {
	node := w.node()
	w.rooms(node, "main", "ann", "a", "b", "c")
	names, total := w.list(store.SessionFilter{})
	equal(w, "names", names, []string{"c", "b", "a"})
	equal(w, "total", total, 3)
	list, _, err := w.st.ListSessions(w.ctx, store.SessionFilter{Limit: 1})
	w.ok(err)
	equal(w, "row", list[0], w.session(chat.SessionKey{Agent: "main", Rest: "c"}))
}

func listByLastMessage(w *world) {
	node := w.node()
	w.rooms(node, "main", "ann", "a", "b", "c", "a")
	w.clock.advance(time.Second)
	w.ok(w.st.SetSession(w.ctx, chat.SessionKey{Agent: "main", Rest: "b"}, "ann", store.SessionSettings{Notes: map[string]string{"x": "y"}}))
	names, _ := w.list(store.SessionFilter{ByLastMessage: true})
	equal(w, "names", names, []string{"a", "c", "b"})
}

func listPages(w *world) {
	node := w.node()
	var want []string
	for i := range 60 {
		name := fmt.Sprintf("room%02d", i)
		w.rooms(node, "main", "ann", name)
		w.beat(node)
		want = append([]string{name}, want...)
	}
	names, total := w.list(store.SessionFilter{})
	equal(w, "default page", names, want[:50])
	equal(w, "total", total, 60)
	names, total = w.list(store.SessionFilter{Limit: 7, Offset: 55})
	equal(w, "last page", names, want[55:])
	equal(w, "total", total, 60)
	names, total = w.list(store.SessionFilter{Limit: 7, Offset: 99})
	equal(w, "after the end", len(names), 0)
	equal(w, "total after the end", total, 60)
}

// A total counts as far as it was asked for, and at least one session further than the page.
func totalsStop(w *world) {
	node := w.node()
	for i := range 12 {
		w.rooms(node, "main", "ann", fmt.Sprintf("room%02d", i))
		w.beat(node)
	}
	for _, search := range []string{"", "room"} {
		for _, c := range []struct{ limit, offset, count, want int }{{1, 0, 4, 5}, {3, 4, 4, 8}, {3, 9, 4, 12}, {1, 0, 0, 12}, {1, 0, 12, 12}, {1, 0, 11, 12}} {
			_, total := w.list(store.SessionFilter{Search: search, Limit: c.limit, Offset: c.offset, Count: c.count})
			equal(w, fmt.Sprintf("total of %+v, search %q", c, search), total, c.want)
		}
	}
}

func listFilters(w *world) {
	node := w.node()
	w.rooms(node, "main", "ann", "alpha", "beta")
	w.rooms(node, "main", "bob", "gamma")
	w.rooms(node, "other", "ann", "alpha2")
	w.clock.advance(time.Hour)
	since := w.clock.now()
	w.rooms(w.node(), "main", "ann", "recent")
	for _, tt := range []struct {
		what string
		f    store.SessionFilter
		want []string
	}{
		{"visible", store.SessionFilter{Visible: "bob"}, []string{"gamma"}},
		{"visible to another principal", store.SessionFilter{Visible: "eve"}, nil},
		{"agent", store.SessionFilter{Agent: "other"}, []string{"alpha2"}},
		{"search", store.SessionFilter{Search: "alpha"}, []string{"alpha2", "alpha"}},
		{"search and agent", store.SessionFilter{Search: "alpha", Agent: "main"}, []string{"alpha"}},
		{"active since", store.SessionFilter{ActiveSince: since}, []string{"recent"}},
		{"nothing", store.SessionFilter{Search: "nowhere"}, nil},
	} {
		names, total := w.list(tt.f)
		equal(w, tt.what, names, tt.want)
		equal(w, "total of "+tt.what, total, len(tt.want))
	}
}

func searchTakesSignsLiterally(w *world) {
	node := w.node()
	w.rooms(node, "main", "ann", "x100%y", "x100zy", "a_b", "acb", `c\d`, "it's")
	for search, want := range map[string]string{"100%": "x100%y", "a_b": "a_b", `c\d`: `c\d`, "it's": "it's"} {
		names, total := w.list(store.SessionFilter{Search: search})
		equal(w, "search for "+search, names, []string{want})
		equal(w, "total", total, 1)
	}
}

func searchFoldsTheCase(w *world) {
	w.rooms(w.node(), "main", "ann", "Ärger", "ärgern", "aerger")
	names, total := w.list(store.SessionFilter{Search: "ÄRGER"})
	equal(w, "names", names, []string{"ärgern", "Ärger"})
	equal(w, "total", total, 2)
}

func modeIsStored(w *world) {
	node, key := w.node(), w.key()
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Mode: new(chat.ModeInterrupt)}))
	s := w.session(key)
	equal(w, "mode and principal", []any{s.Mode, s.Principal}, []any{chat.ModeInterrupt, "ann"})
	_, a := w.acceptText(node, key)
	equal(w, "mode at the accept", a.Mode, chat.ModeInterrupt)
	equal(w, "created by the message", a.Created, false)
	w.ok(w.st.SetSession(w.ctx, key, "bob", store.SessionSettings{Mode: new(chat.QueueMode(""))}))
	s = w.session(key)
	equal(w, "mode and principal", []any{s.Mode, s.Principal}, []any{chat.QueueMode(""), "ann"})
}

func sessionIsGivenOnce(w *world) {
	node, key := w.node(), w.key()
	w.ok(w.st.GiveSession(w.ctx, key, "", "eve"))
	try(w.st.Session(w.ctx, key, "")).fails(w, chat.ErrSessionNotFound)
	w.acceptText(node, key)
	maker := w.session(key).Principal
	w.ok(w.st.GiveSession(w.ctx, key, "carol", "eve"))
	equal(w, "owner after a gift of another principal", w.session(key).Principal, maker)
	w.ok(w.st.GiveSession(w.ctx, key, maker, "eve"))
	w.ok(w.st.GiveSession(w.ctx, key, maker, "bob"))
	equal(w, "owner", w.session(key).Principal, "eve")
	p := w.message(node, key)
	p.Own, p.Message.Principal = true, maker
	try(w.st.Accept(w.ctx, p)).fails(w, chat.ErrSessionNotFound)
	p.Message.Principal = "eve"
	equal(w, "owner at the accept", w.accept(p).Principal, "eve")
}

func notesAreStored(w *world) {
	key := w.key()
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Mode: new(chat.ModeSteer), Notes: map[string]string{"model": "large"}}))
	w.ok(w.st.SetSession(w.ctx, key, "bob", store.SessionSettings{Notes: map[string]string{"it's \"quoted\" {}": "ünï\ncode"}}))
	s := w.session(key)
	equal(w, "notes", s.Notes, map[string]string{"model": "large", "it's \"quoted\" {}": "ünï\ncode"})
	equal(w, "mode and principal", []any{s.Mode, s.Principal}, []any{chat.ModeSteer, "ann"})
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"model": "small"}}))
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"it's \"quoted\" {}": ""}}))
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"never there": ""}}))
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Mode: new(chat.ModeCollect)}))
	equal(w, "notes", w.session(key).Notes, map[string]string{"model": "small"})
}

func deleteRemoves(w *world) {
	node, key := w.node(), w.key()
	w.write(key, 1, 2)
	old := w.session(key).SessionID
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "second"})).ok(w)
	w.write(key, 3, 1)
	waiting, _ := w.acceptText(node, key)
	held := w.message(node, key)
	typed(&held, time.Minute)
	w.accept(held)
	deleted := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, ExpectID: "second"})).ok(w)
	equal(w, "deleted", []any{deleted.Deleted, deleted.Kept, idsOf(deleted.Ended)}, []any{true, "", []string{waiting, held.Message.ID}})
	try(w.st.Session(w.ctx, key, "")).fails(w, chat.ErrSessionNotFound)
	for _, id := range []string{"", old, "second"} {
		tr := w.transcript(store.TranscriptQuery{Session: key, SessionID: id})
		equal(w, "entries", len(tr.Entries)+tr.Total, 0)
	}
	w.ended(waiting, chat.OutcomeStopped)
	w.ended(held.Message.ID, chat.OutcomeStopped)
	names, total := w.list(store.SessionFilter{})
	equal(w, "listed", len(names)+total, 0)
	equal(w, "unfinished", w.unfinished(), 0)
	deleted = try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	equal(w, "deleted again", deleted, store.Deleted{})
}

// deletedNameStartsAfresh also checks what the invariants require about runs of the deleted
// session: they stay in the table, so sequence numbers and epochs continue.
func deletedNameStartsAfresh(w *world) {
	node, key := w.node(), w.key()
	for range 3 { // epochs 1 to 3
		c, run, _ := w.turn(node, key)
		w.finish(answered(c, run))
	}
	w.write(key, 1, 2)
	archived := w.session(key).SessionID
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: w.id("transcript")})).ok(w)
	w.write(key, 3, 1)
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"model": "large"}}))
	old := w.message(node, key)
	before := w.accept(old)
	deleted := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	equal(w, "deleted", []any{deleted.Deleted, deleted.Kept, idsOf(deleted.Ended)}, []any{true, "", []string{old.Message.ID}})
	p := w.message(node, key)
	p.Message.Principal = "bob"
	a := w.accept(p)
	if !a.Created || a.Principal != "bob" || a.SessionID == before.SessionID || !a.Mine {
		w.Fatalf("a session of a deleted name: %+v", a)
	}
	s := w.session(key)
	equal(w, "notes", len(s.Notes), 0)
	for _, id := range []string{"", archived, before.SessionID} {
		equal(w, "entries", len(w.transcript(store.TranscriptQuery{Session: key, SessionID: id}).Entries), 0)
	}
	c := claimOf(key, a)
	w.start(c, p.Message.ID, a.Seq)
	w.finish(answered(c, p.Message.ID))
	w.checkInvariants("after a turn of the new session")
	if again := w.accept(old); !again.Duplicate {
		w.Fatalf("a message of the deleted session was accepted again: %+v", again)
	}
}

func deleteRefuses(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).fails(w, chat.ErrConflict)
	equal(w, "state", w.run(run).State, store.RunRunning)
	w.finish(answered(c, run))
	waiting, _ := w.acceptText(node, key)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, ExpectID: "another"})).fails(w, chat.ErrConflict)
	equal(w, "state", w.row(waiting).State, store.StateWaiting)
}

func agentSessionTests() []test {
	return []test{
		{"OutlivesTheProcessAndIsReplaced", agentSessionIsKept},
		{"EndsWithItsTranscript", agentSessionEndsWithReset},
		{"OfADeletedConversationIsNotStored", agentSessionOfDeleted},
	}
}

func (w *world) agentSession(key chat.SessionKey) chat.AgentSession {
	w.Helper()
	return try(w.st.AgentSession(w.ctx, key)).ok(w)
}

func agentSessionIsKept(w *world) {
	key, other := w.key(), w.key()
	w.write(key, 1, 1)
	w.write(other, 1, 1)
	equal(w, "before", w.agentSession(key), chat.AgentSession{})
	used := chat.Usage{InputTokens: 30, OutputTokens: 4, CachedTokens: 20}
	first := chat.AgentSession{ID: "a-1", Runs: []string{"run-1", "run-2"}, Seen: 7, Used: used, Dir: "/a", Host: "here", PID: 42, PIDStarted: "boot 99"}
	w.ok(w.st.PutAgentSession(w.ctx, key, first))
	w.st = w.h.Reopen()
	equal(w, "kept", w.agentSession(key), first)
	equal(w, "of another conversation", w.agentSession(other), chat.AgentSession{})
	second := chat.AgentSession{ID: "a-2", Runs: []string{"run-3"}, Seen: 9, Dir: "/b", Host: "there", PID: 43, PIDStarted: "boot 100"}
	w.ok(w.st.PutAgentSession(w.ctx, key, second))
	equal(w, "replaced", w.agentSession(key), second)
}

func agentSessionEndsWithReset(w *world) {
	key := w.key()
	w.write(key, 1, 1)
	old := chat.AgentSession{ID: "a-1", Runs: []string{"run-1"}}
	w.ok(w.st.PutAgentSession(w.ctx, key, old))
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "second"})).ok(w)
	equal(w, "after the reset", w.agentSession(key), chat.AgentSession{})
	w.ok(w.st.PutAgentSession(w.ctx, key, old)) // its last turn ends after the reset
	equal(w, "of the old transcript", w.agentSession(key), chat.AgentSession{})
	next := chat.AgentSession{ID: "a-2", Runs: []string{"run-2"}}
	w.ok(w.st.PutAgentSession(w.ctx, key, next))
	equal(w, "of the new transcript", w.agentSession(key), next)
}

func agentSessionOfDeleted(w *world) {
	key := w.key()
	w.write(key, 1, 1)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	w.ok(w.st.PutAgentSession(w.ctx, key, chat.AgentSession{ID: "a-1"}))
	equal(w, "rows", len(w.h.Query(w.tb, `SELECT 1 FROM agent_sessions`)), 0)
}

func zoneTests() []test {
	return []test{
		{"AChoiceReplacesTheLastAndOutlivesTheProcess", func(w *world) {
			w.wantZone("ann", "")
			w.ok(w.st.SetZone(w.ctx, "ann", "Europe/Berlin"))
			w.ok(w.st.SetZone(w.ctx, "bob", "+02:00"))
			w.ok(w.st.SetZone(w.ctx, "ann", "Asia/Tokyo"))
			w.st = w.h.Reopen()
			w.wantZone("ann", "Asia/Tokyo")
			w.wantZone("bob", "+02:00")
		}},
		{"AChoiceIsTakenBack", func(w *world) {
			w.ok(w.st.SetZone(w.ctx, "ann", "Europe/Berlin"))
			for range 2 { // the second time none is left
				w.ok(w.st.SetZone(w.ctx, "ann", ""))
				w.wantZone("ann", "")
			}
		}},
	}
}

func (w *world) wantZone(principal, want string) {
	w.Helper()
	got := try(w.st.ZoneOf(w.ctx, principal)).ok(w)
	if got != want {
		w.Errorf("the zone of %s is %q, want %q", principal, got, want)
	}
}

func ratioTests() []test {
	return []test{
		{"ARatioIsReplacedAndOutlivesTheProcess", func(w *world) {
			list := try(w.st.TokenRatios(w.ctx)).ok(w)
			equal(w, "ratios", len(list), 0)
			w.ok(w.st.SaveTokenRatios(w.ctx, []store.TokenRatio{{Endpoint: "b", Model: "m", Permille: 500}, {Endpoint: "a", Model: "m", Permille: 2000}}))
			w.ok(w.st.SaveTokenRatios(w.ctx, []store.TokenRatio{{Endpoint: "b", Model: "m", Permille: 700}, {Endpoint: "b", Model: "n", Permille: 1000}}))
			w.st = w.h.Reopen()
			list = try(w.st.TokenRatios(w.ctx)).ok(w)
			equal(w, "ratios", list, []store.TokenRatio{
				{Endpoint: "a", Model: "m", Permille: 2000}, {Endpoint: "b", Model: "m", Permille: 700}, {Endpoint: "b", Model: "n", Permille: 1000},
			})
		}},
	}
}
