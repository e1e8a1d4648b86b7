package dispatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// bounds are small limits for callers of the gateway.
func bounds(turns, own, waiting int) option {
	return func(c *dispatch.Config) {
		c.UserTurns, c.OwnWaiting, c.CallerWaiting = turns, own, waiting
		c.SeesOwn = func(principal string) bool { return principal == "lab" }
	}
}

func lab() chat.Caller {
	return chat.Caller{Principal: "lab", Scopes: []string{"operator.write"}, Own: true}
}

// sendAs sends n messages of a caller to n sessions, and returns how many were accepted and the
// last refusal.
func (h *harness) sendAs(by chat.Caller, n int, text string, change ...func(*chat.Message)) (accepted int, refusal error) {
	h.t.Helper()
	for range n {
		m := h.msg(fmt.Sprintf("agent:main:%s-%d", by.Principal, h.n.Add(1)), text)
		for _, f := range change {
			f(&m)
		}
		if _, err := h.d.ReceiveFrom(h.t.Context(), m, by); err != nil {
			refusal = err
		} else {
			accepted++
		}
	}
	synctest.Wait()
	return accepted, refusal
}

func (h *harness) active(lane string) int {
	for _, l := range h.d.Lanes().Lanes {
		if l.Name == lane {
			return l.Active
		}
	}
	return -1
}

// Before, a credential that sees only its own data could choose another lane and a timeout of a
// day, and occupy all slots of both lanes.
func TestACallerThatSeesItsOwnTakesNoLaneForItself(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		began := time.Now()
		accepted, err := h.sendAs(lab(), 10, "sleep 23h", func(m *chat.Message) {
			m.Lane, m.Content.Options.TimeoutMs = "cron", (24 * time.Hour).Milliseconds()
		})
		want(t, "accepted", accepted, 10)
		want(t, "refused", err, nil)
		want(t, "turns in the lane that was asked for", h.active("cron"), 0)
		want(t, "turns in the lane main", h.active("main"), 3)
		h.sendAs(operator(), 1, "hello")
		if at := h.runner.began("hello"); !at.Equal(began) {
			t.Errorf("the operator's turn began at %s", at.Sub(began))
		}
		time.Sleep(dispatch.DefaultTimeout)
		synctest.Wait()
		want(t, "turns in the lane main after the time of the agent", h.active("main"), 3)
		want(t, "turns begun when the first have used up the time of the agent", len(h.runner.texts()), 3+1+3)
	}, lanes(8), bounds(3, 100, 0))
}

// A message above the limit of turns waits. A message above the limit of waiting messages is
// refused, but not that of another credential.
func TestWaitingMessagesOfACallerAreBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		by   chat.Caller
		want int // accepted
	}{
		{"sees its own", lab(), 2 + 5},
		{"hook", chat.Caller{Principal: "hook:ci"}, 2 + 5},
		{"sees all", operator(), 4 + 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			inDispatcher(t, func(t *testing.T, h *harness) {
				accepted, err := h.sendAs(c.by, 30, "sleep 1m")
				want(t, "accepted", accepted, c.want)
				var e *chat.Error
				if !errors.As(err, &e) || e.Code != chat.CodeRateLimited || !e.Retryable || e.RetryAfter <= 0 {
					t.Errorf("the refusal is %v", err)
				}
				other, err := h.sendAs(chat.Caller{Principal: "other", Scopes: c.by.Scopes}, 1, "hello")
				want(t, "messages of another credential", other, 1)
				want(t, "its refusal", err, nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				again, _ := h.sendAs(c.by, 1, "hello")
				want(t, "accepted when turns have ended", again, 1)
			}, lanes(4), bounds(2, 5, 9))
		})
	}
}

