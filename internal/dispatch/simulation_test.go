package dispatch_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/store/storetest"
	"laneway/internal/testrun"
)

// People write at random to processes that share a store, stop, and clear, while processes die and
// are replaced. In the end, each accepted message has one outcome, no session ran more concurrent
// turns than its limit, and the rows satisfy every invariant.
func TestRandomHistoriesKeepEveryPromise(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	first, n := testrun.Seeds(t, 20, 10_000)
	var total tally
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		simulate(t, seed, &total)
	}
	t.Logf("%d histories: %+v", n, total)
	if n >= 20 && (total.Accepted == 0 || total.Crashes == 0 || total.Drains == 0 || total.Freezes == 0 || total.Outcomes[chat.OutcomeStopped] == 0 ||
		total.Outcomes[chat.OutcomeAnswered] == 0 || total.Outcomes[chat.OutcomeMerged] == 0) {
		t.Errorf("the histories show too little: %+v", total)
	}
}

// tally counts the events of all histories.
type tally struct {
	Accepted, Refused, Crashes, Drains, Freezes int
	Events, Rows, Interrupts                    int
	Outcomes                                    map[chat.Outcome]int
}

// simulation is one random history.
type simulation struct {
	t     *testing.T
	dice  *rand.Rand
	st    *sqlite.Store
	alive []*simulated
	dead  []*simulated
	ids   []string
	tally *tally
	n     int
}

type simulated struct {
	*harness

	off *atomic.Bool
}

// simulatedQueue has the rules of the simulated sessions; its limits are small, so that queues
// overflow.
func simulatedQueue(_, _, kind string) scheduler.Settings {
	s := scheduler.Settings{Cap: 4, Debounce: 500 * time.Millisecond, MaxConcurrent: 1}
	if kind == chat.KindGroup {
		s.MaxConcurrent, s.DropNew = 3, true
	}
	return s
}

func simulate(t *testing.T, seed uint64, total *tally) {
	t.Helper()
	defer func() { // a failure inside the bubble ends by runtime.Goexit
		if t.Failed() {
			t.Logf("%s=%d", testrun.SeedVariable, seed)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "laneway.db")
		st := sqlitetest.Open(t, sqlite.Config{Path: path})
		s := &simulation{t: t, dice: rand.New(rand.NewPCG(seed, 7)), st: st, tally: total}
		s.open()
		s.open()
		for range 40 + s.dice.IntN(80) {
			s.step()
		}
		s.finish()
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		storetest.CheckInvariants(t, func(tb testing.TB, text string, args ...any) [][]any {
			tb.Helper()
			return storetest.Query(tb, db, text, args...)
		}, time.Now(), dispatch.DefaultLease, 4)
	})
}

func (s *simulation) open() {
	st, off := cord(s.st)
	h := open(s.t, st, lanes(2), func(c *dispatch.Config) { c.Queue = simulatedQueue })
	s.alive = append(s.alive, &simulated{h, off})
}

func (s *simulation) any() *simulated { return s.alive[s.dice.IntN(len(s.alive))] }

// step executes one random step.
func (s *simulation) step() {
	switch s.dice.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8:
		s.write(s.text())
	case 9:
		s.write("/stop")
	case 10:
		s.write([]string{"/stopall", "/new", "/queue clear", "/queue collect", "/queue queue", "/status"}[s.dice.IntN(6)])
	case 11:
		s.replace()
	case 12:
		if s.dice.IntN(3) == 0 {
			s.freeze()
		}
	case 13:
		s.burst()
	default:
		time.Sleep(time.Duration(s.dice.IntN(3000)) * time.Millisecond)
	}
}

func (s *simulation) text() string {
	switch s.dice.IntN(8) {
	case 0:
		return "fail"
	case 1:
		return "panic"
	case 2:
		return fmt.Sprintf("deaf %dms", 1+s.dice.IntN(6000))
	case 3, 4, 5:
		return fmt.Sprintf("sleep %dms", 1+s.dice.IntN(6000))
	default:
		return "hello"
	}
}

