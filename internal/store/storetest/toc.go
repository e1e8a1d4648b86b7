package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func tocTests() []test {
	return []test{
		{"FindsTheOldestEntryThatIsInNoPart", tocBehind},
		{"CoversNoJobsAndNoSubTurns", tocCovers},
		{"APartIsAddedOnce", tocPartOnce},
		{"OneOfManyWritersAddsAPart", tocOneWriter},
		{"LateEntriesMakeItDueAgain", tocLate},
		{"OneOfManyMakesAWeek", tocOneMaker},
		{"ADeletionReachesWhatWasMadeOfIt", tocDeleted},
		{"ADeletionWhileAWeekIsMadeWins", tocDeletedMeanwhile},
		{"ADeletionWhileADayIsMadeWins", tocDeletedBefore},
		{"AGivenSessionGoesToItsOwner", tocGiven},
		{"ShowsWhatIsVisiblePageByPage", tocPages},
		{"ThreeMonthsAreRolledUpOnce", tocThreeMonths},
		{"LatePartsOfARolledUpDay", tocLateDay},
		{"ADeletionAmongThreeMonths", tocForgetsASession},
	}
}

// part is the part of the next entry of a session.
func (w *world) part(key chat.SessionKey, change func(p *store.TocPart)) store.TocPart {
	w.Helper()
	p := store.TocPart{Session: key, Owner: "ann", Day: "2026-03-14", Week: "2026-W11", Month: "2026-03", Entries: 1, Text: "bread"}
	list := try(w.st.TocEntries(w.ctx, key, 0, many, 0)).ok(w)
	for _, b := range w.beyond() {
		if b.Session == key {
			p.After = b.After
		}
	}
	for _, e := range list {
		if e.Seq > p.After {
			p.From, p.To, p.LastID = e.Seq, e.Seq, e.SessionID
			break
		}
	}
	if change != nil {
		change(&p)
	}
	return p
}

func (w *world) putPart(p store.TocPart) bool {
	w.Helper()
	return try(w.st.PutTocPart(w.ctx, p)).ok(w)
}

func (w *world) beyond() []store.TocBehind {
	w.Helper()
	return try(w.st.TocBehind(w.ctx, w.clock.now().Add(time.Hour), many)).ok(w)
}

func (w *world) toc(q store.TocQuery) []store.TocNode {
	w.Helper()
	return try(w.st.Toc(w.ctx, q)).ok(w)
}

// dueNames are the periods that are due.
func (w *world) dueNames(level store.TocLevel) (names []string) {
	w.Helper()
	list := try(w.st.TocDue(w.ctx, level, "9999", many)).ok(w)
	for _, ref := range list {
		names = append(names, ref.Owner+" "+ref.Period)
	}
	return names
}

func annsWeek() store.TocRef {
	return store.TocRef{Owner: "ann", Level: store.TocWeek, Period: "2026-W11"}
}

func annsMonth() store.TocRef {
	return store.TocRef{Owner: "ann", Level: store.TocMonth, Period: "2026-03"}
}

// makeNode makes the summary of a week or a month.
func (w *world) makeNode(ref store.TocRef, text string) {
	w.Helper()
	claim := w.id("claim")
	begun := try(w.st.BeginTocNode(w.ctx, ref, claim)).ok(w)
	ended := try(w.st.EndTocNode(w.ctx, ref, claim, text)).ok(w)
	equal(w, "made "+ref.Period, []bool{begun, ended}, []bool{true, true})
}

func tocBehind(w *world) {
	one, two := w.key(), w.key()
	w.says(one, "ann", "first")
	first := w.clock.now()
	w.says(two, "bob", "second")
	w.says(one, "ann", "third")
	equal(w, "uncovered", w.beyond(), []store.TocBehind{{Session: one, Owner: "ann", At: first}, {Session: two, Owner: "bob", At: first.Add(time.Second)}})
	young := try(w.st.TocBehind(w.ctx, first, many)).ok(w)
	equal(w, "before the first", len(young), 0)
	archived := w.session(one).SessionID
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: one, Principal: "ann", NewID: w.id("t")})).ok(w)
	w.says(one, "ann", "fourth")
	list := try(w.st.TocEntries(w.ctx, one, 1, many, 0)).ok(w)
	equal(w, "entries", []any{len(list), list[0].Text, list[0].SessionID, list[1].Text, list[1].SessionID},
		[]any{2, "third", archived, "fourth", w.session(one).SessionID})
	list = try(w.st.TocEntries(w.ctx, one, 0, 1, 0)).ok(w)
	equal(w, "one entry", len(list), 1)
	list = try(w.st.TocEntries(w.ctx, one, 0, many, 7)).ok(w)
	equal(w, "entries of seven bytes", len(list), 1)
	equal(w, "added", w.putPart(w.part(one, nil)), true)
	equal(w, "uncovered after that", w.beyond(), []store.TocBehind{
		{Session: two, Owner: "bob", At: first.Add(time.Second)}, {Session: one, Owner: "ann", After: 1, At: first.Add(2 * time.Second)},
	})
}

