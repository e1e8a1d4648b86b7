package usage_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testrun"
	"laneway/internal/usage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked is a request of a hundred tokens.
var asked = chat.Usage{InputTokens: 90, OutputTokens: 10, Model: "m"}

var tokens = usage.Limit{Tokens: 10_000}

// begin makes a meter that runs until end is called, as a process does.
func begin(t *testing.T, st usage.Store, cfg usage.Config) (m *usage.Meter, end func()) {
	t.Helper()
	m = usage.New(cfg, st)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	return m, func() { cancel(); <-done }
}

// total returns the stored usage of today.
func total(t *testing.T, st usage.Store) (sum usage.Counted) {
	t.Helper()
	rows, err := st.UsageRows(t.Context(), usage.Query{From: "1990-01-01", To: "2100-01-01"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		sum.Add(r.Counted)
	}
	return sum
}

// spend runs a turn that calls its model until a budget refuses it; each request takes the given
// time.
func spend(ctx context.Context, m *usage.Meter, who usage.Who, takes time.Duration) error {
	turn := m.Turn(who)
	for {
		if err := turn.Allow(ctx); err != nil {
			return err
		}
		timer := time.NewTimer(takes)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		turn.Count(asked)
	}
}

func TestThirtyTurnsPassABudgetByOneRoundEachAtMost(t *testing.T) {
	t.Parallel()
	for name, budgets := range map[string]usage.Budgets{
		"day": {Day: tokens}, "principal": {Principal: tokens}, "job": {Job: tokens},
	} {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d", name, replicas), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const turns = 30
					st := sqlitetest.Open(t, sqlite.Config{})
					meters, ends := make([]*usage.Meter, replicas), make([]func(), replicas)
					for i := range meters {
						meters[i], ends[i] = begin(t, st, usage.Config{Budgets: budgets})
					}
					var group sync.WaitGroup
					errs := make([]error, turns)
					for i := range turns {
						group.Go(func() {
							errs[i] = spend(t.Context(), meters[i%replicas], usage.Who{Principal: "anna", Agent: "main", Job: "j"}, time.Duration(i+1)*7*time.Millisecond)
						})
					}
					group.Wait()
					for _, end := range ends {
						end()
					}
					for i, err := range errs {
						var over *usage.OverError
						if !errors.As(err, &over) || string(over.State.Kind) != name {
							t.Errorf("turn %d ended with %v, want the budget %s", i, err, name)
						}
					}
					got := total(t, st).Spent().Tokens
					if got < tokens.Tokens || got > tokens.Tokens+turns*100 {
						t.Errorf("%d tokens were used, want %d to %d", got, tokens.Tokens, tokens.Tokens+turns*100)
					}
				})
			})
		}
	}
}

func TestATurnHasABudgetOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		m, end := begin(t, st, usage.Config{Budgets: usage.Budgets{Turn: usage.Limit{Tokens: 250}}})
		defer end()
		turn := m.Turn(usage.Who{Principal: "anna", Agent: "main"})
		turn.Before(asked) // an earlier attempt
		for range 2 {
			if err := turn.Allow(t.Context()); err != nil {
				t.Fatal(err)
			}
			turn.Count(asked)
		}
		var over *usage.OverError
		if err := turn.Allow(t.Context()); !errors.As(err, &over) || over.State.Kind != usage.KindTurn || over.State.Spent.Tokens != 300 {
			t.Errorf("the third request: %v", err)
		}
		if err := m.Turn(usage.Who{Principal: "anna", Agent: "main"}).Allow(t.Context()); err != nil {
			t.Errorf("another turn: %v", err)
		}
	})
}

// TestARestartForgetsNothing ends a process without a warning, between the request of a turn and
// its end.
func TestARestartForgetsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		cfg := usage.Config{Budgets: usage.Budgets{Principal: usage.Limit{Tokens: 150}}}
		who := usage.Who{Principal: "anna", Agent: "main"}
		killed, end := begin(t, st, cfg)
		defer end()
		turn := killed.Turn(who)
		for range 2 {
			turn.Count(asked)
			if err := turn.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		m, endNext := begin(t, st, cfg)
		defer endNext()
		var over *usage.OverError
		if err := m.Turn(who).Allow(t.Context()); !errors.As(err, &over) || over.State.Spent.Tokens != 200 {
			t.Errorf("after a restart: %v", err)
		}
	})
}

