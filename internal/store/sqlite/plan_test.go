package sqlite

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/storetest"
)

// TestNoStatementReadsTheWholeHistory checks the plan of every statement that the store has
// prepared while all its operations ran: none may scan a table that grows with history, except by
// an index of unfinished work.
func TestNoStatementReadsTheWholeHistory(t *testing.T) {
	t.Parallel()
	clock := time.UnixMilli(1_700_000_000_000)
	s := openAt(t, migrated(t), func() time.Time { return clock })
	ofDeletion := everything(t, s, &clock)
	everythingOfCron(t, s, &clock)
	everythingOfTasks(t, s)
	if _, err := s.Upkeep(t.Context()); err != nil { // it must not change the plans for the worse
		t.Fatal(err)
	}
	texts := prepared(t, s)
	const atLeast = 100
	if len(texts) < atLeast {
		t.Fatalf("only %d statements were prepared, want at least %d: the scenario misses operations", len(texts), atLeast)
	}
	// A whole table, or all history of a session.
	history := regexp.MustCompile(`^SCAN (i|b|r|runs|inbox|outbox|transcript|cron_run_logs|audit_log)\b|^SEARCH (i|inbox|runs)\b.* \(session_key=\?\)$`)
	bounded := regexp.MustCompile(`USING (COVERING )?INDEX (inbox_unfinished|inbox_principal|inbox_tasks|inbox_task_times|runs_open|outbox_open|outbox_failed|outbox_maybe_sent|cron_runs_active|cron_runs_retry)`)
	compiledAgain := regexp.MustCompile(`(?i)\bLIMIT\s+[?:@$]`) // by SQLite after each binding
	db := outside(t, s.path)
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		if compiledAgain.MatchString(text) {
			t.Errorf("%s\nis compiled for each use: write LIMIT +?", text)
		}
		if !strings.Contains(text, "SELECT") && !strings.Contains(text, "UPDATE") && !strings.Contains(text, "DELETE") {
			continue
		}
		for _, step := range storetest.Query(t, db, "EXPLAIN QUERY PLAN "+text, make([]any, 64)...) {
			detail := fmt.Sprint(step[3])
			if strings.HasPrefix(detail, "SEARCH") && ofDeletion[text] {
				continue
			}
			if history.MatchString(detail) && !bounded.MatchString(detail) {
				t.Errorf("%s\nplan: %s", text, detail)
			}
			if strings.Contains(detail, " cron_jobs") && strings.Contains(text, "paused_until IS NOT NULL") && !strings.Contains(detail, "cron_jobs_due") {
				t.Errorf("%s\nplan: %s: want the index of what may become due", text, detail)
			}
		}
	}
}