// After a restart, the principals of waiting messages come from their rows, and the named tokens
// show which of them see only their own data. Both count as before.
func TestMessagesTakenOverKeepTheirPrincipal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		h := open(t, st, lanes(4), bounds(2, 100, 0))
		h.sendAs(lab(), 8, "sleep 1h")
		want(t, "turns", h.active("main"), 2)
		h.work(errors.New("killed"))
		h.cancel()
		<-h.ended
		time.Sleep(time.Minute) // its lease ends
		next := open(t, st, lanes(4), bounds(2, 100, 0))
		next.n.Store(h.n.Load())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		want(t, "turns after the restart", next.active("main"), 2)
		accepted, err := next.sendAs(operator(), 1, "hello")
		want(t, "accepted", accepted, 1)
		want(t, "refused", err, nil)
		if next.runner.began("hello").IsZero() {
			t.Error("the operator's turn has not begun")
		}
		next.close()
	})
}

// A slot of a job is never refused for the number of waiting messages; a run by hand is refused
// like any other call.
func TestSlotsOfJobsAreNeverRefused(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		by := lab()
		by.Scopes = []string{"operator.admin"}
		var members cron.Members
		text := `{"name":"tick","schedule":{"kind":"every","everyMs":60000},"sessionTarget":"isolated","payload":{"kind":"agentTurn","message":"tick"}}`
		if err := json.Unmarshal([]byte(text), &members); err != nil {
			t.Fatal(err)
		}
		put, err := h.d.Jobs.Add(t.Context(), members, by, nil)
		if err != nil {
			t.Fatal(err)
		}
		accepted, _ := h.sendAs(by, 5, "sleep 9m")
		want(t, "accepted", accepted, 2)
		if _, _, err := h.d.Jobs.Start(t.Context(), put.Job.ID, cron.RunForce, by, nil); chat.CodeOf(err) != chat.CodeRateLimited {
			t.Errorf("a run by hand: %v", err)
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if n := len(h.runner.texts()); n < 2+11 {
			t.Errorf("%d turns in half an hour, want the two messages, and a slot a minute from the end of the second on", n)
		}
	}, lanes(4), bounds(1, 1, 0))
}

// Below the minimum of free space, a message from a caller or a channel is refused and can be sent
// again. Messages that were accepted before are processed.
func TestMessagesAreRefusedWhileTheDiskIsNearlyFull(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var low atomic.Bool
		h := open(t, newStore(t), func(c *dispatch.Config) {
			c.Space = func() error {
				if low.Load() {
					return errors.New("12 bytes are free")
				}
				return nil
			}
		})
		running := h.send("main", "sleep 1m")
		waiting := h.send("main", "hello")
		low.Store(true)
		refused := func(what string, err error) {
			t.Helper()
			var e *chat.Error
			if !errors.As(err, &e) || e.Code != chat.CodeStoreUnavailable || !e.Retryable || e.RetryAfter <= 0 || e.Details["check"] != "disk" {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := h.d.Receive(t.Context(), h.msg("main", "from a channel"))
		refused("a message of a channel", err)
		_, err = h.sendAs(operator(), 1, "from a caller")
		refused("a message of a caller", err)
		refused("a text for later", h.d.Defer(t.Context(), h.msg("main", "later"), operator()))
		var not *chat.NotReadyError
		if err := h.d.Ready(t.Context()); !errors.As(err, &not) || not.Check != chat.CheckDisk {
			t.Errorf("ready: %v", err)
		}
		want(t, "the status reports it", h.d.Status(t.Context()).DiskLow, true)
		want(t, "a command is executed", h.end(h.send("other", "/whoami")).Outcome, chat.OutcomeAnswered)
		want(t, "what ran", h.end(running).Outcome, chat.OutcomeAnswered)
		want(t, "what waited", h.end(waiting).Outcome, chat.OutcomeAnswered)
		low.Store(false)
		want(t, "ready again", h.d.Ready(t.Context()), nil)
		want(t, "a message", h.end(h.send("main", "hello again")).Outcome, chat.OutcomeAnswered)
		h.close()
	})
}

