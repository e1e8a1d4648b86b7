package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

func message(node string, key chat.SessionKey, id string) store.AcceptParams {
	return store.AcceptParams{Node: node, Take: true, Message: chat.Message{
		Session: key, ID: id, Lane: "main", Principal: "ann", Channel: "web", Dedupe: "d:" + id, Content: chat.Content{Text: id},
	}}
}

// turn runs one message to its end. It retries whenever the store is unavailable, as the callers of
// a store do.
func turn(ctx context.Context, s *postgres.Store, node string, key chat.SessionKey, id string) error {
	var a store.Accepted
	err := persist(ctx, func() (err error) {
		a, err = s.Accept(ctx, message(node, key, id))
		return err
	})
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	c := store.Claim{Session: key, Node: node, Epoch: a.Epoch}
	err = persist(ctx, func() error {
		_, err := s.Start(ctx, store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}})
		return err
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	err = persist(ctx, func() error {
		_, err := s.Finish(ctx, store.FinishParams{
			Claim: c, RunID: id, State: store.RunOK, Outcome: chat.OutcomeAnswered,
			Outgoing: []store.Outgoing{{Kind: store.KindReply, Target: chat.Target{Channel: "web", ChatID: key.Rest}, Text: id}},
		})
		return err
	})
	if err != nil && !errors.Is(err, chat.ErrFenced) { // the result of a commit was lost, and the repetition found the run ended
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}

// persist repeats fn while the store is unavailable.
func persist(ctx context.Context, fn func() error) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := fn()
		if !errors.Is(err, chat.ErrStoreUnavailable) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// checkInvariants runs the rules that need no parameters.
func checkInvariants(t *testing.T, url string) {
	t.Helper()
	checked := 0
	for _, inv := range store.Invariants() {
		if len(inv.Params) > 0 {
			continue
		}
		checked++
		if rows := query(t, url, inv.SQL); len(rows) > 0 {
			t.Errorf("%s is broken: %v", inv.Rule, rows)
		}
	}
	if checked == 0 {
		t.Error("no invariant was checked")
	}
}

// TestAwayAndBack checks the errors while the server is down: their class, a sentence, no address;
// and that the same store works again afterwards.
func TestAwayAndBack(t *testing.T) {
	t.Parallel()
	server := testpg.Private(t, testpg.ServerConfig{NoFsync: true})
	s := open(t, postgres.Config{URL: testpg.DBOn(t, server.URL())})
	defer func() { _ = s.Close() }()
	if err := server.Halt(false); err != nil {
		t.Fatal(err)
	}
	_, err := s.Held(t.Context())
	if !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Fatalf("got %v, want store unavailable", err)
	}
	var app *chat.Error
	if !errors.As(err, &app) || !app.Retryable || app.Message == "" || app.Cause == nil {
		t.Fatalf("got %#v, want a retryable error with a sentence and a cause", app)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Fatalf("ping: %v", err)
	}
	if err := server.Restart(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Fatalf("ping after the restart: %v", err)
	}
	if held, err := s.Held(t.Context()); err != nil || held.Unfinished != 0 {
		t.Fatalf("after the restart: %d, %v", held.Unfinished, err)
	}
}

