package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// historySteps is the number of steps of a history.
const historySteps = 100

// modelStore returns an empty store for each history. It is opened and closed within the bubble of the history.
type modelStore func(t *testing.T) cronStore

func sqliteModel(t *testing.T) cronStore { return newStore(t) }

func postgresModel(url string) modelStore {
	return func(t *testing.T) cronStore {
		wipeModel(t, url)
		st, err := postgres.Open(t.Context(), postgres.Config{URL: url, Now: time.Now, MaxConns: 2, WarmConns: -1})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
}

// wipeModel empties every table except the one of the migrations.
func wipeModel(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), `DO $$ DECLARE r record; BEGIN
		FOR r IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'laneway_migrations' LOOP
			EXECUTE 'DELETE FROM ' || quote_ident(r.tablename);
		END LOOP; END $$`)
	if err != nil {
		t.Fatal(err)
	}
}

// openProcess starts a process on the store of a history.
func (m *jobModel) openProcess(st cronStore) *modelProcess {
	off := &atomic.Bool{}
	watch := func(e cron.Event) {
		switch {
		case off.Load(), e.Job.Owner == cron.SystemOwner:
			return
		case e.Run != nil && e.Run.Reason == cron.ReasonPaused && e.Run.State == cron.RunSkipped && !resumeIsPublished:
			return
		}
		word := string(e.Action)
		if e.Run != nil {
			word += " " + e.Run.ID
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events = append(m.events, word)
	}
	return &modelProcess{off: off, jobHarness: openWatched(m.t, dying{st, off, &m.wake}, watch)}
}

// modelHistories runs random histories of jobs, with a hundred steps each.
func modelHistories(t *testing.T, open modelStore, processes int, first, n uint64) {
	t.Helper()
	steps := 0
	for seed := first; seed < first+n; seed++ {
		fault := ""
		synctest.Test(t, func(t *testing.T) {
			st := open(t)
			m := &jobModel{t: t, dice: rand.New(rand.NewPCG(seed, 11)), st: st}
			m.open = m.openProcess
			for range processes {
				m.live = append(m.live, m.open(st))
			}
			steps += m.history(historySteps)
			m.finish()
			fault = m.fault
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
		if fault != "" {
			t.Fatalf("history %d, after %d steps in all (%s=%d): %s", seed, steps, testrun.SeedVariable, seed, fault)
		}
		if done := seed - first + 1; done%100 == 0 && done < n {
			t.Logf("%d steps in %d histories", steps, done)
		}
		if t.Failed() {
			t.Fatalf("history %d (%s=%d)", seed, testrun.SeedVariable, seed)
		}
	}
	t.Logf("%d steps in %d histories, no difference", steps, n)
}

// TestRandomHistoriesOfAJobAreThoseOfThePlainModel compares a job with the model on every store, with one process and with two.
func TestRandomHistoriesOfAJobAreThoseOfThePlainModel(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprintf("sqlite/%d", processes), func(t *testing.T) {
			first, n := testrun.Seeds(t, 10, 500)
			modelHistories(t, sqliteModel, processes, first, n)
		})
		t.Run(fmt.Sprintf("postgres/%d", processes), func(t *testing.T) {
			first, n := testrun.Seeds(t, 2, 500)
			modelHistories(t, postgresModel(testpg.DB(t)), processes, first, n)
		})
	}
}
