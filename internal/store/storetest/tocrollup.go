package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/history"
	"laneway/internal/store"
)

var factRule = regexp.MustCompile(`f\d+`)

// noter is an agent whose summary of a text is its facts (words such as f12). A fact that occurs
// twice is twice in its summary.
type noter struct{}

// Room implements [agent.Summariser].
func (noter) Room() (conversation, summary int) { return 3000, 1500 }

// Summarise implements [agent.Summariser].
func (noter) Summarise(_ context.Context, s agent.Summary) (string, error) {
	var all []string
	for _, e := range s.Conversation {
		all = append(all, factRule.FindAllString(e.Text, -1)...)
	}
	return "facts " + strings.Join(all, " "), nil
}

var errKilled = errors.New("killed")

// mortal is the store of a process that is killed before or after one of its next operations.
type mortal struct {
	store.Store

	mu   sync.Mutex
	left int
	late bool
}

func (m *mortal) at(run func() error) error {
	m.mu.Lock()
	m.left--
	left := m.left
	m.mu.Unlock()
	if left < 0 || left == 0 && !m.late {
		return errKilled
	}
	err := run()
	if left == 0 {
		return errKilled
	}
	return err
}

func (m *mortal) TocBehind(ctx context.Context, before time.Time, limit int) (list []store.TocBehind, err error) {
	err = m.at(func() (err error) { list, err = m.Store.TocBehind(ctx, before, limit); return err })
	return list, err
}

func (m *mortal) TocEntries(ctx context.Context, key chat.SessionKey, after int64, limit, maxBytes int) (list []store.TocEntry, err error) {
	err = m.at(func() (err error) { list, err = m.Store.TocEntries(ctx, key, after, limit, maxBytes); return err })
	return list, err
}

func (m *mortal) PutTocPart(ctx context.Context, p store.TocPart) (ok bool, err error) {
	err = m.at(func() (err error) { ok, err = m.Store.PutTocPart(ctx, p); return err })
	return ok, err
}

func (m *mortal) BeginTocNode(ctx context.Context, ref store.TocRef, claim string) (ok bool, err error) {
	err = m.at(func() (err error) { ok, err = m.Store.BeginTocNode(ctx, ref, claim); return err })
	return ok, err
}

func (m *mortal) EndTocNode(ctx context.Context, ref store.TocRef, claim, text string) (ok bool, err error) {
	err = m.at(func() (err error) { ok, err = m.Store.EndTocNode(ctx, ref, claim, text); return err })
	return ok, err
}

func (m *mortal) Toc(ctx context.Context, q store.TocQuery) (list []store.TocNode, err error) {
	err = m.at(func() (err error) { list, err = m.Store.Toc(ctx, q); return err })
	return list, err
}

// factLog is a history: facts by owner, session and day in Berlin.
type factLog struct {
	*world

	zone  *time.Location
	n     int
	facts map[string][]string // by owner, session and day, each with a trailing space
}

func newFactLog(w *world) *factLog {
	zone := try(schedule.LoadZone("Europe/Berlin")).ok(w)
	return &factLog{world: w, zone: zone, facts: map[string][]string{}}
}

// at adds a message with the next fact.
func (s *factLog) at(t time.Time, key chat.SessionKey, owner string) {
	s.Helper()
	s.clock.ms.Store(t.UnixMilli())
	s.n++
	fact := fmt.Sprintf("f%d", s.n)
	try(s.st.AppendTranscript(s.ctx, key, owner, []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "We talked about " + fact + "."}})).ok(s)
	name := owner + " " + key.String() + " " + t.In(s.zone).Format("2006-01-02")
	s.facts[name] = append(s.facts[name], fact)
}

