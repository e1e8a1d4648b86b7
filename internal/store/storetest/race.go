package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// racers is the number of goroutines that do the same concurrently.
const racers = 64

func raceTests() []test {
	return []test{
		{"AcceptsOfOneSession", acceptsOfOneSession},
		{"AcceptsOfOneMessage", acceptsOfOneMessage},
		{"AcceptsAtTheCap", acceptsAtTheCap},
		{"FirstAcceptsOfOneSession", firstAccepts},
		{"SweepsTakeEverySessionOnce", sweepsTakeOnce},
		{"StartsOfOneMessage", startsOfOneMessage},
		{"FinishesOfOneRun", finishesOfOneRun},
		{"ClaimsOfOneChat", claimsOfOneChat},
		{"HoldersOfOneLease", holdersOfOneLease},
		{"AcceptAgainstFinishLosesNoWakeUp", acceptAgainstFinish},
		{"DropAgainstStart", dropAgainstStart},
		{"StopAgainstStart", stopAgainstStart},
		{"NodesShareALoad", nodesShareALoad},
		{"OneReplyIsAppendedOnce", replyAtOnce},
	}
}

// race runs fn in n goroutines that start together and use the handles in turn.
func (w *world) race(n int, fn func(st store.Store, i int) error) {
	w.Helper()
	handles := []store.Store{w.st, w.h.Open()}
	var group errgroup.Group
	begin := make(chan struct{})
	for i := range n {
		group.Go(func() error {
			<-begin
			return fn(handles[i%len(handles)], i)
		})
	}
	close(begin)
	w.ok(group.Wait())
}

func acceptsOfOneSession(w *world) {
	key := w.key()
	nodes := []string{w.node(), w.node(), w.node()}
	got := make([]store.Accepted, racers)
	ps := make([]store.AcceptParams, racers)
	for i := range ps {
		ps[i] = w.message(nodes[i%len(nodes)], key)
	}
	w.race(racers, func(st store.Store, i int) (err error) {
		got[i], err = st.Accept(w.ctx, ps[i])
		return err
	})
	var seqs, want []int64
	for i, a := range got {
		seqs = append(seqs, a.Seq)
		want = append(want, int64(i+1))
		equal(w, "epoch", a.Epoch, 1)
		equal(w, "owner", a.Owner, got[0].Owner)
	}
	slices.Sort(seqs)
	equal(w, "sequence numbers", seqs, want)
	equal(w, "waiting", w.session(key).Waiting, racers)
}

func acceptsOfOneMessage(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	got := make([]store.Accepted, racers)
	w.race(racers, func(st store.Store, i int) (err error) {
		mine := p
		if i%2 == 1 {
			mine.Message.ID = fmt.Sprintf("%s-%d", p.Message.ID, i) // another id under the same key
		}
		got[i], err = st.Accept(w.ctx, mine)
		return err
	})
	fresh := 0
	for _, a := range got {
		equal(w, "sequence number", a.Seq, 1)
		if !a.Duplicate {
			fresh++
		}
	}
	equal(w, "accepted", fresh, 1)
	equal(w, "last_seq", w.session(key).LastSeq, 1)
}

func acceptsAtTheCap(w *world) {
	node, refuse, drop := w.node(), w.key(), w.key()
	w.cap = 5
	var mu sync.Mutex
	refused, dropped := 0, map[int64]bool{}
	ps := make([]store.AcceptParams, racers)
	for i := range ps {
		ps[i] = w.message(node, []chat.SessionKey{refuse, drop}[i%2])
		ps[i].Queue.Cap, ps[i].Queue.DropNew = 5, i%2 == 0
	}
	w.race(racers, func(st store.Store, i int) error {
		a, err := st.Accept(w.ctx, ps[i])
		mu.Lock()
		defer mu.Unlock()
		for _, m := range a.Dropped {
			dropped[m.Seq] = true
		}
		if errors.Is(err, chat.ErrQueueFull) {
			refused++
			return nil
		}
		return err
	})
	equal(w, "refused", refused, racers/2-6) // the first message of an idle session needs no place
	equal(w, "last_seq where new ones are refused", w.session(refuse).LastSeq, 6)
	equal(w, "dropped, each once", len(dropped), racers/2-6)
	s := w.session(drop)
	equal(w, "last_seq, done_seq and waiting", []int64{s.LastSeq, s.DoneSeq, int64(s.Waiting)}, []int64{racers / 2, 0, 6})
}

