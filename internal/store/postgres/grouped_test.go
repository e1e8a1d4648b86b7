package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// nodesOfTest is a store with two live nodes and sessions by name.
type nodesOfTest struct {
	t   *testing.T
	url string
	s   *postgres.Store
}

func newNodesOfTest(t *testing.T) *nodesOfTest {
	t.Helper()
	c := &nodesOfTest{t: t, url: testpg.DB(t)}
	c.s = open(t, postgres.Config{URL: c.url})
	t.Cleanup(func() { _ = c.s.Close() })
	for _, id := range []string{"n", "other", "dead"} {
		if err := c.s.Register(t.Context(), store.Node{ID: id, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func named(name string) chat.SessionKey { return chat.SessionKey{Agent: "main", Rest: name} }

// accept takes message <name>-<n> into the session of that name.
func (c *nodesOfTest) accept(node, name string, n int) store.Claim {
	c.t.Helper()
	a, err := c.s.Accept(c.t.Context(), message(node, named(name), fmt.Sprintf("%s-%d", name, n)))
	if err != nil {
		c.t.Fatal(err)
	}
	return store.Claim{Session: named(name), Node: a.Owner, Epoch: a.Epoch}
}

func starting(claim store.Claim, run string, seqs ...int64) store.StartParams {
	return store.StartParams{
		Claim: claim, RunID: run, Lane: "main", Seqs: seqs,
		Transcript: []chat.TranscriptEntry{{RunID: run, Role: chat.RoleUser, Text: "question " + run}},
	}
}

func finishOp(claim store.Claim, run string) store.FinishParams {
	return store.FinishParams{
		Claim: claim, RunID: run, State: store.RunOK, Outcome: chat.OutcomeAnswered,
		Transcript: []chat.TranscriptEntry{{RunID: run, Role: chat.RoleAssistant, Text: "answer " + run}},
		Outgoing: []store.Outgoing{
			{Kind: store.KindReply, Target: chat.Target{Channel: "web", ChatID: run}, Text: "one " + run},
			{Kind: store.KindReply, N: 1, Target: chat.Target{Channel: "web", ChatID: run}, Text: "two " + run},
		},
	}
}

func (c *nodesOfTest) start(claim store.Claim, run string, seqs ...int64) {
	c.t.Helper()
	if _, err := c.s.Start(c.t.Context(), starting(claim, run, seqs...)); err != nil {
		c.t.Fatal(err)
	}
}

// lock holds the row of a session until the test ends.
func (c *nodesOfTest) lock(name string) {
	c.t.Helper()
	conn := connect(c.t, c.url)
	c.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(c.t.Context())) })
	tx, err := conn.Begin(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := tx.Exec(c.t.Context(), `SELECT 1 FROM sessions WHERE key = $1 FOR UPDATE`, named(name).String()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *nodesOfTest) wantDone(got []bool, err error, want ...bool) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		c.t.Fatalf("done %v, want %v", got, want)
	}
}

// wantRows compares the rows of a query as strings.
func (c *nodesOfTest) wantRows(sql string, want ...string) {
	c.t.Helper()
	var got []string
	for _, row := range query(c.t, c.url, sql) {
		got = append(got, fmt.Sprint(row...))
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("%s\n got %q\nwant %q", sql, got, want)
	}
}

// TestAcceptTogetherLeavesOutWhatIsNotStraight checks that a group stores the messages of the usual
// case in one transaction, and nothing at all of the others.
func TestAcceptTogetherLeavesOutWhatIsNotStraight(t *testing.T) {
	t.Parallel()
	c := newNodesOfTest(t)
	for _, name := range []string{"old", "full", "twice", "locked", "foreign"} {
		c.accept("n", name, 1)
	}
	c.accept("dead", "orphan", 1)
	exec(t, c.url, `UPDATE nodes SET lease_until = 1 WHERE id = 'dead'`)
	exec(t, c.url, `UPDATE inbox SET state = 'done', outcome = 'stopped', ended_at = 1 WHERE message_id = 'orphan-1'`)
	exec(t, c.url, `UPDATE sessions SET done_seq = 1, taken_seq = 1, waiting = 0 WHERE owner = 'dead'`)
	c.lock("locked")
	full := message("n", named("full"), "full-2")
	full.Queue.Cap = 1
	command := message("n", named("command"), "command-1")
	command.Unqueued = true
	foreign := message("n", named("foreign"), "foreign-2")
	foreign.Message.Principal, foreign.Own = "bob", true
	done, out, err := c.s.AcceptTogether(t.Context(), []store.AcceptParams{
		message("n", named("old"), "old-2"), full, message("n", named("twice"), "twice-1"), message("n", named("locked"), "locked-2"),
		message("n", named("new"), "new-1"), message("n", named("orphan"), "orphan-2"), command, foreign,
	})
	c.wantDone(done, err, true, false, true, false, true, true, true, false)
	if got := out[2]; !got.Duplicate || got.Existing.MessageID != "twice-1" {
		t.Errorf("the message that was there: got %+v, want it as a duplicate", got)
	}
	type key struct {
		seq    int64
		owner  string
		epoch  int64
		behind int
		mine   bool
	}
	for i, want := range map[int]key{0: {2, "n", 1, 1, true}, 4: {1, "n", 1, 0, true}, 5: {2, "n", 2, 0, true}, 6: {1, "", 0, 0, false}} {
		got := key{out[i].Seq, out[i].Owner, out[i].Epoch, out[i].Behind, out[i].Mine}
		if got != want {
			t.Errorf("message %d: got %+v, want %+v", i, got, want)
		}
	}
	c.wantRows(`SELECT message_id FROM inbox WHERE message_id LIKE '%-2' ORDER BY 1`, "old-2", "orphan-2")
	c.wantRows(`SELECT count(DISTINCT xmin::text) FROM inbox WHERE message_id IN ('old-2', 'orphan-2', 'new-1', 'command-1')`, "1")
	c.wantRows(`SELECT key || ' ' || last_seq || ' ' || waiting FROM sessions WHERE key LIKE '%:full' OR key LIKE '%:locked' OR key LIKE '%:twice' OR key LIKE '%:foreign' ORDER BY 1`,
		"agent:main:foreign 1 1", "agent:main:full 1 1", "agent:main:locked 1 1", "agent:main:twice 1 1")
	checkInvariants(t, c.url)
}

// TestStartTogetherKeepsTheFenceOfEach checks that a claim that does not hold starts nothing and
// does not delay other starts.
func TestStartTogetherKeepsTheFenceOfEach(t *testing.T) {
	t.Parallel()
	c := newNodesOfTest(t)
	claims := map[string]store.Claim{}
	for _, name := range []string{"good", "stale", "foreign", "ended", "running", "locked", "two"} {
		claims[name] = c.accept("n", name, 1)
	}
	c.accept("n", "two", 2)
	orphan := c.accept("dead", "orphan", 1)
	exec(t, c.url, `UPDATE nodes SET lease_until = 1 WHERE id = 'dead'`)
	if _, err := c.s.EndWaiting(t.Context(), store.EndParams{Session: named("ended"), Seqs: []int64{1}, Outcome: chat.OutcomeStopped}); err != nil {
		t.Fatal(err)
	}
	c.start(claims["running"], "running-1", 1)
	c.lock("locked")
	stale, foreign := claims["stale"], claims["foreign"]
	stale.Epoch--
	foreign.Node = "other"
	done, out, err := c.s.StartTogether(t.Context(), []store.StartParams{
		starting(claims["good"], "good-1", 1), starting(stale, "stale-1", 1), starting(foreign, "foreign-1", 1), starting(claims["ended"], "ended-1", 1),
		starting(claims["running"], "running-1", 1), starting(claims["locked"], "locked-1", 1), starting(orphan, "orphan-1", 1),
		starting(claims["two"], "two-2", 1, 2),
	})
	c.wantDone(done, err, true, false, false, true, false, false, false, true)
	if got := out[3]; len(got.Seqs) > 0 {
		t.Errorf("the message that has ended began: %+v", got)
	}
	if got := out[7]; !slices.Equal(got.Seqs, []int64{1, 2}) || got.Attempt != 1 || len(got.Entries) != 1 || got.Entries[0].Seq != 1 {
		t.Errorf("got %+v, want a first attempt with both messages and the first entry", got)
	}
	c.wantRows(`SELECT id || ' ' || seq_from || '-' || seq_to FROM runs ORDER BY 1`, "good-1 1-1", "running-1 1-1", "two-2 1-2")
	c.wantRows(`SELECT message_id || ' ' || run_id FROM inbox WHERE state = 'running' ORDER BY 1`,
		"good-1 good-1", "running-1 running-1", "two-1 two-2", "two-2 two-2")
	c.wantRows(`SELECT content FROM transcript ORDER BY 1`, "question good-1", "question running-1", "question two-2")
	checkInvariants(t, c.url)
}

// TestFinishTogetherKeepsTheFenceOfEach checks that a fenced run has written nothing, and that the
// other runs have ended.
func TestFinishTogetherKeepsTheFenceOfEach(t *testing.T) {
	t.Parallel()
	c := newNodesOfTest(t)
	claims := map[string]store.Claim{}
	for _, name := range []string{"good", "stale", "over", "locked", "more"} {
		claims[name] = c.accept("n", name, 1)
		c.start(claims[name], name+"-1", 1)
	}
	c.accept("n", "more", 2)
	orphan := c.accept("dead", "orphan", 1)
	c.start(orphan, "orphan-1", 1)
	exec(t, c.url, `UPDATE nodes SET lease_until = 1 WHERE id = 'dead'`)
	if _, err := c.s.Finish(t.Context(), finishOp(claims["over"], "over-1")); err != nil {
		t.Fatal(err)
	}
	c.accept("n", "over", 2) // owned again, under another epoch
	c.lock("locked")
	stale := claims["stale"]
	stale.Epoch--
	done, out, err := c.s.FinishTogether(t.Context(), []store.FinishParams{
		finishOp(stale, "stale-1"), finishOp(claims["good"], "good-1"), finishOp(claims["over"], "over-1"), finishOp(claims["locked"], "locked-1"),
		finishOp(orphan, "orphan-1"), finishOp(claims["more"], "more-1"),
	})
	c.wantDone(done, err, false, true, false, false, false, true)
	if !out[1].Released || out[5].Released {
		t.Errorf("released %v and %v, want only the session without another message", out[1].Released, out[5].Released)
	}
	if e := out[1].Entries; len(e) != 1 || e[0].Seq != 2 || e[0].Text != "answer good-1" {
		t.Errorf("entries %+v, want the answer as the second", e)
	}
	c.wantRows(`SELECT message_id FROM inbox WHERE outcome = 'answered' ORDER BY 1`, "good-1", "more-1", "over-1")
	c.wantRows(`SELECT payload FROM outbox ORDER BY place`, "one over-1", "two over-1", "one good-1", "two good-1", "one more-1", "two more-1")
	c.wantRows(`SELECT content FROM transcript WHERE role = 'assistant' ORDER BY 1`, "answer good-1", "answer more-1", "answer over-1")
	c.wantRows(`SELECT id FROM runs WHERE ended_at IS NULL ORDER BY 1`, "locked-1", "orphan-1", "stale-1")
	checkInvariants(t, c.url)
}

// TestALockedSessionHoldsUpItselfOnly checks that, while another transaction locks the row of one
// session, turns of other sessions continue, and that its own turns continue afterwards.
func TestALockedSessionHoldsUpItselfOnly(t *testing.T) {
	t.Parallel()
	c := newNodesOfTest(t)
	c.accept("n", "locked", 1)
	blocker := connect(t, c.url)
	defer func() { _ = blocker.Close(context.WithoutCancel(t.Context())) }()
	tx, err := blocker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM sessions WHERE key = $1 FOR UPDATE`, named("locked").String()); err != nil {
		t.Fatal(err)
	}
	var held errgroup.Group
	held.Go(func() error {
		_, err := c.s.Accept(t.Context(), message("n", named("locked"), "locked-2"))
		return err
	})
	awaitWaiters(t, c.url, 1)
	var others errgroup.Group
	for w := range 16 {
		others.Go(func() error {
			return turn(t.Context(), c.s, "n", named(fmt.Sprintf("w%d", w)), fmt.Sprintf("w%d-1", w))
		})
	}
	if err := others.Wait(); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := held.Wait(); err != nil {
		t.Error(err)
	}
	checkInvariants(t, c.url)
}

// TestTwoProcessesShareOneDatabase has both processes offer the same messages to the same sessions,
// in groups. Each message is stored once, each turn runs once, and no deadlock occurs.
func TestTwoProcessesShareOneDatabase(t *testing.T) {
	t.Parallel()
	const sessions, messages = 12, 8
	url := testpg.DB(t)
	conflicts := &deadlocks{}
	stores := map[string]*postgres.Store{}
	for _, node := range []string{"here", "there"} {
		s := open(t, postgres.Config{URL: url, Logger: slog.New(conflicts)})
		defer func() { _ = s.Close() }()
		if err := s.Register(t.Context(), store.Node{ID: node, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		stores[node] = s
	}
	var load errgroup.Group
	for node, s := range stores {
		for i := range sessions {
			load.Go(func() error {
				for n := range messages {
					if err := contend(t.Context(), s, node, named(fmt.Sprintf("s%d", i)), fmt.Sprintf("s%d-%d", i, n)); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	if err := load.Wait(); err != nil {
		t.Fatal(err)
	}
	got := query(t, url, `SELECT count(*), count(DISTINCT message_id), max(seq) FROM inbox`)[0]
	if want := []any{int64(sessions * messages), int64(sessions * messages), int64(messages)}; !reflect.DeepEqual(got, want) {
		t.Errorf("messages, different ones, highest number: %v, want %v", got, want)
	}
	if n := conflicts.n.Load(); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	checkInvariants(t, url)
}

// contend offers a message and runs the part that this node owns. A node that is not the owner, or
// comes second, is fenced or finds nothing.
func contend(ctx context.Context, s *postgres.Store, node string, key chat.SessionKey, id string) error {
	a, err := s.Accept(ctx, message(node, key, id))
	if err != nil || !a.Mine || a.Duplicate {
		return err
	}
	claim := store.Claim{Session: key, Node: node, Epoch: a.Epoch}
	started, err := s.Start(ctx, starting(claim, id, a.Seq))
	if err != nil || len(started.Seqs) == 0 {
		return err
	}
	_, err = s.Finish(ctx, finishOp(claim, id))
	if errors.Is(err, chat.ErrFenced) {
		return fmt.Errorf("a run that no other node can end: %w", err)
	}
	return err
}