// days fills this many days from the start of the clock: two sessions of ann, and on every third
// day one of bob.
func (s *factLog) days(n int) (anns [2]chat.SessionKey) {
	s.Helper()
	anns = [2]chat.SessionKey{s.key(), s.key()}
	bobs := s.key()
	begin := s.clock.now().Truncate(24 * time.Hour)
	for day := range n {
		noon := begin.AddDate(0, 0, day).Add(12 * time.Hour)
		s.at(noon, anns[0], "ann")
		s.at(noon.Add(time.Minute), anns[1], "ann")
		if day%3 == 0 {
			s.at(noon.Add(2*time.Minute), bobs, "bob")
		}
		s.at(noon.Add(11*time.Hour+30*time.Minute), anns[0], "ann") // the next day in Berlin
		if day%20 == 7 {
			try(s.st.ResetSession(s.ctx, store.ResetParams{Session: anns[0], Principal: "ann", NewID: s.id("t")})).ok(s)
		}
	}
	return anns
}

// rollUp makes all summaries up to the months with this many concurrent processes, each killed
// repeatedly if requested.
func (s *factLog) rollUp(processes int, kills bool) {
	s.Helper()
	var group sync.WaitGroup
	faults := make([]error, processes)
	for i := range processes {
		st, rnd := s.h.Open(), rand.New(rand.NewPCG(1, uint64(i))) // a repeatable test
		group.Go(func() { faults[i] = s.untilDone(st, rnd, kills) })
	}
	group.Wait()
	s.ok(errors.Join(faults...))
}

func (s *factLog) untilDone(st store.Store, rnd *rand.Rand, kills bool) error {
	for range 10_000 {
		m := &mortal{Store: st, left: 1 << 30}
		if kills {
			m.left, m.late = 1+rnd.IntN(80), rnd.IntN(2) == 0
		}
		wait := func(ctx context.Context, d time.Duration) error { s.clock.advance(d); return ctx.Err() }
		_, err := history.NewRollup(history.RollupConfig{Store: m, Zone: s.zone, Wait: wait}).Run(s.ctx, store.TocMonth, noter{})
		if busy, ok := errors.AsType[*agent.Error](err); ok && busy.Reason == chat.FailTimeout {
			continue // it has waited for the other process, whose work the next run continues
		}
		if !errors.Is(err, errKilled) {
			return err
		}
	}
	return errors.New("there is no end")
}

// all reads every summary of a level.
func (s *factLog) all(level store.TocLevel) (list []store.TocNode) {
	s.Helper()
	for {
		page := s.toc(store.TocQuery{Level: level, Limit: store.MaxTocNodes, Offset: len(list)})
		if len(page) == 0 {
			return list
		}
		list = append(list, page...)
	}
}

// wanted are the facts that each summary must have now, by its period and owner.
func (s *factLog) wanted() (days, weeks, months map[string][]string) {
	now := s.clock.now()
	days, weeks, months = map[string][]string{}, map[string][]string{}, map[string][]string{}
	for name, facts := range s.facts {
		parts := strings.Split(name, " ")
		date := try(time.ParseInLocation("2006-01-02", parts[2], s.zone)).ok(s)
		if now.Before(date.AddDate(0, 0, 1).Add(time.Hour)) {
			continue
		}
		days[name] = facts
		thursday := date.AddDate(0, 0, 3-(int(date.Weekday())+6)%7)
		if now.Before(thursday.AddDate(0, 0, 4).Add(24 * time.Hour)) {
			continue
		}
		year, week := date.ISOWeek()
		weeks[fmt.Sprintf("%s %d-W%02d", parts[0], year, week)] = append(weeks[fmt.Sprintf("%s %d-W%02d", parts[0], year, week)], facts...)
		last := thursday // of the month
		for last.AddDate(0, 0, 7).Month() == thursday.Month() {
			last = last.AddDate(0, 0, 7)
		}
		if !now.Before(last.AddDate(0, 0, 4).Add(24 * time.Hour)) {
			months[parts[0]+" "+thursday.Format("2006-01")] = append(months[parts[0]+" "+thursday.Format("2006-01")], facts...)
		}
	}
	return days, weeks, months
}