func tocCovers(w *world) {
	w.says(w.key(), cron.SystemOwner, "of a built-in job")
	w.says(chat.SessionKey{Agent: "main", Rest: "cron:j1:slot-1"}, "ann", "of a run")
	w.says(chat.TaskKey("main", "t1"), "ann", "of a sub-turn")
	kept := w.key()
	w.says(kept, "ann", "kept")
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: kept, KeepTranscript: true})).ok(w)
	equal(w, "uncovered", len(w.beyond()), 0)
	w.says(kept, "bob", "of bob")
	equal(w, "uncovered", len(w.beyond()), 1)
	list := try(w.st.TocEntries(w.ctx, kept, 0, many, 0)).ok(w)
	equal(w, "entries", len(list), 1)
}

func tocPartOnce(w *world) {
	key := w.key()
	for _, text := range []string{"a", "b", "c"} {
		w.says(key, "ann", text)
	}
	p := w.part(key, nil)
	for i, c := range []store.TocPart{
		p, p,
		w.part(key, func(p *store.TocPart) { p.Owner = "bob" }),
		w.part(key, func(p *store.TocPart) { p.To = 9 }),
		w.part(key, func(p *store.TocPart) { p.LastID = "another" }),
		w.part(w.key(), func(q *store.TocPart) { q.To, q.LastID = p.To, p.LastID }),
	} {
		equal(w, fmt.Sprint("added ", i), w.putPart(c), i == 0)
	}
	equal(w, "added", w.putPart(w.part(key, func(p *store.TocPart) { p.From, p.To, p.Entries, p.Text = 2, 3, 2, "bread and butter" })), true)
	equal(w, "the rest says nothing", len(w.beyond()), 0)
	want := store.TocNode{
		Owner: "ann", Level: store.TocDay, Period: "2026-03-14", Text: "bread and butter", MadeAt: w.clock.now(), Made: 2, Session: key, From: 1, To: 3, Entries: 3,
	}
	equal(w, "part", w.toc(store.TocQuery{Level: store.TocDay}), []store.TocNode{want})
	equal(w, "weeks", w.dueNames(store.TocWeek), []string{"ann 2026-W11"})
	equal(w, "months", w.dueNames(store.TocMonth), []string{"ann 2026-03"})
	w.says(key, "ann", "d")
	equal(w, "nothing to say", w.putPart(w.part(key, func(p *store.TocPart) { p.Text = "" })), true)
	equal(w, "uncovered", len(w.beyond()), 0)
	w.st = w.h.Reopen()
	equal(w, "part after a restart", w.toc(store.TocQuery{Level: store.TocDay}), []store.TocNode{want})
}

func tocOneWriter(w *world) {
	key := w.key()
	w.says(key, "ann", "a")
	p := w.part(key, nil)
	equal(w, "writers that added", len(w.winners(func(st store.Store, _ int) (bool, error) { return st.PutTocPart(w.ctx, p) })), 1)
	equal(w, "made", w.toc(store.TocQuery{Level: store.TocDay})[0].Made, 1)
}

// winners are those of eight concurrent calls that succeed.
func (w *world) winners(do func(st store.Store, i int) (bool, error)) (list []int) {
	w.Helper()
	const writers = 8
	var group sync.WaitGroup
	faults, won := make([]error, writers), make([]bool, writers)
	for i := range writers {
		st := w.h.Open()
		group.Go(func() { won[i], faults[i] = do(st, i) })
	}
	group.Wait()
	w.ok(errors.Join(faults...))
	for i, yes := range won {
		if yes {
			list = append(list, i)
		}
	}
	return list
}