func firstAccepts(w *world) {
	var mu sync.Mutex
	for range 8 {
		key := w.key()
		nodes := []string{w.node(), w.node()}
		owners, created := map[string]bool{}, 0
		ps := make([]store.AcceptParams, 8)
		for i := range ps {
			ps[i] = w.message(nodes[i%2], key)
		}
		w.race(len(ps), func(st store.Store, i int) error {
			a, err := st.Accept(w.ctx, ps[i])
			mu.Lock()
			defer mu.Unlock()
			owners[a.Owner] = true
			if a.Created {
				created++
			}
			return err
		})
		equal(w, "owners", len(owners), 1)
		equal(w, "created", created, 1)
		equal(w, "epoch", w.session(key).Epoch, 1)
	}
}

func sweepsTakeOnce(w *world) {
	const sessions = 32
	dead := w.node()
	for range sessions {
		w.acceptText(dead, w.key())
	}
	w.clock.advance(lease)
	nodes := make([]string, racers)
	for i := range nodes {
		nodes[i] = w.node()
	}
	var mu sync.Mutex
	takers := map[chat.SessionKey][]string{}
	w.race(racers, func(st store.Store, i int) error {
		for range 3 { // a sweeper that skips rows locked by others may find fewer than exist
			list, err := st.Sweep(w.ctx, store.SweepParams{Node: nodes[i], Limit: 2})
			if err != nil {
				return err
			}
			mu.Lock()
			for _, taken := range list {
				takers[taken.Session] = append(takers[taken.Session], nodes[i])
			}
			mu.Unlock()
		}
		return nil
	})
	for _, taken := range w.sweep(nodes[0]) {
		takers[taken.Session] = append(takers[taken.Session], nodes[0])
	}
	equal(w, "sessions taken", len(takers), sessions)
	for key, list := range takers {
		equal(w, "takers of "+key.String(), len(list), 1)
		s := w.session(key)
		equal(w, "owner and epoch", []any{s.Owner, s.Epoch}, []any{list[0], int64(2)})
	}
}

func startsOfOneMessage(w *world) {
	node, key := w.node(), w.key()
	var c store.Claim
	var seqs []int64
	for range 3 {
		p := w.message(node, key)
		p.Queue.MaxConcurrent = 3
		a := w.accept(p)
		c = claimOf(key, a)
		seqs = append(seqs, a.Seq)
	}
	var mu sync.Mutex
	starters := map[int64][]string{}
	w.race(racers, func(st store.Store, i int) error {
		run := fmt.Sprintf("run-%d", i)
		s, err := st.Start(w.ctx, store.StartParams{Claim: c, RunID: run, Lane: "main", Seqs: []int64{seqs[i%3]}})
		mu.Lock()
		defer mu.Unlock()
		for _, seq := range s.Seqs {
			starters[seq] = append(starters[seq], run)
		}
		return err
	})
	for _, seq := range seqs {
		equal(w, fmt.Sprintf("runs of message %d", seq), len(starters[seq]), 1)
	}
	equal(w, "active runs", len(w.session(key).ActiveRuns), 3)
}