// prepared are the cached statements of the store's connections.
func prepared(t *testing.T, s *Store) map[string]bool {
	t.Helper()
	texts := map[string]bool{}
	add := func(c *conn) {
		for _, text := range reflect.ValueOf(c.db).Elem().FieldByName("stmts").MapKeys() {
			texts[text.String()] = true
		}
	}
	err := s.write.do(t.Context(), ordinary("look"), func(_ context.Context, x *tx) error {
		add(x.conn)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range cap(s.read.slots) {
		c := <-s.read.slots
		if c != nil {
			add(c)
		}
		s.read.slots <- c
	}
	return texts
}

// everything calls every operation of the port at least once. It returns the statements of a
// deletion, which may read the whole history of its session, because it removes it.
func everything(t *testing.T, s *Store, clock *time.Time) (ofDeletion map[string]bool) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Register(ctx, store.Node{ID: "first", Exclusive: true}))
	notice := &store.Outgoing{Kind: store.KindNotice, Coalesce: "dropped", Target: chat.Target{Channel: "telegram:1", ChatID: "1"}}
	lease, _, err := s.AcquireLease(ctx, "telegram:1", "first")
	must(err)
	accept := func(node, id string) store.Accepted {
		t.Helper()
		p := message(node, "room", id)
		p.Queue.Cap, p.DropNotice = 2, notice
		a, err := s.Accept(ctx, p)
		must(err)
		return a
	}
	a := accept("first", "a")
	accept("first", "a")
	key := chat.SessionKey{Agent: "main", Rest: "room"}
	claim := store.Claim{Session: key, Node: "first", Epoch: a.Epoch}
	entries := []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "hello"}}
	start := store.StartParams{Claim: claim, RunID: "a", Lane: "main", Seqs: []int64{1}, Transcript: entries}
	for range 2 {
		_, err = s.Start(ctx, start)
		must(err)
	}
	for _, id := range []string{"b", "c", "d", "e", "f"} {
		accept("second", id)
	}
	for _, sessions := range [][]chat.SessionKey{nil, {key}} {
		_, err = s.Fronts(ctx, store.FrontsParams{Node: "first", Sessions: sessions, Limit: 10})
		must(err)
	}
	start.Seqs = []int64{5}
	_, err = s.Join(ctx, start)
	must(err)
	_, err = s.Finish(ctx, store.FinishParams{
		Claim: claim, RunID: "a", State: store.RunOK, Outcome: chat.OutcomeAnswered, Transcript: entries,
		Outgoing: []store.Outgoing{{Kind: store.KindReply, Target: chat.Target{Channel: "telegram:1", ChatID: "1"}}},
	})
	must(err)
	_, err = s.Start(ctx, store.StartParams{Claim: claim, RunID: "f", Lane: "main", Seqs: []int64{6}})
	must(err)
	for _, scope := range []store.StopScope{store.StopOne, store.StopRun, store.StopAll} {
		_, err = s.Stop(ctx, store.StopParams{Session: key, Scope: scope, MessageID: "f", By: "ann"})
		must(err)
	}
	_, err = s.Heartbeat(ctx, "first", false)
	must(err)
	_, err = s.Finish(ctx, store.FinishParams{Claim: claim, RunID: "f", State: store.RunInterrupted, Requeue: true})
	must(err)
	*clock = clock.Add(time.Minute)
	must(s.Register(ctx, store.Node{ID: "second"}))
	taken, err := s.Sweep(ctx, store.SweepParams{Node: "second", Limit: 10})
	must(err)
	if len(taken) != 1 {
		t.Fatalf("took %d sessions, want 1", len(taken))
	}
	claim.Node, claim.Epoch = "second", claim.Epoch+1
	_, err = s.Start(ctx, store.StartParams{Claim: claim, RunID: "f", Lane: "main", Seqs: []int64{6}})
	must(err)
	_, err = s.Finish(ctx, store.FinishParams{Claim: claim, RunID: "f", State: store.RunStopped, Outcome: chat.OutcomeStopped, StillRunning: true})
	must(err)
	must(s.EndStopping(ctx, claim, "f"))
	accept("second", "g")
	_, err = s.EndWaiting(ctx, store.EndParams{Session: key, Seqs: []int64{7}, Outcome: chat.OutcomeStale, Notice: notice})
	must(err)
	must(s.Enqueue(ctx, []store.Outgoing{{ID: "x", Target: chat.Target{Channel: "web", ChatID: "2"}}, {ID: "y", Target: chat.Target{Channel: "web", ChatID: "3"}}}))
	out, err := s.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: "second", Channels: []string{"telegram:1", "web"}, Limit: 10})
	must(err)
	if len(out) != 3 {
		t.Fatalf("claimed %d outgoing messages, want 3", len(out))
	}
	_, err = s.Delivered(ctx, store.DeliveredParams{Node: "second", ID: "x", ProviderID: "17"})
	must(err)
	_, err = s.Undelivered(ctx, store.UndeliveredParams{Node: "second", ID: "y", Permanent: true})
	must(err)
	must(s.Enqueue(ctx, []store.Outgoing{{ID: "z", Target: chat.Target{Channel: "web", ChatID: "4"}}}))
	_, err = s.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: "second", Channels: []string{"web"}, Limit: 10})
	must(err)
	_, err = s.Undelivered(ctx, store.UndeliveredParams{Node: "second", ID: "z", Gone: &store.GoneAddress{}})
	must(err)
	must(s.ReleaseLease(ctx, lease))
	_, err = s.OutboxCounts(ctx)
	must(err)
	_, err = s.Unowned(ctx)
	must(err)
	_, err = s.AppendTranscript(ctx, key, "ann", entries)
	must(err)
	for _, q := range []store.TranscriptQuery{{Session: key}, {Session: key, FromStart: true}} {
		_, err = s.Transcript(ctx, q)
		must(err)
	}
	for _, f := range []store.SessionFilter{{}, {ByLastMessage: true}, {Search: "r"}, {Search: "r", ByLastMessage: true}, {Visible: "ann", Named: true}} {
		_, _, err = s.ListSessions(ctx, f)
		must(err)
	}
	must(s.SetSession(ctx, key, "ann", store.SessionSettings{Mode: new(chat.ModeSteer), Notes: map[string]string{"model": "big"}}))
	_, err = s.ResetSession(ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "other"})
	must(err)
	before := prepared(t, s)
	_, err = s.DeleteSession(ctx, store.DeleteParams{Session: key, ExpectID: "other"})
	must(err)
	ofDeletion = prepared(t, s)
	maps.DeleteFunc(ofDeletion, func(text string, _ bool) bool { return before[text] })
	_, err = s.MessageByID(ctx, "a")
	must(err)
	_, err = s.RunByID(ctx, "a")
	must(err)
	_, _, err = s.PendingInputs(ctx, key, 0, 5)
	must(err)
	_, err = s.Held(ctx)
	must(err)
	_, err = s.FilesInUse(ctx)
	must(err)
	_, err = s.Cluster(ctx)
	must(err)
	must(s.Unregister(ctx, "second"))
	return ofDeletion
}