func tocLate(w *world) {
	key := w.key()
	w.says(key, "ann", "a")
	w.says(key, "ann", "late")
	w.putPart(w.part(key, nil))
	w.makeNode(annsWeek(), "a week")
	equal(w, "weeks", len(w.dueNames(store.TocWeek)), 0)
	w.makeNode(annsMonth(), "a month")
	equal(w, "months", len(w.dueNames(store.TocMonth)), 0)
	claim := w.id("claim")
	begun := try(w.st.BeginTocNode(w.ctx, annsWeek(), claim)).ok(w)
	equal(w, "begun what is not due", begun, false)
	w.putPart(w.part(key, nil))
	equal(w, "weeks after late entries", w.dueNames(store.TocWeek), []string{"ann 2026-W11"})
	equal(w, "months after late entries", w.dueNames(store.TocMonth), []string{"ann 2026-03"})
	week := w.toc(store.TocQuery{Level: store.TocWeek})[0]
	equal(w, "the week meanwhile", []any{week.Text, week.Stale, week.Made}, []any{"a week", true, 1})
	w.makeNode(annsWeek(), "a longer week")
	week = w.toc(store.TocQuery{Level: store.TocWeek})[0]
	equal(w, "the week again", []any{week.Text, week.Stale, week.Made}, []any{"a longer week", false, 2})
	w.makeNode(annsMonth(), "a longer month")
	equal(w, "months", len(w.dueNames(store.TocMonth)), 0)
}

func tocOneMaker(w *world) {
	key := w.key()
	w.says(key, "ann", "a")
	w.says(key, "ann", "b")
	w.putPart(w.part(key, nil))
	equal(w, "beginners", len(w.winners(func(st store.Store, i int) (bool, error) {
		claim := fmt.Sprint("claim", i)
		if ok, err := st.BeginTocNode(w.ctx, annsWeek(), claim); err != nil || !ok {
			return false, err
		}
		return st.EndTocNode(w.ctx, annsWeek(), claim, "a week")
	})), 1)
	equal(w, "made", w.toc(store.TocQuery{Level: store.TocWeek})[0].Made, 1)
	// A process that was killed keeps it for a while.
	w.putPart(w.part(key, nil))
	begun := try(w.st.BeginTocNode(w.ctx, annsWeek(), "dead")).ok(w)
	again := try(w.st.BeginTocNode(w.ctx, annsWeek(), "next")).ok(w)
	w.clock.advance(store.TocClaimTime)
	later := try(w.st.BeginTocNode(w.ctx, annsWeek(), "next")).ok(w)
	dead := try(w.st.EndTocNode(w.ctx, annsWeek(), "dead", "too late")).ok(w)
	next := try(w.st.EndTocNode(w.ctx, annsWeek(), "next", "a week again")).ok(w)
	none := try(w.st.EndTocNode(w.ctx, annsWeek(), "", "without a claim")).ok(w)
	equal(w, "the dead one, the next one", []bool{begun, again, later, dead, next, none}, []bool{true, false, true, false, true, false})
	equal(w, "text", w.toc(store.TocQuery{Level: store.TocWeek})[0].Text, "a week again")
}

func tocDeleted(w *world) {
	one, two := w.key(), w.key()
	w.says(one, "ann", "secret")
	w.says(two, "ann", "other")
	w.says(two, "ann", "last")
	w.putPart(w.part(one, nil))
	w.putPart(w.part(two, nil))
	w.makeNode(annsWeek(), "secret and other")
	w.makeNode(annsMonth(), "secret and other")
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: one})).ok(w)
	equal(w, "days", len(w.toc(store.TocQuery{Level: store.TocDay})), 1)
	equal(w, "weeks", len(w.toc(store.TocQuery{Level: store.TocWeek})), 0)
	equal(w, "months", len(w.toc(store.TocQuery{Level: store.TocMonth})), 0)
	equal(w, "due", append(w.dueNames(store.TocWeek), w.dueNames(store.TocMonth)...), []string{"ann 2026-W11", "ann 2026-03"})
	w.makeNode(annsWeek(), "other")
	w.makeNode(annsMonth(), "other")
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: two, KeepTranscript: true})).ok(w)
	equal(w, "days", len(w.toc(store.TocQuery{Level: store.TocDay})), 0)
	equal(w, "weeks", len(w.toc(store.TocQuery{Level: store.TocWeek})), 0)
	w.makeNode(annsWeek(), "")
	w.makeNode(annsMonth(), "")
	equal(w, "due", len(w.dueNames(store.TocWeek))+len(w.dueNames(store.TocMonth)), 0)
	rows := w.h.Query(w.tb, `SELECT (SELECT count(*) FROM toc_parts) + (SELECT count(*) FROM toc_nodes)`)
	equal(w, "rows", fmt.Sprint(rows[0][0]), "0")
}