// TestNoTakeoverRightAfterTheServersStart checks that an owner whose lease expired while the server
// was down gets time to extend it.
func TestNoTakeoverRightAfterTheServersStart(t *testing.T) {
	t.Parallel()
	server := testpg.Private(t, testpg.ServerConfig{NoFsync: true})
	url := testpg.DBOn(t, server.URL())
	s := open(t, postgres.Config{URL: url})
	defer func() { _ = s.Close() }()
	ctx := t.Context()
	for _, id := range []string{"owner", "other"} {
		if err := s.Register(ctx, store.Node{ID: id, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Accept(ctx, message("owner", chat.MainKey("main"), "m1")); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(ctx, true); err != nil {
		t.Fatal(err)
	}
	exec(t, url, `UPDATE nodes SET lease_until = (extract(epoch FROM now()) * 1000)::bigint - 1 WHERE id = 'owner'`)
	if taken, err := s.Sweep(ctx, store.SweepParams{Node: "other", Limit: 10}); err != nil || len(taken) != 0 {
		t.Fatalf("right after the start: took %v, %v", taken, err)
	}
	exec(t, url, `UPDATE nodes SET lease_ms = 1 WHERE id = 'owner'`) // a lease that ends before the server's start
	if taken, err := s.Sweep(ctx, store.SweepParams{Node: "other", Limit: 10}); err != nil || len(taken) != 1 {
		t.Fatalf("one lease later: took %v, %v", taken, err)
	}
}

// TestReadOnlyIsNamed checks that the error names a standby, or a database in read-only mode.
func TestReadOnlyIsNamed(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	exec(t, url, `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$`)
	s := open(t, postgres.Config{URL: url})
	defer func() { _ = s.Close() }()
	for what, err := range map[string]error{
		"ping":     s.Ping(t.Context()),
		"register": s.Register(t.Context(), store.Node{ID: "n"}),
	} {
		var app *chat.Error
		if !errors.As(err, &app) || app.Code != chat.CodeStoreUnavailable {
			t.Fatalf("%s: got %v, want store unavailable", what, err)
		}
	}
}

// TestControlPassesABusyPool checks that heartbeat, stop and ping work while every pooled
// connection is taken and waits.
func TestControlPassesABusyPool(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	s := open(t, postgres.Config{URL: url, MaxConns: 1})
	defer func() { _ = s.Close() }()
	ctx := t.Context()
	if err := s.Register(ctx, store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accept(ctx, message("n", chat.MainKey("main"), "m1")); err != nil {
		t.Fatal(err)
	}
	blocker := connect(t, url)
	defer func() { _ = blocker.Close(context.WithoutCancel(ctx)) }()
	tx, err := blocker.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	busy := chat.SessionKey{Agent: "main", Rest: "busy"}
	if err := s.SetSession(ctx, busy, "ann", store.SessionSettings{Mode: new(chat.ModeQueue)}); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `SELECT 1 FROM sessions WHERE key = $1 FOR UPDATE`, busy.String()); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if err := s.SetSession(ctx, busy, "ann", store.SessionSettings{Mode: new(chat.ModeCollect)}); err != nil {
			t.Errorf("the blocked call: %v", err)
		}
	})
	awaitWaiters(t, url, 1)
	if _, err := s.Heartbeat(ctx, "n", false); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	stopped, err := s.Stop(ctx, store.StopParams{Session: chat.MainKey("main"), Scope: store.StopAll, By: "ann"})
	if err != nil || len(stopped.Waiting) != 1 {
		t.Errorf("stop: %+v, %v", stopped, err)
	}
	if err := s.Ping(ctx); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Error(err)
	}
	waiting.Wait()
}

// TestAcceptBehindFinishLosesNoWakeUp forces the order that READ COMMITTED makes dangerous: an
// accept that began before the finish waits for its lock. Its snapshot of the session is old, but
// its decision must not use it.
func TestAcceptBehindFinishLosesNoWakeUp(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	owner, other := open(t, postgres.Config{URL: url}), open(t, postgres.Config{URL: url})
	defer func() { _ = errors.Join(owner.Close(), other.Close()) }()
	ctx, key := t.Context(), chat.MainKey("main")
	for _, id := range []string{"owner", "other"} {
		if err := owner.Register(ctx, store.Node{ID: id, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	a, err := owner.Accept(ctx, message("owner", key, "m1"))
	if err != nil {
		t.Fatal(err)
	}
	c := store.Claim{Session: key, Node: "owner", Epoch: a.Epoch}
	if _, err := owner.Start(ctx, store.StartParams{Claim: c, RunID: "m1", Lane: "main", Seqs: []int64{1}}); err != nil {
		t.Fatal(err)
	}
	// Another transaction holds the row; the finish queues for it first, then the accept.
	blocker := connect(t, url)
	defer func() { _ = blocker.Close(context.WithoutCancel(ctx)) }()
	tx, err := blocker.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `SELECT 1 FROM sessions WHERE key = $1 FOR UPDATE`, key.String()); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	var finished store.Finished
	var accepted store.Accepted
	both.Go(func() {
		var err error
		finished, err = owner.Finish(ctx, store.FinishParams{Claim: c, RunID: "m1", State: store.RunOK, Outcome: chat.OutcomeAnswered})
		if err != nil {
			t.Errorf("finish: %v", err)
		}
	})
	awaitWaiters(t, url, 1)
	both.Go(func() {
		var err error
		if accepted, err = other.Accept(ctx, message("other", key, "m2")); err != nil {
			t.Errorf("accept: %v", err)
		}
	})
	awaitWaiters(t, url, 2)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	if finished.Released != accepted.Mine {
		t.Fatalf("released %v but taken %v: no process runs message %d", finished.Released, accepted.Mine, accepted.Seq)
	}
	session, err := owner.Session(ctx, key, "")
	if err != nil || session.Owner == "" || session.Owner != accepted.Owner {
		t.Fatalf("owner %q, accept said %q, %v", session.Owner, accepted.Owner, err)
	}
	checkInvariants(t, url)
}

// awaitWaiters waits until n connections of the database wait for a lock.
func awaitWaiters(t *testing.T, url string, n int64) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for range look.C {
		rows := query(t, url, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		if rows[0][0] == n {
			return
		}
	}
}

// lossTime bounds the wait of a client for a reply that never arrives.
const lossTime = 3 * time.Second

// losses are all ways in which the reply of a COMMIT is lost.
func losses(t *testing.T, test func(t *testing.T, l testpg.Loss)) {
	t.Helper()
	for name, m := range map[string]testpg.Manner{"Cut": testpg.Cut, "Silence": testpg.Silence, "Shutdown": testpg.Shutdown, "Crash": testpg.Crash} {
		for _, undone := range []bool{false, true} {
			part := map[bool]string{false: "Applied", true: "Undone"}[undone]
			t.Run(name+part, func(t *testing.T) {
				t.Parallel()
				test(t, testpg.Loss{Manner: m, Undone: undone})
			})
		}
	}
}

// takenAgain repeats an operation in tries of their own until its result is there.
func takenAgain[T any](t *testing.T, op func(ctx context.Context) (T, error)) (out T) {
	t.Helper()
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), lossTime)
		out, err := op(ctx)
		cancel()
		switch {
		case err == nil:
			return out
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, chat.ErrStoreUnavailable):
			t.Fatal(err)
		}
	}
	t.Fatal("five tries had no result")
	return out
}

