package storetest

import (
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func turnListTests() []test {
	return []test{
		{"ATurnIsListedFromItsAcceptanceToItsEnd", turnFromAcceptanceToEnd},
		{"TurnsAreListedByWhatSelectsThem", turnsAreListed},
		{"PagesOfTurnsHaveEachOnce", turnPages},
		{"MessagesThatShareATurnAreOneRow", sharedTurnIsOneRow},
		{"ATurnIsFoundByEachOfItsMessages", turnIsFoundByItsMessages},
		{"AMessageThatEndsWithoutATurnIsListed", endedWithoutATurn},
	}
}

func (w *world) turns(f store.TurnFilter) []store.Turn {
	w.Helper()
	return try(w.st.Turns(w.ctx, f)).ok(w)
}

func (w *world) turnIDs(f store.TurnFilter) (ids []string) {
	w.Helper()
	for _, t := range w.turns(f) {
		ids = append(ids, t.ID)
	}
	return ids
}

func turnFromAcceptanceToEnd(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Message.Content.Text, p.Message.Lane = strings.Repeat("ü", 300), "main"
	a := w.accept(p)
	id := p.Message.ID
	want := store.Turn{
		ID: id, Session: key, Seq: a.Seq, Lane: "main", Channel: p.Message.Channel, Text: strings.Repeat("ü", store.TaskText), Principal: p.Message.Principal,
		State: store.StateWaiting, Node: node, AcceptedAt: a.AcceptedAt,
	}
	equal(w, "that waits", w.turns(store.TurnFilter{}), []store.Turn{want})
	c := claimOf(key, a)
	started := w.start(c, id, a.Seq)
	want.State, want.Attempt, want.StartedAt = store.RunRunning, 1, started.StartedAt
	equal(w, "that runs", w.turns(store.TurnFilter{Which: store.TurnsRunning}), []store.Turn{want})
	child := w.spawn(c, id, id)
	w.spawned(child)
	tasks := w.turns(store.TurnFilter{ID: child.Accept.Message.ID})
	equal(w, "its sub-turn", []string{tasks[0].Parent, tasks[0].Root}, []string{id, id})
	w.ok(w.st.Yield(w.ctx, c, id, true))
	want.State = store.RunYielded
	equal(w, "that waits for its sub-turn", w.turns(store.TurnFilter{ID: id}), []store.Turn{want})
	w.stop(key, store.StopRun, id)
	want.State, want.StopBy = store.RunStopping, w.run(id).StopBy
	equal(w, "that stops", w.turns(store.TurnFilter{ID: id}), []store.Turn{want})
	end := stopped(c, id)
	end.Error, end.Detail, end.Usage = "It was stopped.", "the service's words", chat.Usage{InputTokens: 7, OutputTokens: 3, Model: "m", Provider: "p"}
	ended := w.finish(end)
	want.State, want.Outcome, want.Reason, want.Error, want.Detail, want.Usage = store.StateDone, chat.OutcomeStopped, "stop", end.Error, end.Detail, end.Usage
	want.EndedAt = ended.EndedAt
	equal(w, "that has ended", w.turns(store.TurnFilter{Which: store.TurnsEnded}), []store.Turn{want})
	equal(w, "open ones", w.turnIDs(store.TurnFilter{Session: key}), nil)
}

func turnsAreListed(w *world) {
	node, key := w.node(), w.key()
	c, running, _ := w.turn(node, key)
	w.clock.advance(time.Second)
	p := w.message(node, key)
	p.Message.Principal, p.Message.Lane = "bob", "team"
	w.accept(p)
	waiting := p.Message.ID
	w.clock.advance(time.Second)
	other := w.key()
	oc, ended, _ := w.turn(node, other)
	w.clock.advance(time.Second)
	w.finish(answered(oc, ended))
	w.clock.advance(time.Second)
	lc, last, _ := w.turn(node, other)
	w.finish(stopped(lc, last))
	since := w.turns(store.TurnFilter{ID: last})[0].EndedAt
	equal(w, "open ones, the oldest first", w.turnIDs(store.TurnFilter{}), []string{running, waiting})
	equal(w, "the same by name", w.turnIDs(store.TurnFilter{Which: store.TurnsOpen}), []string{running, waiting})
	equal(w, "that run", w.turnIDs(store.TurnFilter{Which: store.TurnsRunning}), []string{running})
	equal(w, "that wait", w.turnIDs(store.TurnFilter{Which: store.TurnsWaiting}), []string{waiting})
	equal(w, "that have ended, the newest first", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded}), []string{last, ended})
	equal(w, "with an outcome", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded, Outcome: chat.OutcomeStopped}), []string{last})
	equal(w, "ended since", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded, Since: since}), []string{last})
	equal(w, "ended before", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded, Before: since}), []string{ended})
	equal(w, "of a principal", w.turnIDs(store.TurnFilter{Visible: "bob"}), []string{waiting})
	equal(w, "of a lane", w.turnIDs(store.TurnFilter{Lane: "team"}), []string{waiting})
	equal(w, "of a session", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded, Session: other}), []string{last, ended})
	equal(w, "one", w.turnIDs(store.TurnFilter{ID: ended}), []string{ended})
	equal(w, "one that another principal owns", w.turnIDs(store.TurnFilter{ID: ended, Visible: "bob"}), nil)
	equal(w, "unknown", w.turnIDs(store.TurnFilter{ID: "unknown"}), nil)
	w.finish(answered(c, running))
}

