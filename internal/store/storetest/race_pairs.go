package storetest

import (
	"errors"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// acceptAgainstFinish: when another node accepts a message while the owner finishes, either the owner sees it and keeps the session, or the message takes the
// released session with a new epoch.
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
			hinted := try(w.st.Hinted(w.ctx, owner, nothing, many)).ok(w)
			found := slices.ContainsFunc(hinted, func(t store.Taken) bool {
				return t.Session == key && slices.Equal(idsOf(t.Messages), []string{p.Message.ID})
			})
			equal(w, "hinted to the owner", found, true)
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
		p := w.message(node, key)
		p.Cap, p.Drop = 1, chat.DropOld
		first := w.accept(p)
		q := w.message(node, key)
		q.Cap, q.Drop = 1, chat.DropOld
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

// oneTurn accepts a message and, if the node owns the session, answers it together with all waiting messages.
func (w *world) oneTurn(st store.Store, node string, key chat.SessionKey) error {
	p := w.message(node, key)
	p.RunLimit = many // several turns of a session run concurrently here
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
	return w.runHinted(st, node)
}

func (w *world) runHinted(st store.Store, node string) error {
	list, err := st.Hinted(w.ctx, node, nothing, many)
	for _, taken := range list {
		for _, m := range taken.Messages {
			start := store.StartParams{Claim: taken.Claim, RunID: m.MessageID, Lane: "main", Seqs: []int64{m.Seq}}
			if s, err := st.Start(w.ctx, start); err != nil || len(s.Seqs) == 0 {
				return ignoreFenced(err)
			}
			if _, err := st.Finish(w.ctx, answered(taken.Claim, m.MessageID)); err != nil {
				return err
			}
		}
	}
	return err
}

func ignoreFenced(err error) error {
	if errors.Is(err, chat.ErrFenced) {
		return nil
	}
	return err
}