// The number of sessions that a caller may name is limited. Existing sessions, those that the
// gateway makes and those of other callers are not affected.
func TestNamedSessionsOfACallerAreBounded(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		for by, limit := range map[string]int{"lab": 3, "gateway": 5} {
			caller := chat.Caller{Principal: by, Scopes: []string{"operator.admin"}, Own: by == "lab"}
			accepted, err := h.sendAs(caller, 9, "hello")
			want(t, by+" may make", accepted, limit)
			var e *chat.Error
			if !errors.As(err, &e) || e.Code != chat.CodeLimit || e.Details["field"] != "sessionKey" || e.Details["limit"] != limit {
				t.Errorf("%s: %v", by, err)
			}
			if err := h.d.Defer(t.Context(), h.msg("agent:main:later-"+by, "later"), caller); chat.CodeOf(err) != chat.CodeLimit {
				t.Errorf("%s, a text for later: %v", by, err)
			}
		}
		list, _, err := h.st.ListSessions(t.Context(), store.SessionFilter{Visible: "lab"})
		if err != nil || len(list) != 3 {
			t.Fatalf("%d sessions, %v", len(list), err)
		}
		again := h.msg(list[0].Key.String(), "again")
		if _, err := h.d.ReceiveFrom(t.Context(), again, lab()); err != nil {
			t.Errorf("a session that exists: %v", err)
		}
		if _, err := h.d.ReceiveFrom(t.Context(), h.msg("main", "hello"), operator()); err != nil {
			t.Errorf("the main session: %v", err)
		}
		synctest.Wait()
		if _, err := h.d.Delete(t.Context(), store.DeleteParams{Session: list[1].Key}, lab()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		accepted, _ := h.sendAs(lab(), 3, "hello")
		want(t, "sessions after one was deleted", accepted, 1)
	}, bounds(10, 0, 0), func(c *dispatch.Config) { c.OwnSessions, c.CallerSessions = 3, 5 })
}

// A response that is continued repeatedly makes a session each time.
func TestBranchesCountAmongTheSessionsOfTheirCaller(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		home := chat.SessionKey{Agent: "main", Rest: "api:" + uuid.NewString()}
		run := h.send(home.String(), "hello")
		h.end(run)
		at, err := h.d.BranchAt(t.Context(), home, run)
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := h.sendAs(lab(), 5, "again", func(m *chat.Message) {
			m.Session, m.Branch = chat.SessionKey{Agent: "main", Rest: "api:" + uuid.NewString()}, &at
		})
		want(t, "branches", accepted, 3)
		if chat.CodeOf(err) != chat.CodeLimit {
			t.Errorf("the fourth: %v", err)
		}
	}, bounds(10, 0, 0), func(c *dispatch.Config) { c.OwnSessions = 3 })
}

func TestPassingSessionIsDeletedWithinAMinute(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		kept, passing := chat.SessionKey{Agent: "main", Rest: "api:a"}, chat.SessionKey{Agent: "main", Rest: chat.PassingName("a")}
		h.end(h.send(kept.String(), "hello"))
		long := h.send(passing.String(), "sleep 5m")
		after(4 * time.Minute)
		if _, err := h.d.Place(t.Context(), long); err != nil {
			t.Errorf("while it runs: %v", err)
		}
		h.end(long)
		if end := h.end(long); end.Text == "" {
			t.Error("directly after its end a caller reads no text")
		}
		after(time.Minute)
		if _, err := h.st.Session(t.Context(), passing, ""); !errors.Is(err, chat.ErrSessionNotFound) {
			t.Errorf("a minute after its end: %v, want no such session", err)
		}
		if tr, err := h.st.Transcript(t.Context(), store.TranscriptQuery{Session: passing}); err != nil || len(tr.Entries) != 0 {
			t.Errorf("a minute after its end there are %d entries, %v", len(tr.Entries), err)
		}
		if r, err := h.st.RunByID(t.Context(), long); err != nil || r.State != store.RunOK {
			t.Errorf("the run is %+v, %v", r, err)
		}
		if _, err := h.st.Session(t.Context(), kept, ""); err != nil {
			t.Errorf("the other session: %v", err)
		}
	}, bounds(10, 0, 0))
}