func lost(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	default:
		t.Fatal("no reply was lost: the operation has no such COMMIT")
	}
}

func TestClaimOutgoingFindsWhatItTook(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		s, p := behindProxy(t)
		row := store.Outgoing{ID: "o1", Kind: store.KindReply, Target: chat.Target{Channel: "box", ChatID: "1"}, Text: "hello"}
		if err := s.Enqueue(t.Context(), []store.Outgoing{row}); err != nil {
			t.Fatal(err)
		}
		l.Marker = "SET state = 'sending'"
		done := p.Lose(l)
		rows := takenAgain(t, func(ctx context.Context) ([]store.Outgoing, error) {
			rows, err := s.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: "n", Channels: []string{"box"}, Limit: 10})
			if err == nil && len(rows) == 0 { // a lost transaction has not ended yet, and its row is skipped
				<-ctx.Done()
				err = ctx.Err()
			}
			return rows, err
		})
		lost(t, done)
		if len(rows) != 1 || rows[0].ID != "o1" || rows[0].Attempt != 1 || rows[0].MaybeSent {
			t.Fatalf("claimed %+v, want o1 in its first attempt", rows)
		}
	})
}

func TestClaimLaunchesWhatItCommitted(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		s, p := behindProxy(t)
		addJobs(t, p.URL(), 2)
		l.Marker = "UPDATE cron_jobs AS j SET next_slot"
		done := p.Lose(l)
		found := map[string]bool{}
		for range 2 {
			c := takenAgain(t, func(ctx context.Context) (cron.Claimed, error) {
				return s.Claim(ctx, cron.ClaimParams{Node: "n", Limit: 500, Decide: decideOnce})
			})
			for _, launched := range c.Launched {
				found[launched.Run.ID] = true
			}
		}
		lost(t, done)
		if len(found) != 2 {
			t.Fatalf("the claims launched %v, want both runs", found)
		}
	})
}

// What a sweep took is found by the sweep or by the read of what waits that follows it.
func TestSweepFindsWhatItTook(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		s, p := behindProxy(t)
		orphan(t, s, p.URL())
		l.Marker = "epoch = s.epoch + 1"
		done := p.Lose(l)
		taken := takenAgain(t, func(ctx context.Context) ([]store.Front, error) {
			return s.Sweep(ctx, store.SweepParams{Node: "n", Limit: 10})
		})
		if len(taken) == 0 {
			taken = takenAgain(t, func(ctx context.Context) ([]store.Front, error) {
				return s.Fronts(ctx, store.FrontsParams{Node: "n", Limit: 10})
			})
		}
		lost(t, done)
		if len(taken) != 1 || taken[0].ID != "m1" {
			t.Fatalf("taken %+v, want m1", taken)
		}
	})
}

