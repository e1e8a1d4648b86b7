package history_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/history"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// index is a store that counts commits.
type index struct {
	store.Store

	commits atomic.Int64
	err     error
}

func (x *index) IndexTranscripts(context.Context) (int, error) {
	x.commits.Add(1)
	return 1, x.err
}

// leases gives the lease to one holder at a time.
type leases struct{ holder atomic.Pointer[string] }

func (l *leases) of(name string) func(context.Context, string) (bool, error) {
	return func(_ context.Context, lease string) (bool, error) {
		if lease != history.IndexLease {
			return false, errors.New("another lease: " + lease)
		}
		l.holder.CompareAndSwap(nil, &name)
		return *l.holder.Load() == name, nil
	}
}

func TestOneReplicaIndexesEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			stores [2]index
			held   leases
		)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		for i, name := range []string{"one", "two"} {
			go func() {
				history.NewIndexer(history.IndexerConfig{Store: &stores[i], Lease: held.of(name)}).Run(ctx)
				ended <- struct{}{}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := stores[0].commits.Load() + stores[1].commits.Load(); n != 1 {
			t.Errorf("%d commits in the first minute, want 1", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		one, two := stores[0].commits.Load(), stores[1].commits.Load()
		if one != 0 && two != 0 || one+two < 11 || one+two > 13 {
			t.Errorf("%d and %d commits in an hour and a minute, want some 12 of one replica", one, two)
		}
		// The holder ends without a release: the other process continues.
		held.holder.Store(nil)
		stop()
		<-ended
		<-ended
	})
}

func TestAFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := index{err: errors.New("away")}
		var held leases
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			history.NewIndexer(history.IndexerConfig{Store: &broken, Lease: held.of("one")}).Run(ctx)
		}()
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if n := broken.commits.Load(); n < 3 {
			t.Errorf("%d commits in 15 minutes, want at least 3", n)
		}
		stop()
		<-ended
	})
}

var (
	factRule = regexp.MustCompile(`f\d+`)
	whenRule = regexp.MustCompile(`above (?:on|in) (\S+),`)
)

// keeper is an agent whose summaries are the facts (words such as f12) in its input. It records the
// requests, and fails where the test asks for it.
type keeper struct {
	room, tokens int
	asked        []agent.Summary
	fail         func(n int) error
}

func (k *keeper) Room() (conversation, summary int) { return k.room, k.tokens }

func (k *keeper) Summarise(_ context.Context, s agent.Summary) (string, error) {
	k.asked = append(k.asked, s)
	if k.fail != nil {
		if err := k.fail(len(k.asked)); err != nil {
			return "", err
		}
	}
	var facts []string
	for _, e := range s.Conversation {
		facts = append(facts, factRule.FindAllString(e.Text, -1)...)
	}
	return strings.Join(facts, " "), nil
}

// periods returns the requested periods, in order.
func (k *keeper) periods() (list []string) {
	for _, s := range k.asked {
		list = append(list, whenRule.FindStringSubmatch(s.Question)[1])
	}
	return list
}

// past is a store whose clock the test sets.
type past struct {
	*sqlite.Store

	t     *testing.T
	clock time.Time
	n     int
}

func newPast(t *testing.T) *past {
	t.Helper()
	p := &past{t: t, clock: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)} // a Monday
	p.Store = sqlitetest.Open(t, sqlite.Config{Now: func() time.Time { return p.clock }})
	return p
}

// write adds messages with a fact each to a session of ann.
func (p *past) write(session string, messages, size int) {
	p.t.Helper()
	var entries []chat.TranscriptEntry
	for range messages {
		p.n++
		entries = append(entries, chat.TranscriptEntry{Role: chat.RoleUser, Text: fmt.Sprintf("f%d ", p.n) + strings.Repeat("x", size)})
	}
	if _, err := p.AppendTranscript(p.t.Context(), chat.SessionKey{Agent: "main", Rest: session}, "ann", entries); err != nil {
		p.t.Fatal(err)
	}
}