func TestOnlyARunThatIsItsWholeSessionIsDeleted(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		by := chat.Caller{Principal: "tester", Scopes: []string{chat.ScopeWrite}}
		remove := func(run string, by chat.Caller) (bool, error) {
			at, err := h.d.Place(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			return h.d.DeleteWhole(t.Context(), at, by)
		}
		begin := func(texts ...string) (key chat.SessionKey, run string) {
			key = chat.SessionKey{Agent: "main", Rest: "api:" + uuid.NewString()}
			for _, text := range texts {
				run = h.send(key.String(), text)
				h.end(run)
			}
			return key, run
		}
		_, second := begin("one", "two")
		noted, withNote := begin("one")
		if _, err := h.d.AppendReply(t.Context(), noted, chat.Reply{ID: uuid.NewString(), Text: "a note", Principal: "tester"}); err != nil {
			t.Fatal(err)
		}
		for name, run := range map[string]string{"after another message": second, "before a note": withNote} {
			if did, err := remove(run, by); did || err != nil {
				t.Errorf("%s: %t, %v, want no deletion", name, did, err)
			}
		}
		_, alone := begin("one")
		if did, err := remove(alone, chat.Caller{Principal: "other", Scopes: by.Scopes}); did || chat.CodeOf(err) != chat.CodeForbidden {
			t.Errorf("another's: %t, %v, want forbidden", did, err)
		}
		if did, err := remove(alone, by); !did || err != nil {
			t.Errorf("a whole session: %t, %v", did, err)
		}
		if _, err := h.d.Place(t.Context(), alone); !errors.Is(err, chat.ErrNotFound) {
			t.Errorf("after the deletion: %v, want no such run", err)
		}
	}, bounds(10, 0, 0))
}

// A chain of branches has a maximum length. The last session has all entries of the conversation.
func TestAConversationBranchesABoundedNumberOfTimes(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		home := chat.SessionKey{Agent: "main", Rest: "api:" + uuid.NewString()}
		run := h.send(home.String(), "hello")
		h.end(run)
		for i := range chat.MaxBranches {
			at, err := h.d.BranchAt(t.Context(), home, run)
			if err != nil {
				t.Fatalf("branch %d: %v", i, err)
			}
			home = chat.SessionKey{Agent: "main", Rest: "api:" + uuid.NewString()}
			run = h.send(home.String(), "more", func(m *chat.Message) { m.Branch = &at })
			h.end(run)
		}
		if _, err := h.d.BranchAt(t.Context(), home, run); chat.CodeOf(err) != chat.CodeLimit {
			t.Errorf("one more: %v", err)
		}
		tr, err := h.d.Transcript(t.Context(), store.TranscriptQuery{Session: home, Limit: 1000})
		if err != nil || len(tr.Entries) != 2*(chat.MaxBranches+1) {
			t.Errorf("%d entries, %v, want %d", len(tr.Entries), err, 2*(chat.MaxBranches+1))
		}
	})
}

// One backfill makes up to 1,000 runs. Before, a credential that sees only its own data could have
// any number of them waiting, and its runs filled the lane for minutes.
func TestABackfillCountsAmongTheWaitingMessagesOfItsCaller(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		by := lab()
		by.Scopes = []string{"operator.admin"}
		h.put(everySecond("tick", "sleep 2s"), func(j *cron.Job) { j.Owner, j.Schedule.EveryMs, j.Enabled = by.Principal, 60_000, false })
		now := time.Now().Truncate(time.Hour)
		backfill := func(from, to time.Duration, spend func(int) error) error {
			_, err := h.d.Jobs.Backfill(t.Context(), cron.BackfillParams{
				ID: "tick", From: now.Add(-from), To: now.Add(-to), MaxRuns: 100, Spend: spend,
			}, by)
			return err
		}
		broke := errors.New("no allowance")
		bytes := 0
		err := backfill(time.Hour, 50*time.Minute, func(n int) error { bytes = n; return broke })
		if !errors.Is(err, broke) || len(h.runs("tick")) != 0 {
			t.Errorf("a backfill without an allowance: %v, and %d runs", err, len(h.runs("tick")))
		}
		want(t, "bytes of 11 runs", bytes, 11*len("sleep 2s"))
		want(t, "a backfill of more runs than may wait, when none does", backfill(time.Hour, 50*time.Minute, nil), nil)
		want(t, "runs", len(h.runs("tick")), 11)
		var refused *chat.Error
		if err := backfill(2*time.Hour, 119*time.Minute, nil); !errors.As(err, &refused) || refused.Code != chat.CodeRateLimited || !refused.Retryable {
			t.Errorf("another while they wait: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "another when they have ended", backfill(2*time.Hour, 119*time.Minute, nil), nil)
	}, lanes(4), bounds(1, 5, 0))
}