func tocDeletedMeanwhile(w *world) {
	key := w.key()
	w.says(key, "ann", "secret")
	w.putPart(w.part(key, nil))
	begun := try(w.st.BeginTocNode(w.ctx, annsWeek(), "claim")).ok(w)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	ended := try(w.st.EndTocNode(w.ctx, annsWeek(), "claim", "secret")).ok(w)
	equal(w, "begun, ended", []bool{begun, ended}, []bool{true, false})
	equal(w, "weeks", len(w.toc(store.TocQuery{Level: store.TocWeek})), 0)
}

func tocDeletedBefore(w *world) {
	key := w.key()
	w.says(key, "ann", "secret")
	p := w.part(key, nil)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	equal(w, "added", w.putPart(p), false)
	w.says(key, "ann", "another session of the key")
	equal(w, "added to it", w.putPart(p), false)
	equal(w, "days", len(w.toc(store.TocQuery{Level: store.TocDay})), 0)
	equal(w, "its own", w.putPart(w.part(key, nil)), true)
}

func tocGiven(w *world) {
	key := w.key()
	w.says(key, "ann", "a")
	w.says(key, "ann", "b")
	w.putPart(w.part(key, nil))
	w.makeNode(annsWeek(), "a week of ann")
	late := w.part(key, nil)
	w.ok(w.st.GiveSession(w.ctx, key, "ann", "bob"))
	equal(w, "ann's", len(w.toc(store.TocQuery{Level: store.TocDay, Visible: "ann"}))+len(w.toc(store.TocQuery{Level: store.TocWeek})), 0)
	equal(w, "bob's", len(w.toc(store.TocQuery{Level: store.TocDay, Visible: "bob"})), 1)
	equal(w, "due", w.dueNames(store.TocWeek), []string{"ann 2026-W11", "bob 2026-W11"})
	equal(w, "a part for ann", w.putPart(late), false)
	equal(w, "a part for bob", w.putPart(w.part(key, func(p *store.TocPart) { p.Owner = "bob" })), true)
	w.ok(w.st.GiveSession(w.ctx, key, "ann", "carl"))
	equal(w, "bob's after a gift of ann", len(w.toc(store.TocQuery{Level: store.TocDay, Visible: "bob"})), 1)
}

func tocPages(w *world) {
	one, two := w.key(), w.key()
	for _, key := range []chat.SessionKey{one, two} {
		for i := range 3 {
			w.says(key, "ann", "x")
			w.putPart(w.part(key, func(p *store.TocPart) { p.Day = fmt.Sprint("2026-03-1", i+1) }))
		}
	}
	w.says(two, "ann", "x")
	other := w.key()
	w.says(other, "bob", "x")
	w.putPart(w.part(other, func(p *store.TocPart) { p.Owner, p.Day = "bob", "2026-03-12" }))
	names := func(q store.TocQuery) (list []string) {
		for _, n := range w.toc(q) {
			list = append(list, n.Period[8:]+" "+n.Owner+" "+n.Session.Rest)
		}
		return list
	}
	all := []string{
		"13 ann " + one.Rest, "13 ann " + two.Rest, "12 ann " + one.Rest, "12 ann " + two.Rest, "12 bob " + other.Rest, "11 ann " + one.Rest, "11 ann " + two.Rest,
	}
	equal(w, "all", names(store.TocQuery{Level: store.TocDay}), all)
	equal(w, "a page", names(store.TocQuery{Level: store.TocDay, Limit: 3, Offset: 2}), all[2:5])
	equal(w, "after the last", names(store.TocQuery{Level: store.TocDay, Offset: 7}), nil)
	equal(w, "bob's", names(store.TocQuery{Level: store.TocDay, Visible: "bob"}), all[4:5])
	equal(w, "one session", names(store.TocQuery{Level: store.TocDay, Session: one, From: "2026-03-12"}), []string{all[0], all[2]})
	equal(w, "one day", names(store.TocQuery{Level: store.TocDay, From: "2026-03-12", To: "2026-03-12"}), all[2:5])
	equal(w, "weeks of one session", names(store.TocQuery{Level: store.TocWeek, Session: one}), nil)
}