func TestPagesOfDeletedSessionsGoBackToTheDisk(t *testing.T) {
	t.Parallel()
	s, before, pages := emptied(t, 8)
	for range 8 {
		if _, err := s.Sweep(t.Context(), store.SweepParams{Node: "node", Limit: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if after := pages(); after > before-slackPages/2 || after < slackPages-256 {
		t.Errorf("the file has %d pages after %d; want it smaller, with %d for reuse", after, before, slackPages)
	}
}

// everythingOfTasks calls the operations of sub-turns, the list with each filter.
func everythingOfTasks(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Register(ctx, store.Node{ID: "trees", Lease: time.Hour}))
	root := message("trees", "grove", "root")
	a, err := s.Accept(ctx, root)
	must(err)
	claim := store.Claim{Session: root.Message.Session, Node: "trees", Epoch: a.Epoch}
	_, err = s.Start(ctx, store.StartParams{Claim: claim, RunID: "root", Lane: "main", Seqs: []int64{a.Seq}})
	must(err)
	_, err = s.Spawn(ctx, store.SpawnParams{
		Claim: claim, RunID: "root", Root: "root", Announce: true, MaxChildren: 8, MaxTree: 32, Accept: message("trees", "task:child", "child"),
	})
	must(err)
	for _, away := range []bool{true, false} {
		must(s.Yield(ctx, claim, "root", away))
	}
	for _, f := range []store.TaskFilter{
		{}, {ID: "child"}, {Parents: []string{"root"}, Open: true}, {RootSession: claim.Session}, {RootSession: claim.Session, Open: true}, {Visible: "ann"}, {Visible: "ann", Open: true},
	} {
		list, err := s.Tasks(ctx, f)
		must(err)
		if len(list) != 1 {
			t.Errorf("%+v lists %d sub-turns, want 1", f, len(list))
		}
	}
	for _, f := range []store.TurnFilter{{}, {ID: "child"}, {Which: store.TurnsEnded}, {Which: store.TurnsRunning}, {Which: store.TurnsWaiting, Visible: "ann"}} {
		_, err := s.Turns(ctx, f)
		must(err)
	}
	_, err = s.Tasks(ctx, store.TaskFilter{Left: true, Limit: 10})
	must(err)
	must(s.Announced(ctx, "child"))
}