// While the sender has the maximum number of waiting messages, the test repeats an accepted message
// and sends one that reuses a key. The repetition returns the existing message, the reused key is
// refused as such, and a new message is refused by the limit.
func TestARepeatedMessageIsAnsweredAtTheBoundOfItsSender(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		messages := make([]chat.Message, 3)
		for i := range messages {
			messages[i] = h.msg("agent:main:lab-"+string(rune('a'+i)), "sleep 1h")
			messages[i].Dedupe, messages[i].ParamsHash = "lab/"+messages[i].ID, "hash"
			if _, err := h.d.ReceiveFrom(t.Context(), messages[i], lab()); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range messages {
			again, err := h.d.ReceiveFrom(t.Context(), m, lab())
			if err != nil {
				t.Errorf("a repetition is refused: %v", err)
			}
			want(t, "duplicate", again.Duplicate, true)
			want(t, "run", again.RunID, m.ID)
			m.ParamsHash = "another"
			if _, err := h.d.ReceiveFrom(t.Context(), m, lab()); !errors.Is(err, chat.ErrKeyReused) {
				t.Errorf("another message under the key: %v, want %v", err, chat.ErrKeyReused)
			}
		}
		_, err := h.sendAs(lab(), 1, "hello")
		var refused *chat.Error
		if !errors.As(err, &refused) || refused.Code != chat.CodeRateLimited {
			t.Errorf("a new message at the bound: %v, want %s", err, chat.CodeRateLimited)
		}
	}, lanes(8), bounds(1, 2, 0))
}

// The test holds a gateway that has a message to send, and releases it.
func TestAHeldGatewayIsForAdministrators(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "laneway.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		by := store.ChangedBy{Who: "cli"}
		if err := db.SetHold(t.Context(), &store.Hold{Who: "ann", Reason: "a test"}, by); err != nil {
			t.Fatal(err)
		}
		if err := db.Enqueue(t.Context(), []store.Outgoing{{Kind: store.KindNotice, Text: "old", Count: 1, Target: chat.Target{Channel: "box", ChatID: "7"}}}); err != nil {
			t.Fatal(err)
		}
		h := open(t, db)
		defer h.close()
		lease := func() bool {
			ok, err := h.d.Lease(t.Context(), "telegram:1")
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		time.Sleep(time.Minute)
		want(t, "a channel may poll", lease(), false)
		want(t, "sent", len(h.box.texts("7")), 0)
		_, err = h.d.Receive(t.Context(), h.msg("agent:main:box:direct:7", "hello"))
		want(t, "a message of a channel is refused", errors.Is(err, chat.ErrStoreUnavailable), true)
		_, err = h.d.ReceiveFrom(t.Context(), h.msg("main", "hello"), chat.Caller{Principal: "ci", Scopes: []string{chat.ScopeWrite}})
		want(t, "a message of a client is refused", errors.Is(err, chat.ErrStoreUnavailable), true)
		m := h.msg("main", "hello")
		if _, err := h.d.ReceiveFrom(t.Context(), m, chat.Caller{Principal: "gateway", Scopes: []string{chat.ScopeAdmin}}); err != nil {
			t.Fatal(err)
		}
		want(t, "an administrator gets an answer", h.end(m.ID).Outcome, chat.OutcomeAnswered)
		want(t, "the status says it", h.d.Status(t.Context()).Held != "", true)
		if err := db.SetHold(t.Context(), nil, by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "a channel may poll after the release", lease(), true)
		wantList(t, "sent after the release", h.box.texts("7"), []string{"old"})
		want(t, "the status after the release", h.d.Status(t.Context()).Held, "")
	})
}