// unsure commits and then reports a failure, n times.
type unsure struct {
	usage.Store

	mu sync.Mutex
	n  int
}

func (u *unsure) AddUsage(ctx context.Context, b usage.Batch, day string, read []usage.Scope) (map[usage.Scope]usage.Spent, error) {
	spent, err := u.Store.AddUsage(ctx, b, day, read)
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil && u.n > 0 {
		u.n--
		return nil, chat.ErrStoreUnavailable
	}
	return spent, err
}

func TestABatchWithoutAnAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &unsure{Store: sqlitetest.Open(t, sqlite.Config{}), n: 3}
		m, end := begin(t, st, usage.Config{Budgets: usage.Budgets{Day: tokens}})
		turn := m.Turn(usage.Who{Principal: "anna", Agent: "main"})
		failed := 0
		for range 10 {
			turn.Count(asked)
			for {
				err := turn.Settle(t.Context())
				if err == nil {
					break
				}
				if failed++; !errors.Is(err, chat.ErrStoreUnavailable) {
					t.Fatal(err)
				}
			}
		}
		turn.Count(asked) // written by the end
		end()
		if got := total(t, st).Spent().Tokens; got != 1100 || failed != 3 {
			t.Errorf("%d tokens after %d failures, want 1100 after 3", got, failed)
		}
		if err := turn.Settle(t.Context()); !errors.Is(err, usage.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// picky permanently refuses every batch with a record of one agent.
type picky struct {
	usage.Store

	agent string
}

var errOutOfRange = errors.New("the value is out of range")

func (p picky) AddUsage(ctx context.Context, b usage.Batch, day string, read []usage.Scope) (map[usage.Scope]usage.Spent, error) {
	for _, r := range b.Records {
		if r.Agent == p.agent {
			return nil, errOutOfRange
		}
	}
	return p.Store.AddUsage(ctx, b, day, read)
}

func TestARecordThatCanNeverBeStoredFailsNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, counted := sqlitetest.Open(t, sqlite.Config{}), prometheus.NewRegistry()
		m, end := begin(t, picky{st, "broken"}, usage.Config{Budgets: usage.Budgets{Day: tokens}, Metrics: counted})
		for range 3 {
			for i, agent := range []string{"broken", "main", "second"} {
				turn := m.Turn(usage.Who{Principal: fmt.Sprint("p", i), Agent: agent})
				turn.Count(asked)
				if agent == "second" { // written with the earlier ones
					if err := turn.Allow(t.Context()); err != nil {
						t.Errorf("a turn of another agent: %v", err)
					}
				}
			}
		}
		end()
		if got, dropped := total(t, st).Spent().Tokens, testrun.Counted(t, counted, "laneway_usage_records_dropped_total")[""]; got != 600 || dropped != 3 {
			t.Errorf("%d tokens are stored and %d records dropped, want 600 and 3", got, dropped)
		}
	})
}

func TestBudgetsSurviveAbsurdCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, end := begin(t, sqlitetest.Open(t, sqlite.Config{}), usage.Config{
			Budgets: usage.Budgets{Day: tokens, Turn: tokens}, Prices: map[string]usage.Price{"main": {Input: 1 << 62}},
		})
		defer end()
		for range 3 {
			turn := m.Turn(usage.Who{Principal: "anna", Agent: "main"})
			for range 3 {
				turn.Count(chat.Usage{InputTokens: 1 << 62, OutputTokens: 1 << 62})
			}
			var over *usage.OverError
			if err := turn.Allow(t.Context()); !errors.As(err, &over) || over.State.Spent.Tokens < 0 || over.State.Spent.Cost < 0 {
				t.Errorf("got %v, want the budget of the turn", err)
			}
			if err := m.Turn(usage.Who{Principal: "bert", Agent: "main"}).Allow(t.Context()); !errors.As(err, &over) || over.State.Kind != usage.KindDay {
				t.Errorf("got %v, want the budget of the day", err)
			}
		}
	})
}

func TestCountersAreWrittenTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		st := sqlitetest.Open(t, sqlite.Config{Before: func(_ context.Context, op string) error {
			if op == "count what agents use" {
				writes.Add(1)
			}
			return nil
		}})
		m, end := begin(t, st, usage.Config{Budgets: usage.Budgets{Turn: tokens}, Prices: map[string]usage.Price{"main": {Input: 2 * usage.Unit, Output: 10 * usage.Unit}}})
		for range 500 {
			turn := m.Turn(usage.Who{Principal: "anna", Agent: "main"})
			if err := turn.Allow(t.Context()); err != nil {
				t.Fatal(err)
			}
			turn.Count(asked)
			turn.End(chat.Usage{InputTokens: 90, OutputTokens: 20, Model: "m"}, time.Minute)
		}
		if time.Sleep(1100 * time.Millisecond); writes.Load() != 1 {
			t.Errorf("%d transactions for 500 turns, want 1", writes.Load())
		}
		end()
		want := usage.Counted{Turns: 500, Requests: 1000, InputTokens: 45_000, OutputTokens: 10_000, Cost: 500 * (180 + 200) * usage.Unit / 1_000_000}
		if got := total(t, st); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestATurnWithoutTokensCountsWithItsTime: the time counts for a turn whose agent reports no
// tokens, but not if it has reported some, in this attempt or in an earlier one.
func TestATurnWithoutTokensCountsWithItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		m, end := begin(t, st, usage.Config{})
		who := usage.Who{Principal: "anna", Agent: "main"}
		for range 2 {
			m.Turn(who).End(chat.Usage{}, 90*time.Second+time.Microsecond)
		}
		m.Turn(who).End(chat.Usage{InputTokens: 1}, time.Hour)
		counted := m.Turn(who)
		counted.Count(chat.Usage{InputTokens: 2})
		counted.End(chat.Usage{}, time.Hour)
		again := m.Turn(who)
		again.Before(chat.Usage{OutputTokens: 3})
		again.End(chat.Usage{}, time.Hour)
		r, err := m.Report(t.Context(), "anna", true)
		if want := "today: 3 tokens, and 3m0s of turns whose agents report none"; err != nil || r.Lines()[0] != want {
			t.Errorf("got %v and %v, want %q", r.Lines(), err, want)
		}
		end()
		if got, want := total(t, st), (usage.Counted{Turns: 5, Requests: 2, InputTokens: 3, Unreported: 3 * time.Minute}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestADayBeginsInTheZoneOfTheGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		zone, err := schedule.LoadZone("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 3, 28, 22, 59, 0, 0, time.UTC) // 23:59 in Berlin; the next day has 23 hours
		m, end := begin(t, sqlitetest.Open(t, sqlite.Config{}), usage.Config{
			Budgets: usage.Budgets{Principal: usage.Limit{Tokens: 100}}, Zone: zone, Now: func() time.Time { return now },
		})
		defer end()
		turn := m.Turn(usage.Who{Principal: "anna", Agent: "main"})
		turn.Count(asked)
		var over *usage.OverError
		if err := turn.Allow(t.Context()); !errors.As(err, &over) {
			t.Fatalf("got %v, want the budget", err)
		}
		const sentence = "Your budget for today is used up (100 of 100 tokens). A new one begins on 2026-03-29 at 00:00 CET."
		if over.Error() != sentence {
			t.Errorf("got %q, want %q", over.Error(), sentence)
		}
		if !m.Over("anna", "j") || m.Over("bert", "j") {
			t.Error("what is used up is not known")
		}
		synctest.Wait()
		now = now.Add(time.Minute)
		if err := turn.Allow(t.Context()); err != nil || m.Over("anna", "j") {
			t.Errorf("on the next day: %v", err)
		}
	})
}

func TestEachLevelIsNotedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, end := begin(t, sqlitetest.Open(t, sqlite.Config{}), usage.Config{
			Budgets: usage.Budgets{Principal: usage.Limit{Tokens: 500}, Day: usage.Limit{Cost: usage.Unit}, Currency: "EUR"},
			Prices:  map[string]usage.Price{"main": {Input: 1000 * usage.Unit}},
		})
		defer end()
		turn := m.Turn(usage.Who{Principal: "anna", Agent: "main"})
		var noted []string
		for range 12 {
			turn.Count(asked)
			if err := turn.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, s := range turn.Notices() {
				noted = append(noted, s.Sentence())
			}
		}
		want := []string{
			"Your budget for today is used to 80 % or more (400 of 500 tokens).",
			"Your budget for today is used up (500 of 500 tokens). A new one begins on 2000-01-02 at 00:00 UTC.",
			"The gateway's budget for today is used to 80 % or more (0.81 of 1.00 EUR).",
			"The gateway's budget for today is used up (1.08 of 1.00 EUR). A new one begins on 2000-01-02 at 00:00 UTC.",
		}
		if !slices.Equal(noted, want) {
			t.Errorf("got %q, want %q", noted, want)
		}
	})
}

// TestModelsThatPeopleNameAreBounded: people may choose any model name.
func TestModelsThatPeopleNameAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, counted := sqlitetest.Open(t, sqlite.Config{}), prometheus.NewRegistry()
		m, end := begin(t, st, usage.Config{Models: map[string]string{"main": "model-3"}, Metrics: counted})
		turn := m.Turn(usage.Who{Principal: "anna", Agent: "main"})
		for i := range 200 {
			turn.Count(chat.Usage{InputTokens: 1, Model: fmt.Sprint("model-", i)})
		}
		end()
		rows, err := st.UsageRows(t.Context(), usage.Query{From: "2000-01-01", To: "2100-01-01", By: usage.ByModel, Limit: 1000})
		if err != nil || len(rows) != 51 || rows[0].Name != "other" || rows[0].Requests != 150 {
			t.Errorf("%d rows, the first is %+v (%v); want 51, the first one the other 150", len(rows), rows[0], err)
		}
		want := map[string]int{"main input model-3": 1, "main input other": 199}
		if got := testrun.Counted(t, counted, "laneway_model_tokens_total"); !maps.Equal(got, want) {
			t.Errorf("the metrics have %v, want %v", got, want)
		}
	})
}

// TestOldCountersAreRemoved with the first write of a day, in steps.
func TestOldCountersAreRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		var old usage.Batch
		for i := range 700 {
			old.Records = append(old.Records, usage.Record{Key: usage.Key{Day: "1998-05-01", Principal: fmt.Sprint("p", i)}, Counted: usage.Counted{InputTokens: 1}})
		}
		old.Writer, old.Number, old.Day = "gone", 1, "1998-05-01"
		old.Records = append(old.Records, usage.Record{Key: usage.Key{Day: "1999-06-01", Principal: "anna"}, Counted: usage.Counted{InputTokens: 5}})
		if _, err := st.AddUsage(t.Context(), old, "1999-06-01", nil); err != nil {
			t.Fatal(err)
		}
		m, end := begin(t, st, usage.Config{})
		for range 10 {
			m.Turn(usage.Who{Principal: "anna"}).Count(asked)
			time.Sleep(2 * time.Second)
		}
		end()
		if got := total(t, st).Spent().Tokens; got != 1005 {
			t.Errorf("%d tokens are left, want those of this day and of the last months, 1005", got)
		}
	})
}

func TestPricesAndAmounts(t *testing.T) {
	t.Parallel()
	price := usage.Price{Input: usage.MoneyOf(2.5), Output: usage.MoneyOf(10), Cached: usage.MoneyOf(0.25)}
	if got, want := price.Of(chat.Usage{InputTokens: 1_000_000, CachedTokens: 400_000, OutputTokens: 1000}), usage.MoneyOf(1.5+0.1+0.01); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for amount, want := range map[usage.Money]string{
		0: "0.00", usage.Unit: "1.00", usage.MoneyOf(0.015): "0.015", usage.MoneyOf(1234.5): "1234.50", usage.MoneyOf(0.0000012): "0.000001", 150: "0.00",
	} {
		if got := amount.String(); got != want {
			t.Errorf("%d: got %s, want %s", int64(amount), got, want)
		}
	}
}
