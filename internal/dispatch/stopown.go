package dispatch

import (
	"context"
	"errors"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// ownLimit is how many waiting messages are searched for those of one person.
const ownLimit = 1000

// stopOwn stops only work of one person: runs whose leading message is theirs, and their waiting messages. Runs of this process are
// signalled before the store is called. Scope is StopOne (the oldest run, or the oldest waiting message, or the oldest tree of background
// tasks) or StopAll.
func (sp *stops) stopOwn(ctx context.Context, p store.StopParams, sender string) (stopped, error) {
	all, trees := p.Scope == store.StopAll, p
	p.Scope, p.Reason = store.StopRun, reasonStop
	if all {
		p.Reason = reasonStopAll
	}
	var m stopped
	stop := func(ids []string) error {
		for _, id := range ids {
			if !all && !m.nothing() {
				return nil
			}
			p.MessageID = id
			one, err := sp.stop(ctx, p)
			m.add(one)
			if err != nil && !errors.Is(err, chat.ErrNotFound) {
				return err
			}
		}
		return nil
	}
	if err := stop(sp.events.RunsOf(p.Session, sender)); err != nil || (!all && !m.nothing()) {
		return m, err
	}
	ids, err := sp.ownedBy(ctx, p.Session, sender)
	if err != nil {
		return m, err
	}
	err = stop(slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(m.running, id) }))
	if err != nil || (!all && !m.nothing()) {
		return m, err
	}
	left, err := sp.trees.stopLeft(ctx, trees, p.By)
	m.add(left)
	return m, err
}

// ownedBy lists the runs of other processes and the waiting messages of one person, by the id of their message.
func (sp *stops) ownedBy(ctx context.Context, key chat.SessionKey, sender string) ([]string, error) {
	s, err := sp.store.Session(ctx, key, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, run := range s.ActiveRuns {
		lead, err := sp.store.MessageByID(ctx, run)
		if err == nil && lead.Content.Sender.ID == sender {
			ids = append(ids, run)
		}
	}
	for after, left := int64(0), ownLimit; left > 0; {
		waiting, _, err := sp.store.PendingInputs(ctx, key, after, left)
		if err != nil || len(waiting) == 0 {
			return ids, err
		}
		after, left = waiting[len(waiting)-1].Seq, left-len(waiting)
		for _, w := range waiting {
			if w.Content.Sender.ID == sender {
				ids = append(ids, w.MessageID)
			}
		}
	}
	return ids, nil
}