func (p *past) all(level store.TocLevel) []store.TocNode {
	p.t.Helper()
	list, err := p.Toc(p.t.Context(), store.TocQuery{Level: level, Limit: store.MaxTocNodes})
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

func (p *past) rollUp(level store.TocLevel, by agent.Summariser) (string, error) {
	return history.NewRollup(history.RollupConfig{Store: p}).Run(p.t.Context(), level, by)
}

func TestMissedPeriodsAreMadeOldestFirst(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	for day := range 40 {
		p.write("b", 1, 10)
		p.write("a", 1, 10)
		if day%2 == 0 {
			p.write("c", 1, 10)
		}
		p.clock = p.clock.AddDate(0, 0, 1)
	}
	k := &keeper{room: 3000, tokens: 1000}
	report, err := p.rollUp(store.TocMonth, k)
	if err != nil || report != "summaries made: 100 of a session and a day, 5 of a week, 1 of a month" {
		t.Fatalf("%s, %v", report, err)
	}
	asked := k.periods()
	days, weeks, months := asked[:100], asked[100:105], asked[105:]
	if !slices.IsSorted(days) || !slices.Equal(weeks, []string{"2026-W10", "2026-W11", "2026-W12", "2026-W13", "2026-W14"}) || !slices.Equal(months, []string{"2026-03"}) {
		t.Errorf("requested %v", asked)
	}
	// Each job makes the levels up to its own.
	p.write("a", 1, 10)
	p.clock = p.clock.AddDate(0, 0, 20)
	if report, err := p.rollUp(store.TocDay, k); err != nil || report != "summaries made: 1 of a session and a day, 0 of a week, 0 of a month" {
		t.Errorf("day: %s, %v", report, err)
	}
	if report, err := p.rollUp(store.TocWeek, k); err != nil || report != "summaries made: 0 of a session and a day, 1 of a week, 0 of a month" {
		t.Errorf("week: %s, %v", report, err)
	}
}

// TestALongDayIsMadeInSteps: each request fits the room, each step survives a failure, and no entry
// is left out.
func TestALongDayIsMadeInSteps(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	p.write("long", 60, 100)
	p.write("long", 1, 100_000) // one entry longer than the window
	p.write("long", 5, 100)
	p.clock = p.clock.AddDate(0, 0, 2)
	away := errors.New("away")
	k := &keeper{room: 500, tokens: 100, fail: func(n int) error {
		if n == 3 || n == 7 {
			return away
		}
		return nil
	}}
	for range 2 {
		if _, err := p.rollUp(store.TocDay, k); !errors.Is(err, away) {
			t.Fatalf("the run ended with %v", err)
		}
	}
	if got := p.all(store.TocDay); len(got) != 1 || got[0].Made != 5 {
		t.Fatalf("after two failures there is %+v", got)
	}
	if _, err := p.rollUp(store.TocDay, k); err != nil {
		t.Fatal(err)
	}
	got := p.all(store.TocDay)
	if len(got) != 1 || got[0].From != 1 || got[0].To != 66 || got[0].Entries != 66 {
		t.Fatalf("there is %+v", got)
	}
	for n := range 66 {
		if !slices.Contains(strings.Fields(got[0].Text), fmt.Sprintf("f%d", n+1)) {
			t.Errorf("f%d is left out", n+1)
		}
	}
	for i, s := range k.asked {
		tokens := 0
		for _, e := range s.Conversation {
			tokens += agent.EstimateEntry(e)
		}
		if tokens > k.room+k.tokens {
			t.Errorf("request %d has %d tokens, the room is %d", i, tokens, k.room)
		}
		if s.Tokens != k.tokens || s.Session.Rest != "long" || len(s.Conversation) == 0 {
			t.Errorf("request %d is %+v", i, s)
		}
	}
}

func TestCommandsAndSummariesOfACompactionAreLeftOut(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	p.write("a", 1, 1)
	key := chat.SessionKey{Agent: "main", Rest: "a"}
	_, err := p.AppendTranscript(t.Context(), key, "ann", []chat.TranscriptEntry{
		{Role: chat.RoleUser, Text: "/status f100", Command: true}, {Role: chat.RoleSystem, Text: "f101", Covers: chat.SeqRange{From: 1, To: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.clock = p.clock.AddDate(0, 0, 1)
	if _, err := p.AppendTranscript(t.Context(), key, "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "/status", Command: true}}); err != nil {
		t.Fatal(err)
	}
	p.clock = p.clock.AddDate(0, 0, 2)
	k := &keeper{room: 500, tokens: 100}
	if _, err := p.rollUp(store.TocDay, k); err != nil {
		t.Fatal(err)
	}
	if got := p.all(store.TocDay); len(got) != 1 || got[0].Text != "f1" || got[0].Entries != 3 || len(k.asked) != 1 {
		t.Errorf("there is %+v after %d requests", got, len(k.asked))
	}
	if list, err := p.TocBehind(t.Context(), p.clock, 10); err != nil || len(list) != 0 {
		t.Errorf("left are %+v, %v", list, err)
	}
}

// TestTooManyRefusalsEndARun: a model that refuses everything does not receive a request for every
// day.
func TestTooManyRefusalsEndARun(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	for i := range 30 {
		p.write(fmt.Sprint("s", i), 1, 1)
	}
	p.clock = p.clock.AddDate(0, 0, 2)
	k := &keeper{room: 500, tokens: 100, fail: func(int) error { return agent.NewError(chat.FailRefusal, "the model declined", nil) }}
	report, err := p.rollUp(store.TocDay, k)
	if e, ok := errors.AsType[*agent.Error](err); !ok || e.Reason != chat.FailRefusal || len(k.asked) != 20 || !strings.Contains(report, "the agent refused 20") {
		t.Errorf("%q and %v after %d requests", report, err, len(k.asked))
	}
}