// orphan stores the message m1 of a node that has died.
func orphan(t *testing.T, s *postgres.Store, url string) {
	t.Helper()
	if err := s.Register(t.Context(), store.Node{ID: "dead", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accept(t.Context(), message("dead", chat.MainKey("main"), "m1")); err != nil {
		t.Fatal(err)
	}
	exec(t, url, `UPDATE nodes SET lease_until = 0, lease_ms = 0 WHERE id = 'dead'`)
}

// Two replicas sweep, and the first one receives no reply: exactly one of them has the message.
func TestSweepOfTwoReplicasLosesNothing(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		url := testpg.DB(t)
		s, p := behindProxyOf(t, url)
		other := open(t, postgres.Config{URL: url})
		t.Cleanup(func() { _ = other.Close() })
		if err := other.Register(t.Context(), store.Node{ID: "other", Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		orphan(t, s, url)
		l.Marker = "epoch = s.epoch + 1"
		done := p.Lose(l)
		found := map[string]bool{}
		read := func(s *postgres.Store, node string) {
			for _, op := range []func(ctx context.Context) ([]store.Front, error){
				func(ctx context.Context) ([]store.Front, error) {
					return s.Sweep(ctx, store.SweepParams{Node: node, Limit: 10})
				},
				func(ctx context.Context) ([]store.Front, error) {
					return s.Fronts(ctx, store.FrontsParams{Node: node, Limit: 10})
				},
			} {
				for range takenAgain(t, op) {
					found[node] = true
				}
			}
		}
		read(s, "n")
		lost(t, done)
		read(other, "other")
		if len(found) != 1 {
			t.Fatalf("the message was found by %v, want one of them", found)
		}
	})
}

func TestTakeQuestionsFindsWhatItTook(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		s, p := behindProxy(t)
		exec(t, p.URL(), `INSERT INTO tool_questions (id, owner, state, node, asked_at, expires_at, call, result) VALUES ('q1', 'ann', 'allowed', 'dead', 1, 2, '[]', '')`)
		l.Marker = "UPDATE tool_questions SET node"
		done := p.Lose(l)
		list := takenAgain(t, func(ctx context.Context) ([]store.Question, error) {
			return s.TakeQuestions(ctx, store.TakeQuestionsParams{Node: "n", Limit: 10})
		})
		lost(t, done)
		if len(list) != 1 || list[0].ID != "q1" {
			t.Fatalf("taken %+v, want q1", list)
		}
	})
}

// A turn whose steps have lost replies gets the results of the first commits.
func TestStepsOfATurnAreRepeated(t *testing.T) {
	t.Parallel()
	for name, marker := range map[string]string{"Accept": "INSERT INTO inbox", "Start": "INSERT INTO runs", "Finish": "UPDATE runs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			losses(t, func(t *testing.T, l testpg.Loss) {
				t.Helper()
				if l.Manner == testpg.Silence {
					return // only the deadline of a caller ends it, and these calls have none
				}
				s, p := behindProxy(t)
				l.Marker = marker
				done := p.Lose(l)
				if err := turn(t.Context(), s, "n", chat.MainKey("main"), "m1"); err != nil {
					t.Fatal(err)
				}
				lost(t, done)
				if left := query(t, p.URL(), `SELECT state FROM runs WHERE ended_at IS NULL`); len(left) > 0 {
					t.Errorf("runs without an end: %v", left)
				}
			})
		})
	}
}

// A pooler that gives every transaction another session answers single reads, and accepts no
// message. The start must find that, and say what to change.
func TestPoolerWithoutSessionsIsFound(t *testing.T) {
	t.Parallel()
	p := testpg.NewPooler(t, testpg.DB(t))
	s, err := postgres.Open(t.Context(), postgres.Config{URL: p.URL(), WarmConns: -1})
	if err == nil {
		defer func() { _ = s.Close() }()
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("the pooler refuses reads too: %v", err)
		}
		err = s.Rehearse(t.Context())
	}
	if !errors.Is(err, chat.ErrStoreUnavailable) || !strings.Contains(err.Error(), "pool_mode") || postgres.WaitHelps(err) {
		t.Errorf("got %v, want a refusal that names the mode of the pooler", err)
	}
}

// A database of another encoding stores some messages and refuses others for ever.
func TestDatabaseOfAnotherEncodingIsRefused(t *testing.T) {
	t.Parallel()
	url := testpg.Empty(t)
	other := connect(t, testpg.DB(t))
	own := connect(t, url)
	name := own.Config().Database
	if err := own.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.WithoutCancel(t.Context())) }()
	execOn(t, other, "DROP DATABASE "+name)
	execOn(t, other, "CREATE DATABASE "+name+" ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
	_, opened := postgres.Open(t.Context(), postgres.Config{URL: url})
	_, migrated := postgres.MigrateUp(t.Context(), url, nil)
	for what, err := range map[string]error{"open": opened, "migrate": migrated} {
		if err == nil || !strings.Contains(err.Error(), "SQL_ASCII") || !strings.Contains(err.Error(), "ENCODING 'UTF8'") || postgres.WaitHelps(err) {
			t.Errorf("%s: got %v, want a refusal that names the encoding and the cure", what, err)
		}
	}
}