func turnPages(w *world) {
	node := w.node()
	var open, ended []string
	for i := range 7 {
		id, _ := w.acceptText(node, w.key())
		open = append(open, id)
		c, run, _ := w.turn(node, w.key())
		w.finish(answered(c, run))
		ended = append(ended, run)
		if i%3 == 2 { // some have the same instant
			w.clock.advance(time.Second)
		}
	}
	for which, want := range map[string][]string{store.TurnsWaiting: open, store.TurnsEnded: ended} {
		var got []string
		f := store.TurnFilter{Which: which, Limit: 2}
		for {
			page := w.turns(f)
			for _, t := range page {
				got = append(got, t.ID)
				f.After = &store.TurnMark{At: t.AcceptedAt, ID: t.ID}
				if which == store.TurnsEnded {
					f.After.At = t.EndedAt
				}
			}
			if len(page) == 0 {
				break
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		equal(w, which, got, want)
	}
}

func sharedTurnIsOneRow(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	second, b := w.acceptText(node, key)
	equal(w, "while they wait", w.turnIDs(store.TurnFilter{}), []string{first, second})
	c := claimOf(key, a)
	w.start(c, second, a.Seq, b.Seq)
	equal(w, "while they run", w.turnIDs(store.TurnFilter{}), []string{second})
	w.finish(answered(c, second))
	equal(w, "when they have ended", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded}), []string{second})
}

func turnIsFoundByItsMessages(w *world) {
	node, key := w.node(), w.key()
	var ids []string
	var seqs []int64
	var a store.Accepted
	for _, network := range []string{"4711", "4712"} {
		p := w.message(node, key)
		p.Message.Content.Network = network
		a = w.accept(p)
		seqs, ids = append(seqs, a.Seq), append(ids, p.Message.ID)
	}
	c := claimOf(key, a)
	w.start(c, ids[1], seqs...)
	for _, f := range []store.TurnFilter{{Message: ids[0]}, {Message: ids[1]}, {Message: ids[0], Session: key}, {Message: "4711", Session: key}, {Message: "4712", Session: key}} {
		equal(w, "the turn of "+f.Message, w.turnIDs(f), []string{ids[1]})
	}
	for _, f := range []store.TurnFilter{{Message: "4711"}, {Message: "4711", Session: w.key()}, {Message: "4711", Session: key, Visible: "bob"}} {
		equal(w, "not by "+f.Message, w.turnIDs(f), nil)
	}
	w.finish(answered(c, ids[1]))
	for range store.RecentMessages {
		w.acceptText(node, key)
	}
	equal(w, "of an older message", w.turnIDs(store.TurnFilter{Message: "4711", Session: key}), nil)
}

func endedWithoutATurn(w *world) {
	node, key := w.node(), w.key()
	id, _ := w.acceptText(node, key)
	w.stop(key, store.StopAll, "")
	list := w.turns(store.TurnFilter{Which: store.TurnsEnded})
	equal(w, "ended", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded}), []string{id})
	equal(w, "how", []any{list[0].Outcome, list[0].Attempt, list[0].StartedAt}, []any{chat.OutcomeStopped, 0, time.Time{}})
}