func finishesOfOneRun(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	var mu sync.Mutex
	done := 0
	w.race(racers, func(st store.Store, i int) error {
		p := answered(c, run)
		p.Transcript = []chat.TranscriptEntry{{RunID: run, Role: chat.RoleAssistant, Text: strconv.Itoa(i)}}
		p.Outgoing = []store.Outgoing{{Kind: store.KindReply, Text: strconv.Itoa(i), Target: chat.Target{Channel: "web", ChatID: strconv.Itoa(i)}}}
		_, err := st.Finish(w.ctx, p)
		if errors.Is(err, chat.ErrFenced) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		done++
		return err
	})
	equal(w, "finished", done, 1)
	equal(w, "entries", w.transcript(store.TranscriptQuery{Session: key}).Total, 1)
	equal(w, "outgoing", len(w.claim(node)), 1)
}

func claimsOfOneChat(w *world) {
	const chats, rows = 4, 3
	nodes := make([]string, racers/2) // the claims of one node follow each other
	for i := range nodes {
		nodes[i] = w.node()
	}
	for n := range rows {
		for i := range chats {
			o := w.outgoing("web", strconv.Itoa(i))
			o.Text = strconv.Itoa(n)
			w.enqueue(o)
		}
		w.clock.advance(time.Millisecond)
	}
	for n := range rows {
		var mu sync.Mutex
		got := map[string]store.Outgoing{}
		by := map[string]string{}
		w.race(racers/2, func(st store.Store, i int) error {
			list, err := st.ClaimOutgoing(w.ctx, store.ClaimOutgoingParams{Node: nodes[i], Channels: []string{"web"}, Limit: 2})
			mu.Lock()
			defer mu.Unlock()
			for _, o := range list {
				if _, twice := got[o.Target.ChatID]; twice {
					return fmt.Errorf("two messages under way in chat %s", o.Target.ChatID) //nolint:err113 // of a test
				}
				got[o.Target.ChatID], by[o.ID] = o, nodes[i]
			}
			return err
		})
		last := w.node()
		for _, o := range w.claim(last) { // rows that the racers skipped
			got[o.Target.ChatID], by[o.ID] = o, last
		}
		equal(w, "chats with a message under way", len(got), chats)
		for _, o := range got {
			equal(w, "order in a chat", o.Text, strconv.Itoa(n))
			try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: by[o.ID], ID: o.ID, ProviderID: "p"})).ok(w)
		}
	}
}

func holdersOfOneLease(w *world) {
	nodes := make([]string, 16)
	for i := range nodes {
		nodes[i] = w.node()
	}
	var mu sync.Mutex
	holders := map[string]int64{}
	w.race(racers, func(st store.Store, i int) error {
		l, ok, err := st.AcquireLease(w.ctx, poller, nodes[i%len(nodes)])
		if ok {
			mu.Lock()
			defer mu.Unlock()
			holders[l.Owner] = l.Epoch
		}
		return err
	})
	equal(w, "holders", len(holders), 1)
	for _, epoch := range holders {
		equal(w, "epoch", epoch, 1)
	}
}

// acceptAgainstFinish: when another node accepts a message while the owner finishes, either the
// owner sees it and keeps the session, or the message takes the released session with a new epoch.
func acceptAgainstFinish(w *world) {
	owner, other := w.node(), w.node()
	for range 40 {
		key := w.key()
		c, run, _ := w.turn(owner, key)
		p := w.message(other, key)
		var a store.Accepted
		var f store.Finished
		w.race(2, func(st store.Store, i int) (err error) {
			if i == 0 {
				a, err = st.Accept(w.ctx, p)
			} else {
				f, err = st.Finish(w.ctx, answered(c, run))
			}
			return err
		})
		s := w.session(key)
		switch {
		case f.Released && a.Mine:
			equal(w, "owner and epoch", []any{s.Owner, s.Epoch}, []any{other, c.Epoch + 1})
		case !f.Released && !a.Mine:
			equal(w, "owner and epoch", []any{s.Owner, s.Epoch}, []any{owner, c.Epoch})
			hinted := w.fronts(owner, key)
			equal(w, "the owner finds", idsOf(hinted[0].Messages), []string{p.Message.ID})
		default:
			w.Fatalf("released %v, taken %v: no process runs message %d", f.Released, a.Mine, a.Seq)
		}
	}
}

