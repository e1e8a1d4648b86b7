package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// between are changes that come between the operations of a fire. A change gets the run.
func between() map[string]func(t *testing.T, s *Store, now *time.Time, l *cron.Launched) {
	edit := func(change func(j *cron.Job) *cron.Job) func(t *testing.T, s *Store, now *time.Time, l *cron.Launched) {
		return func(t *testing.T, s *Store, _ *time.Time, l *cron.Launched) {
			t.Helper()
			_, err := s.ChangeJob(t.Context(), cron.ChangeParams{ID: l.Run.JobID, Change: func(j cron.Job, _ time.Time) (*cron.Job, error) { return change(&j), nil }})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	below := func(text string) func(t *testing.T, s *Store, now *time.Time, l *cron.Launched) {
		return func(t *testing.T, s *Store, _ *time.Time, _ *cron.Launched) {
			t.Helper()
			if _, err := outside(t, s.path).Exec(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]func(t *testing.T, s *Store, now *time.Time, l *cron.Launched){
		"nothing":      func(*testing.T, *Store, *time.Time, *cron.Launched) {},
		"another name": edit(func(j *cron.Job) *cron.Job { j.Name, j.Revision = "another", "r2"; return j }),
		"a pause": edit(func(j *cron.Job) *cron.Job {
			j.Pause = &cron.Pause{By: "ann", At: time.UnixMilli(startOfTime)}
			return j
		}),
		"the removal":    edit(func(*cron.Job) *cron.Job { return nil }),
		"another lane":   edit(func(j *cron.Job) *cron.Job { j.Lane = "other"; return j }),
		"other counters": edit(func(j *cron.Job) *cron.Job { j.State.RunCount, j.State.ConsecutiveErrors = 40, 2; return j }),
		"a pause of the delivery": edit(func(j *cron.Job) *cron.Job {
			j.State.DeliveryPause = cron.DeliveryPause{Since: time.UnixMilli(startOfTime), Channel: "telegram", ChatID: "7"}
			return j
		}),
		"a cancelled run": func(t *testing.T, s *Store, _ *time.Time, l *cron.Launched) {
			t.Helper()
			if _, err := s.CancelRuns(t.Context(), cron.CancelParams{RunID: l.Run.ID}); err != nil {
				t.Fatal(err)
			}
		},
		"a message to its session": func(t *testing.T, s *Store, _ *time.Time, l *cron.Launched) {
			t.Helper()
			p := message("node", l.Message.Session.Rest, "m")
			p.Message.Session = l.Message.Session
			if _, err := s.Accept(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		},
		"a lost lease": func(_ *testing.T, _ *Store, now *time.Time, _ *cron.Launched) { *now = now.Add(2 * time.Hour) },
		"a node that ends": func(t *testing.T, s *Store, _ *time.Time, _ *cron.Launched) {
			t.Helper()
			if err := s.Unregister(t.Context(), "node"); err != nil {
				t.Fatal(err)
			}
		},
		"a takeover": func(t *testing.T, s *Store, now *time.Time, _ *cron.Launched) {
			t.Helper()
			*now = now.Add(2 * time.Hour)
			register(t, s, "other")
			taken, err := s.Sweep(t.Context(), store.SweepParams{Node: "other", Limit: 10})
			if err != nil || len(taken) == 0 {
				t.Fatalf("the other node has taken %d sessions over (%v)", len(taken), err)
			}
		},
		"another run of the job": func(t *testing.T, s *Store, now *time.Time, l *cron.Launched) {
			t.Helper()
			made, err := s.EnqueueRuns(t.Context(), cron.EnqueueParams{Node: "node", JobID: l.Run.JobID, Make: func(d cron.DueJob, _ time.Time) ([]cron.Launch, error) {
				return []cron.Launch{launchOf(&d.Job, cron.TriggerManual, *now)}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := fireThrough(t.Context(), s, made.Launched[0]); err != nil {
				t.Fatal(err)
			}
		},
		"the next slot": func(t *testing.T, s *Store, now *time.Time, _ *cron.Launched) {
			t.Helper()
			*now = now.Add(time.Minute)
			c, err := s.Claim(t.Context(), cron.ClaimParams{Node: "node", Decide: fire})
			if err != nil || len(c.Launched) != 2 {
				t.Fatalf("claimed %d runs (%v)", len(c.Launched), err)
			}
		},
		"a name by another program":     below(`UPDATE cron_jobs SET name = 'another'`),
		"counters by another program":   below(`UPDATE cron_jobs SET run_count = 70`),
		"a removal by another program":  below(`DELETE FROM cron_jobs`),
		"an end by another program":     below(`UPDATE cron_run_logs SET state = 'cancelled', finished_at = 1`),
		"no runs by another program":    below(`DELETE FROM cron_run_logs`),
		"another node by other program": below(`UPDATE cron_run_logs SET node = 'other'`),
		"a lease by another program":    below(`UPDATE nodes SET lease_until = 1`),
	}
}

// TestAFireCountsWhatHappensInBetween: a fire from the cache and one that reads everything have the same results and leave the same rows, whatever comes
// between claim and start, or between start and end.
func TestAFireCountsWhatHappensInBetween(t *testing.T) {
	t.Parallel()
	for name, change := range between() {
		for _, moment := range []string{"start", "end"} {
			t.Run(name+" before the "+moment, func(t *testing.T) {
				t.Parallel()
				fromCache, read := firedWith(t, moment, change, false), firedWith(t, moment, change, true)
				if diff := cmp.Diff(read, fromCache); diff != "" {
					t.Errorf("the fire from the cache differs from the one that reads (- reads, + cache):\n%s", diff)
				}
			})
		}
	}
}

// outcome is what a fire returns and leaves.
type outcome struct {
	Started  store.Started
	Finished store.Finished
	Errors   []string
	Rows     map[string][][]any
}

// firedWith fires a job twice, the second time with a change at a moment. reads empties the cache before each operation.
func firedWith(t *testing.T, moment string, change func(t *testing.T, s *Store, now *time.Time, l *cron.Launched), reads bool) (out outcome) {
	t.Helper()
	s, now := withJobs(t, 2)
	read := func() {
		if reads {
			doInWriter(t, s, func(_ context.Context, t2 *tx) error { t2.jobs.clear(); return nil })
		}
	}
	note := func(err error) {
		if err != nil && !errors.Is(err, chat.ErrFenced) {
			t.Errorf("want no error or ErrFenced: %v", err)
		}
		out.Errors = append(out.Errors, fmt.Sprint(err))
	}
	*now = now.Add(time.Minute)
	for _, l := range claimed(t, s, fire).Launched {
		read()
		if err := fireThrough(t.Context(), s, l); err != nil {
			t.Fatal(err)
		}
	}
	*now = now.Add(time.Minute)
	l := claimed(t, s, fire).Launched[0]
	at := func(m string) {
		if *now = now.Add(time.Second); m == moment {
			change(t, s, now, &l)
		}
		read()
	}
	var err error
	at("start")
	out.Started, err = s.Start(t.Context(), *startOf(&l))
	note(err)
	at("end")
	out.Finished, err = s.Finish(t.Context(), *finishOf(&l))
	note(err)
	out.Started.SessionID = ""
	db := outside(t, s.path)
	out.Rows = map[string][][]any{
		"jobs":       query(t, db, `SELECT * FROM cron_jobs ORDER BY id`),
		"runs":       query(t, db, `SELECT `+ledgerColumns+`, compact, principal, body, entries, transcript, preview FROM cron_run_logs ORDER BY id`),
		"sessions":   query(t, db, `SELECT key, owner, epoch, last_seq, taken_seq, done_seq, waiting, last_state, preview, transcript_seq FROM sessions ORDER BY key`),
		"messages":   query(t, db, `SELECT session_key, seq, message_id, state, outcome, reason FROM inbox ORDER BY session_key, seq`),
		"turns":      query(t, db, `SELECT id, session_key, owner, epoch, attempt, state, stop_by FROM runs ORDER BY id`),
		"transcript": query(t, db, `SELECT session_key, seq, run_id, role, content FROM transcript ORDER BY session_key, seq`),
	}
	return out
}