// check compares every summary with the facts, and how many times each was made; made names those
// that were made more than once.
func (s *factLog) check(made map[string]int) {
	s.Helper()
	days, weeks, months := s.wanted()
	for level, want := range map[store.TocLevel]map[string][]string{store.TocDay: days, store.TocWeek: weeks, store.TocMonth: months} {
		got := map[string][]string{}
		for _, n := range s.all(level) {
			name := n.Owner + " " + n.Period
			if level == store.TocDay {
				name = n.Owner + " " + n.Session.String() + " " + n.Period
				equal(s.world, "messages of "+name, n.Entries, len(want[name]))
			}
			got[name] = factRule.FindAllString(n.Text, -1)
			slices.Sort(got[name])
			equal(s.world, "how many times "+name+" was made", n.Made, max(made[name], 1))
			equal(s.world, "stale "+name, n.Stale, false)
		}
		for _, facts := range want {
			slices.Sort(facts)
		}
		equal(s.world, "what there is of each "+string(level), slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		equal(s.world, "the facts of each "+string(level), got, want)
	}
	if len(weeks) == 0 {
		s.Fatalf("no week is tested")
	}
}

func tocThreeMonths(w *world) {
	s := newFactLog(w)
	s.days(92)
	s.rollUp(2, true)
	s.check(nil)
	days, weeks, months := s.wanted()
	if len(days) < 210 || len(weeks) < 24 || len(months) < 4 {
		w.Fatalf("%d days, %d weeks and %d months are too few", len(days), len(weeks), len(months))
	}
	// Nothing is made again, and later entries are summarized the next time.
	s.rollUp(1, false)
	s.check(nil)
	w.clock.advance(9 * 24 * time.Hour)
	s.rollUp(2, true)
	s.check(nil)
}

func tocLateDay(w *world) {
	s := newFactLog(w)
	anns := s.days(60)
	s.rollUp(1, false)
	s.check(nil)
	now := w.clock.now()
	late := time.Date(2026, 3, 20, 10, 0, 0, 0, time.UTC)
	s.at(late, anns[0], "ann") // a row with an old time, after newer ones
	s.at(late.Add(time.Hour), anns[0], "ann")
	w.clock.ms.Store(now.AddDate(0, 0, 1).UnixMilli())
	s.rollUp(2, true)
	s.check(map[string]int{"ann " + anns[0].String() + " 2026-03-20": 2, "ann 2026-W12": 2, "ann 2026-03": 2})
}

// hasNone fails when a part has one of the facts.
func (s *factLog) hasNone(gone map[string]bool, when string) {
	s.Helper()
	for _, level := range []store.TocLevel{store.TocDay, store.TocWeek, store.TocMonth} {
		for _, n := range s.all(level) {
			for _, f := range factRule.FindAllString(n.Text, -1) {
				if gone[f] {
					s.Fatalf("%s %s %s still has %s, which was deleted", when, n.Level, n.Period, f)
				}
			}
		}
	}
}

func tocForgetsASession(w *world) {
	s := newFactLog(w)
	anns := s.days(40)
	s.rollUp(1, false)
	before := s.all(store.TocMonth)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: anns[0]})).ok(w)
	gone := map[string]bool{}
	for name, facts := range s.facts {
		if strings.Contains(name, " "+anns[0].String()+" ") {
			for _, f := range facts {
				gone[f] = true
			}
			delete(s.facts, name)
		}
	}
	s.hasNone(gone, "at once")
	if len(before) == 0 || len(gone) < 60 {
		w.Fatalf("%d months before, %d facts gone: nothing is tested", len(before), len(gone))
	}
	s.rollUp(2, true)
	s.hasNone(gone, "rolled up again")
	made := map[string]int{}
	_, weeks, months := s.wanted()
	for _, names := range []iter.Seq[string]{maps.Keys(weeks), maps.Keys(months)} {
		for name := range names {
			if strings.HasPrefix(name, "ann ") {
				made[name] = 2
			}
		}
	}
	s.check(made)
}