// behindProxy opens a store with the node n whose connections can lose replies.
func behindProxy(t *testing.T) (*postgres.Store, *testpg.Proxy) {
	t.Helper()
	return behindProxyOf(t, testpg.DB(t))
}

// behindProxyOf is behindProxy for a database.
func behindProxyOf(t *testing.T, url string) (*postgres.Store, *testpg.Proxy) {
	t.Helper()
	p := testpg.NewProxy(t, url)
	s := open(t, postgres.Config{URL: p.URL()})
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return s, p
}

// A slot of a session reads the head of its queue, however long the queue is.
func TestBeginReadsFewRowsOfALongQueue(t *testing.T) {
	t.Parallel()
	const waiting, most = 10_000, 40
	url := testpg.DB(t)
	s := open(t, postgres.Config{URL: url})
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	key := chat.MainKey("main")
	if _, err := s.Accept(t.Context(), message("n", key, "m1")); err != nil {
		t.Fatal(err)
	}
	exec(t, url, fmt.Sprintf(`INSERT INTO inbox SELECT (jsonb_populate_record(i, jsonb_build_object('seq', n, 'message_id', 'm' || n, 'dedupe', NULL))).*
		FROM inbox i, generate_series(2, %d) n`, waiting))
	exec(t, url, fmt.Sprintf(`UPDATE sessions SET last_seq = %d, waiting = %[1]d`, waiting))
	exec(t, url, `VACUUM ANALYZE inbox`)
	exec(t, url, `SELECT pg_stat_reset()`)
	b, err := s.Begin(t.Context(), store.BeginParams{
		Session: key, Node: "n", Lane: "main", Principal: message("n", key, "m1").Message.Principal,
		Settings: func(*store.Waiting) scheduler.Settings { return scheduler.DefaultSettings() },
		Plan: func(c store.Claim, batch []store.Waiting) (store.StartParams, bool) {
			return store.StartParams{Claim: c, RunID: batch[0].MessageID, Lane: "main", Seqs: []int64{batch[0].Seq}}, true
		},
	})
	if err != nil || b.RunID != "m1" || b.Next == nil || b.Next.ID != "m2" {
		t.Fatalf("began %q, next %+v, %v", b.RunID, b.Next, err)
	}
	if err := s.Close(); err != nil { // so that the server adds up the counters of its connections
		t.Fatal(err)
	}
	read := query(t, url, `SELECT (seq_tup_read + COALESCE(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables WHERE relname = 'inbox'`)[0][0].(int64)
	t.Logf("figure: %d rows read beside %d that wait", read, waiting)
	if read > most {
		t.Errorf("%d rows were read, want at most %d", read, most)
	}
}

// TestServerCrashesUnderLoad crashes the server twice during a load. Everything that was
// acknowledged exists afterwards exactly once, and every invariant holds.
func TestServerCrashesUnderLoad(t *testing.T) {
	t.Parallel()
	const workers, turns = 8, 60
	server := testpg.Private(t, testpg.ServerConfig{})
	url := testpg.DBOn(t, server.URL())
	s := open(t, postgres.Config{URL: url})
	defer func() { _ = s.Close() }()
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	var done atomic.Int64
	reached := make(chan struct{}, workers*turns)
	load, ctx := errgroup.WithContext(t.Context())
	for w := range workers {
		load.Go(func() error {
			for i := range turns {
				key := chat.SessionKey{Agent: "main", Rest: fmt.Sprintf("w%d", w)}
				if err := turn(ctx, s, "n", key, fmt.Sprintf("m-%d-%d", w, i)); err != nil {
					return err
				}
				done.Add(1)
				reached <- struct{}{}
			}
			return nil
		})
	}
	for range 2 {
		await(ctx, t, reached, workers*turns/4)
		if err := server.Restart(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := load.Wait(); err != nil {
		t.Fatal(err)
	}
	ended := query(t, url, `SELECT count(*) FROM inbox WHERE state = 'done' AND outcome = 'answered'`)[0][0]
	replies := query(t, url, `SELECT count(*) FROM outbox`)[0][0]
	if ended != int64(workers*turns) || replies != ended {
		t.Fatalf("%v messages answered and %v replies, want %d each", ended, replies, workers*turns)
	}
	checkInvariants(t, url)
}

func await(ctx context.Context, t *testing.T, reached <-chan struct{}, n int) {
	t.Helper()
	for range n {
		select {
		case <-reached:
		case <-ctx.Done():
			t.Fatalf("the load ended: %v", context.Cause(ctx))
		}
	}
}