func dropAgainstStart(w *world) {
	node := w.node()
	w.cap = 1
	for range 30 {
		key := w.key()
		w.turn(node, key)
		p := w.message(node, key)
		p.Queue.Cap, p.Queue.MaxConcurrent = 1, 2
		first := w.accept(p)
		q := w.message(node, key)
		q.Queue.Cap, q.Queue.MaxConcurrent = 1, 2
		var a store.Accepted
		var s store.Started
		w.race(2, func(st store.Store, i int) (err error) {
			if i == 0 {
				a, err = st.Accept(w.ctx, q)
			} else {
				s, err = st.Start(w.ctx, store.StartParams{Claim: claimOf(key, first), RunID: p.Message.ID, Lane: "main", Seqs: []int64{first.Seq}})
			}
			return err
		})
		if len(a.Dropped)+len(s.Seqs) != 1 {
			w.Fatalf("dropped %v and started %v", seqsOf(a.Dropped), s.Seqs)
		}
	}
}

func stopAgainstStart(w *world) {
	node := w.node()
	for range 30 {
		key := w.key()
		id, a := w.acceptText(node, key)
		var stop store.Stopped
		var s store.Started
		w.race(2, func(st store.Store, i int) (err error) {
			if i == 0 {
				stop, err = st.Stop(w.ctx, store.StopParams{Session: key, Scope: store.StopAll, By: "bob", Reason: "stopall"})
			} else {
				s, err = st.Start(w.ctx, store.StartParams{Claim: claimOf(key, a), RunID: id, Lane: "main", Seqs: []int64{a.Seq}})
			}
			return err
		})
		if len(s.Seqs) == 0 {
			w.ended(id, chat.OutcomeStopped)
			continue
		}
		equal(w, "running runs that were asked to stop", len(stop.Running), 1)
		equal(w, "stop_by", w.run(id).StopBy, "bob")
	}
}

// nodesShareALoad runs whole turns of a few sessions concurrently from several nodes.
func nodesShareALoad(w *world) {
	keys := []chat.SessionKey{w.key(), w.key(), w.key()}
	nodes := make([]string, 8)
	for i := range nodes {
		nodes[i] = w.node()
	}
	w.race(len(nodes), func(st store.Store, i int) error {
		for n := range 20 {
			if err := w.oneTurn(st, nodes[i], keys[n%len(keys)]); err != nil {
				return err
			}
		}
		return nil
	})
	for _, key := range keys {
		s := w.session(key)
		if s.LastSeq < 1 || s.DoneSeq > s.LastSeq {
			w.Fatalf("numbers of %s: %+v", key, s)
		}
	}
}

// oneTurn accepts a message and, if the node owns the session, answers it together with all waiting
// messages.
func (w *world) oneTurn(st store.Store, node string, key chat.SessionKey) error {
	p := w.message(node, key)
	p.Queue.MaxConcurrent = many // several turns of a session run concurrently here
	a, err := st.Accept(w.ctx, p)
	if err != nil || !a.Mine {
		return err
	}
	c := claimOf(key, a)
	s, err := st.Start(w.ctx, store.StartParams{Claim: c, RunID: p.Message.ID, Lane: "main", Seqs: []int64{a.Seq}})
	if err != nil || len(s.Seqs) == 0 {
		return ignoreFenced(err)
	}
	if _, err = st.Finish(w.ctx, answered(c, p.Message.ID)); err != nil {
		return err
	}
	return w.runNext(st, node)
}

