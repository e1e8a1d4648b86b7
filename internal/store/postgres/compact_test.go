package postgres_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// newCompactNodes are nodes whose runs are one row.
func newCompactNodes(t *testing.T) *nodesOfTest {
	t.Helper()
	s, url := cronStore(t)
	return &nodesOfTest{t: t, url: url, s: s}
}

// TestAnIsolatedRunIsOneRow: from its claim to its end a run writes no row of a session, a message, a run or a transcript.
func TestAnIsolatedRunIsOneRow(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	const jobs = 200
	var all errgroup.Group
	for _, l := range c.launchedJobs(jobs) {
		all.Go(func() error {
			start := startOf(l)
			start.Transcript = []chat.TranscriptEntry{{RunID: l.Run.ID, Role: chat.RoleUser, Text: "a question"}}
			if _, err := c.s.Start(t.Context(), start); err != nil {
				return err
			}
			end := endOf(l)
			end.Transcript = []chat.TranscriptEntry{{RunID: l.Run.ID, Role: chat.RoleAssistant, Text: "an answer"}}
			_, err := c.s.Finish(t.Context(), end)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	c.wantRows(`SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM inbox) + (SELECT count(*) FROM runs) + (SELECT count(*) FROM transcript)`, "0")
	c.wantRows(`SELECT count(*) FROM cron_run_logs WHERE compact = 1 AND state = 'ok' AND attempt = 1 AND entries = 2 AND summary = 'said by ' || job_name`, strconv.Itoa(jobs))
	c.wantRows(`SELECT count(*) FROM compact_transcript WHERE (seq, role, content) IN ((1, 'user', 'a question'), (2, 'assistant', 'an answer'))`, strconv.Itoa(2*jobs))
	c.wantRows(`SELECT count(*) FROM cron_jobs WHERE run_count = 1 AND last_state = 'ok'`, strconv.Itoa(jobs))
	checkInvariants(t, c.url)
}

// TestRunsAreMessagesWhileAnOlderNodeLives: a process of an earlier release sweeps and stops messages only.
func TestRunsAreMessagesWhileAnOlderNodeLives(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	exec(t, c.url, `INSERT INTO nodes (id, lease_until) VALUES ('old', 9999999999999)`)
	addJobs(t, c.url, 3)
	list := claimAll(t, c.s)
	c.wantRows(`SELECT count(*) FROM inbox WHERE state = 'waiting'`, "3")
	c.wantRows(`SELECT count(*) FROM cron_run_logs WHERE compact = 1`, "0")
	for _, l := range list {
		if err := fire(t, c.s, l); err != nil {
			t.Fatal(err)
		}
	}
	c.wantRows(`SELECT count(*) FROM inbox WHERE outcome = 'answered'`, "3")
}

// TestACleanEndLeavesMessages: what a node leaves can be taken over by a process of an earlier release.
func TestACleanEndLeavesMessages(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	list := c.launchedJobs(3)
	if _, err := c.s.Start(t.Context(), startOf(list[0])); err != nil {
		t.Fatal(err)
	}
	if err := c.s.Unregister(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	c.wantRows(`SELECT state FROM inbox ORDER BY state`, "running", "waiting", "waiting")
	c.wantRows(`SELECT count(*) FROM cron_run_logs WHERE compact = 1`, "0")
}

// TestCompactRunsThatCannotEndTogetherEndAlone: a group writes the runs that it may end, and nothing of the others.
func TestCompactRunsThatCannotEndTogetherEndAlone(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	list := c.launchedJobs(6)
	ends := make([]store.FinishParams, len(list))
	for i, l := range list {
		if i != 4 { // one that has not begun
			if _, err := c.s.Start(t.Context(), startOf(l)); err != nil {
				t.Fatal(err)
			}
		}
		ends[i] = endOf(l)
	}
	ends[1].Node = "n2"                                                                     // of another node
	c.lockWith(`SELECT 1 FROM cron_run_logs WHERE id = $1 FOR UPDATE`, list[2].Run.ID)      // locked by another transaction
	c.lockWith(`SELECT 1 FROM cron_jobs WHERE id = $1 FOR UPDATE`, list[3].Run.JobID)       // locked by another transaction
	exec(t, c.url, fmt.Sprintf(`DELETE FROM cron_jobs WHERE id = '%s'`, list[5].Run.JobID)) // no job any more
	done, out, err := c.s.CompactTogether(t.Context(), ends)
	c.wantDone(done, err, true, false, false, false, false, true)
	if !out[0].Released || out[0].EndedAt.IsZero() {
		t.Errorf("got %+v, want the session released and a time", out[0])
	}
	c.wantRows(`SELECT job_name || ' ' || state FROM cron_run_logs ORDER BY job_name`, "job 1 ok", "job 2 running", "job 3 running", "job 4 running", "job 5 queued", "job 6 ok")
	c.wantRows(`SELECT name || ' ' || run_count FROM cron_jobs ORDER BY name`, "job 1 1", "job 2 0", "job 3 0", "job 4 0", "job 5 0")
}

// TestEndsOfCompactRunsMeetWhatExpandsThem: a stop, a message to the session or a sweep of another handle comes between start and end, in any order;
// each run ends once.
func TestEndsOfCompactRunsMeetWhatExpandsThem(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	const jobs = 120
	var all errgroup.Group
	for i, l := range c.launchedJobs(jobs) {
		all.Go(func() error {
			if _, err := c.s.Start(t.Context(), startOf(l)); err != nil {
				return err
			}
			_, err := c.s.Finish(t.Context(), endOf(l))
			return err
		})
		all.Go(func() error {
			key := l.Message.Session
			switch i % 4 {
			case 0:
				_, err := c.s.Accept(t.Context(), message("n1", key, fmt.Sprintf("m-%d", i)))
				return err
			case 1:
				_, err := c.s.Stop(t.Context(), store.StopParams{Session: key, Scope: store.StopRun, MessageID: "none", By: "ann"})
				return err
			case 2:
				return c.s.SetNote(t.Context(), key, "ann", "a", "b")
			default:
				_, err := c.s.DeleteSession(t.Context(), store.DeleteParams{Session: key, ExpectID: "another"})
				if errors.Is(err, chat.ErrConflict) {
					err = nil
				}
				return err
			}
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	c.wantRows(`SELECT count(*) FROM cron_run_logs WHERE state = 'ok' AND attempt = 1`, strconv.Itoa(jobs))
	c.wantRows(`SELECT count(*) FROM cron_jobs WHERE run_count = 1`, strconv.Itoa(jobs))
	c.wantRows(`SELECT count(*) FROM inbox WHERE message_id LIKE 'm-%' AND seq = 2`, strconv.Itoa(jobs/4))
	checkInvariants(t, c.url)
}