// simulatedSessions are the sessions to which people write.
var simulatedSessions = []string{"main", "two", "box:direct:7", "box:group:1"}

// write sends a message to a random process.
func (s *simulation) write(text string) {
	h := s.any()
	m := s.message(h, text)
	s.offered(m, s.offer(h, m))
}

// burst sends several interrupts concurrently to one session, each to a random process.
func (s *simulation) burst() {
	var all []chat.Message
	var to []*simulated
	key := simulatedSessions[s.dice.IntN(4)]
	for range 2 + s.dice.IntN(6) {
		h := s.any()
		m := s.message(h, "hello")
		m.Session, m.Content.Options.Mode, m.Content.Options.Typed = h.msg(key, "x").Session, chat.ModeInterrupt, false
		all, to = append(all, m), append(to, h)
	}
	errs := make([]error, len(all))
	var offers sync.WaitGroup
	for i, m := range all {
		offers.Go(func() { errs[i] = s.offer(to[i], m) })
	}
	offers.Wait()
	for i, m := range all {
		s.offered(m, errs[i])
	}
}

// message returns a random message for a process.
func (s *simulation) message(h *simulated, text string) chat.Message {
	m := h.msg(simulatedSessions[s.dice.IntN(4)], text)
	s.n++
	m.ID = fmt.Sprint("s", s.n)
	m.Content.Sender.ID = []string{"anna", "bob"}[s.dice.IntN(2)]
	m.Content.Options.Typed = s.dice.IntN(2) == 0
	m.Content.Options.NoMerge = s.dice.IntN(10) == 0
	m.Content.Options.AtMostOnce = s.dice.IntN(10) == 0
	if modes := []chat.QueueMode{chat.ModeInterrupt, chat.ModeCollect, chat.ModeSteer}; s.dice.IntN(5) == 0 {
		m.Content.Options.Mode = modes[s.dice.IntN(len(modes))]
	}
	if s.dice.IntN(4) == 0 {
		m.Lane = scheduler.LaneCron
	}
	return m
}

func (s *simulation) offer(h *simulated, m chat.Message) error {
	_, err := h.d.Receive(s.t.Context(), m)
	return err
}

// offered records the result of sending a message. An interrupt is never refused for a full queue.
func (s *simulation) offered(m chat.Message, err error) {
	interrupts := m.Content.Options.Mode == chat.ModeInterrupt && !m.Content.Options.Typed // one that joins a window interrupts nothing
	switch {
	case err == nil:
		s.ids = append(s.ids, m.ID)
		if interrupts {
			s.tally.Interrupts++
		}
	case errors.Is(err, chat.ErrQueueFull) && !interrupts, errors.Is(err, chat.ErrStoreUnavailable): // the latter after a freeze, until it has a new incarnation
		s.tally.Refused++
	default:
		s.t.Errorf("message %q to %s: %v", m.Content.Text, m.Session, err)
	}
}

// replace stops or kills a process, and starts another.
func (s *simulation) replace() {
	i := s.dice.IntN(len(s.alive))
	h := s.alive[i]
	s.alive = append(s.alive[:i], s.alive[i+1:]...)
	if s.dice.IntN(2) == 0 {
		h.off.Store(true)
		s.dead = append(s.dead, h)
		s.tally.Crashes++
	} else {
		h.close()
		s.tally.Drains++
	}
	s.open()
}

// freeze disconnects a process from the store for longer than its lease and then reconnects it: its
// pending writes must be refused.
func (s *simulation) freeze() {
	h := s.any()
	h.off.Store(true)
	time.Sleep(10*time.Second + time.Duration(s.dice.IntN(15_000))*time.Millisecond)
	h.off.Store(false)
	s.tally.Freezes++
}