// runNext runs what waits in the sessions of a node.
func (w *world) runNext(st store.Store, node string) error {
	for {
		list, err := st.Fronts(w.ctx, store.FrontsParams{Node: node, Limit: many})
		if err != nil || len(list) == 0 {
			return err
		}
		for _, f := range list {
			s, err := st.Session(w.ctx, f.Session, "")
			if err != nil {
				return err
			}
			c := store.Claim{Session: f.Session, Node: node, Epoch: s.Epoch}
			b, err := st.Start(w.ctx, store.StartParams{Claim: c, RunID: f.ID, Lane: "main", Seqs: []int64{f.Row.Seq}})
			if err != nil || len(b.Seqs) == 0 {
				return ignoreFenced(err)
			}
			if _, err := st.Finish(w.ctx, answered(c, f.ID)); err != nil {
				return err
			}
		}
	}
}

func ignoreFenced(err error) error {
	if errors.Is(err, chat.ErrFenced) {
		return nil
	}
	return err
}

// sessionsAtOnce is how many sessions act concurrently: enough to make a store that supports it
// share transactions between operations.
const sessionsAtOnce = 48

func togetherTests() []test {
	return []test{
		{"RunsThatRunAreNotBegunAgainInACrowd", runningNotBegunAgain},
		{"RunsThatStopAreNotEndedAgainInACrowd", stoppingNotEndedAgain},
	}
}

// place is a session with a run and a message after it.
type place struct {
	claim      store.Claim
	run, later string
	seqs       []int64 // of both messages
}

// places are sessions that each have a running run and a second message that waits.
func (w *world) places(n int) []place {
	w.Helper()
	node := w.node()
	list := make([]place, n)
	for i := range list {
		key := w.key()
		c, run, seq := w.turn(node, key)
		later, a := w.acceptText(node, key)
		list[i] = place{claim: c, run: run, later: later, seqs: []int64{seq, a.Seq}}
	}
	return list
}

// atOnce runs do for all places concurrently.
func (w *world) atOnce(list []place, do func(p place) error) {
	w.Helper()
	var all errgroup.Group
	for _, p := range list {
		all.Go(func() error { return do(p) })
	}
	w.ok(all.Wait())
}

// runningNotBegunAgain: starting a running run creates no second attempt, and does not take
// messages that have arrived meanwhile.
func runningNotBegunAgain(w *world) {
	list := w.places(sessionsAtOnce)
	w.atOnce(list, func(p place) error {
		s, err := w.st.Start(w.ctx, store.StartParams{
			Claim: p.claim, RunID: p.run, Lane: "main", Seqs: p.seqs,
			Transcript: []chat.TranscriptEntry{{RunID: p.run, Role: chat.RoleUser, Text: "again"}},
		})
		switch {
		case errors.Is(err, chat.ErrFenced):
		case err != nil:
			return err
		case s.Attempt != 1 || len(s.Seqs) != 1:
			return fmt.Errorf("a run that runs was begun again: %+v", s)
		}
		return nil
	})
	for _, p := range list {
		equal(w, "attempt", w.run(p.run).Attempt, 1)
		equal(w, "the message after it", w.row(p.later).State, store.StateWaiting)
		tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: p.claim.Session})).ok(w)
		equal(w, "transcript", len(tr.Entries), 0)
	}
}

// stoppingNotEndedAgain: a run that was ended before its goroutine cannot end a second time,
// although its claim still holds.
func stoppingNotEndedAgain(w *world) {
	list := w.places(sessionsAtOnce)
	for _, p := range list {
		end := stopped(p.claim, p.run)
		end.StillRunning = true
		w.finish(end)
	}
	w.atOnce(list, func(p place) error {
		if _, err := w.st.Finish(w.ctx, answered(p.claim, p.run)); !errors.Is(err, chat.ErrFenced) {
			return fmt.Errorf("the second end of a run: got %w, want it fenced", err)
		}
		return nil
	})
	for _, p := range list {
		w.ended(p.run, chat.OutcomeStopped)
		equal(w, "state", w.run(p.run).State, store.RunStopping)
		w.ok(w.st.EndStopping(w.ctx, p.claim, p.run))
	}
}