// finish waits until all work has ended and checks every message.
func (s *simulation) finish() {
	s.t.Helper()
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	if held, err := s.st.Held(s.t.Context()); held.Unfinished != 0 || err != nil {
		s.t.Errorf("%d messages have no outcome after ten minutes (%v)", held.Unfinished, err)
	}
	if s.tally.Outcomes == nil {
		s.tally.Outcomes = map[chat.Outcome]int{}
	}
	for _, id := range s.ids {
		m, err := s.st.MessageByID(s.t.Context(), id)
		if err != nil || m.Outcome == "" {
			s.t.Errorf("message %s has no outcome: %+v, %v", id, m, err)
			continue
		}
		s.tally.Outcomes[m.Outcome]++
	}
	s.tally.Accepted += len(s.ids)
	for _, h := range append(s.alive, s.dead...) {
		s.limits(h)
		s.eventsInOrder(h)
	}
	for _, session := range simulatedSessions {
		s.rowsInOrder(s.alive[0], session)
	}
	for _, h := range s.alive { // first, because ending the killed processes takes hours, in which these would continue to sweep
		if l := h.d.Lanes(); l.Running != 0 || l.Waiting != 0 || l.Tracked != 0 {
			s.t.Errorf("at rest the scheduler shows %+v", l)
		}
		h.close()
	}
	for _, h := range s.dead {
		h.abandon()
	}
}

func (s *simulation) limits(h *simulated) {
	h.runner.mu.Lock()
	defer h.runner.mu.Unlock()
	for key, most := range h.runner.most {
		limit := 1
		if key == "agent:main:box:group:1" {
			limit = 3
		}
		if most > limit {
			s.t.Errorf("%d turns of %s at once, limit %d", most, key, limit)
		}
	}
	if h.runner.mostAll > 4 {
		s.t.Errorf("%d turns at once in two lanes of two", h.runner.mostAll)
	}
}

// eventsInOrder checks the events of each run that the subscribers of a process received:
// increasing numbers, at most one end, and nothing after it.
func (s *simulation) eventsInOrder(h *simulated) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, over := map[string]int64{}, map[string]bool{}
	for _, e := range h.events {
		if e.Kind == chat.EventSession {
			continue
		}
		if over[e.RunID] || e.Seq <= last[e.RunID] {
			s.t.Errorf("event %s of %s has number %d after %d, over: %t", e.Kind, e.RunID, e.Seq, last[e.RunID], over[e.RunID])
		}
		last[e.RunID] = e.Seq
		over[e.RunID] = e.Kind == chat.EventFinal || e.Kind == chat.EventAborted || e.Kind == chat.EventFailed
		s.tally.Events++
	}
}

// rowsInOrder checks that the transcript of a session has the messages in the order of their
// acceptance.
func (s *simulation) rowsInOrder(h *simulated, session string) {
	key := h.msg(session, "x").Session
	tr, err := s.st.Transcript(s.t.Context(), store.TranscriptQuery{Session: key, FromStart: true, Limit: 100_000})
	if err != nil {
		s.t.Fatal(err)
	}
	rowsOf := map[string]int{} // user rows by run
	for _, e := range tr.Entries {
		if e.Role == chat.RoleUser && !e.Command {
			rowsOf[e.RunID]++
		}
	}
	seqs := s.seqsByRun(key)
	last, lastRun := int64(0), ""
	taken := map[string]int{}
	for _, e := range tr.Entries {
		if e.Role != chat.RoleUser || e.Command || rowsOf[e.RunID] != len(seqs[e.RunID]) {
			continue // a message that had an outcome when its turn started has a row as well
		}
		seq := seqs[e.RunID][taken[e.RunID]]
		taken[e.RunID]++
		if seq < last {
			s.t.Errorf("session %s: message %d of run %s is after message %d of run %s", session, seq, e.RunID, last, lastRun)
		}
		last, lastRun = seq, e.RunID
		s.tally.Rows++
	}
}

// seqsByRun returns the numbers of the messages of each run of a session, ascending.
func (s *simulation) seqsByRun(key chat.SessionKey) map[string][]int64 {
	seqs := map[string][]int64{}
	for _, id := range s.ids {
		m, err := s.st.MessageByID(s.t.Context(), id)
		if err == nil && m.Session == key && m.RunID != "" {
			seqs[m.RunID] = append(seqs[m.RunID], m.Seq)
		}
	}
	for _, list := range seqs {
		slices.Sort(list)
	}
	return seqs
}
