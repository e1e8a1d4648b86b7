package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// node is one incarnation. Its row outlives its lease: a run whose owner has no row was left by a clean stop.
type node struct {
	store.Node
	startedAt, leaseUntil, drainingSince time.Time
	draining                             bool
}

func (s *Store) alive(id string, now time.Time) bool {
	n, ok := s.nodes[id]
	return ok && n.leaseUntil.After(now)
}

// mayOwn reports whether the node can become the owner of a session.
func (s *Store) mayOwn(id string, now time.Time) bool {
	return s.alive(id, now) && !s.nodes[id].draining
}

// Register makes a new incarnation, see store.Nodes.
func (s *Store) Register(ctx context.Context, n store.Node) error {
	return s.do(ctx, "Register", func(now time.Time) error {
		if n.ID == "" {
			return chat.Errorf(chat.CodeInvalid, "a node needs an id")
		}
		if n.Lease <= 0 {
			n.Lease = defaultLease
		}
		if n.Exclusive {
			s.expireOthers(n.ID, now)
		}
		s.nodes[n.ID] = &node{Node: n, startedAt: now, leaseUntil: now.Add(n.Lease)}
		return nil
	})
}

func (s *Store) expireOthers(id string, now time.Time) {
	for _, other := range s.nodes {
		if other.ID != id && other.leaseUntil.After(now) {
			other.leaseUntil = now
		}
	}
}

// Heartbeat extends the lease of a live node.
func (s *Store) Heartbeat(ctx context.Context, nodeID string) (store.Beat, error) {
	var beat store.Beat
	err := s.do(ctx, "Heartbeat", func(now time.Time) error {
		if !s.alive(nodeID, now) {
			return chat.ErrFenced
		}
		n := s.nodes[nodeID]
		n.leaseUntil = now.Add(n.Lease)
		beat = store.Beat{Now: now, LeaseUntil: n.leaseUntil, Stops: s.stopsFor(nodeID), Leases: s.leasesOf(nodeID)}
		for id := range s.nodes {
			if id != nodeID && s.alive(id, now) {
				beat.OtherNodes++
			}
		}
		return nil
	})
	return beat, err
}

func (s *Store) stopsFor(nodeID string) []store.StopRequest {
	var stops []store.StopRequest
	for _, r := range s.active {
		if r.Owner == nodeID && r.works() && r.StopBy != "" {
			stops = append(stops, store.StopRequest{Session: r.Session, RunID: r.ID, By: r.StopBy})
		}
	}
	slices.SortFunc(stops, func(a, b store.StopRequest) int { return cmp.Compare(a.RunID, b.RunID) })
	return stops
}

func (s *Store) leasesOf(nodeID string) []string {
	var names []string
	for name, l := range s.leases {
		if l.Owner == nodeID {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// SetDraining marks the node; for an unknown node it does nothing.
func (s *Store) SetDraining(ctx context.Context, nodeID string) error {
	return s.do(ctx, "SetDraining", func(now time.Time) error {
		if n, ok := s.nodes[nodeID]; ok && !n.draining {
			n.draining, n.drainingSince = true, now
		}
		return nil
	})
}

// Unregister is the clean stop of a node.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
	return s.do(ctx, "Unregister", func(now time.Time) error {
		delete(s.nodes, nodeID)
		s.endStopping(now)
		for _, se := range s.sessions {
			if se.Owner == nodeID {
				se.Owner = ""
			}
		}
		for _, l := range s.leases {
			if l.Owner == nodeID {
				l.Owner = ""
			}
		}
		return nil
	})
}

// LiveNodes lists nodes whose lease is valid, oldest first.
func (s *Store) LiveNodes(ctx context.Context) ([]chat.NodeStatus, error) {
	var list []chat.NodeStatus
	err := s.do(ctx, "LiveNodes", func(now time.Time) error {
		var live []*node
		for id, n := range s.nodes {
			if s.alive(id, now) {
				live = append(live, n)
			}
		}
		slices.SortFunc(live, func(a, b *node) int {
			return cmp.Or(a.startedAt.Compare(b.startedAt), cmp.Compare(a.ID, b.ID))
		})
		for _, n := range live {
			list = append(list, chat.NodeStatus{ID: n.ID, Version: n.Version, Draining: n.draining, Lease: n.leaseUntil.Sub(now)})
		}
		return nil
	})
	return list, err
}

// AcquireLease takes a named lease that no live node holds. A dead node gets none.
func (s *Store) AcquireLease(ctx context.Context, name, nodeID string) (l store.Lease, ok bool, err error) {
	err = s.do(ctx, "AcquireLease", func(now time.Time) error {
		if !s.alive(nodeID, now) {
			return chat.ErrFenced
		}
		have := s.leases[name]
		if have == nil {
			have = &store.Lease{Name: name}
			s.leases[name] = have
		}
		if have.Owner != nodeID {
			if s.alive(have.Owner, now) {
				return nil
			}
			have.Owner = nodeID
			have.Epoch++
		}
		l, ok = *have, true
		return nil
	})
	return l, ok, err
}

// NamedLeases are the names of all leases, and whether a live node holds each.
func (s *Store) NamedLeases(ctx context.Context) (held map[string]bool, err error) {
	err = s.do(ctx, "NamedLeases", func(now time.Time) error {
		held = map[string]bool{}
		for name, l := range s.leases {
			held[name] = s.alive(l.Owner, now)
		}
		return nil
	})
	return held, err
}

// ReleaseLease gives a lease back; the offset stays.
func (s *Store) ReleaseLease(ctx context.Context, l store.Lease) error {
	return s.do(ctx, "ReleaseLease", func(time.Time) error {
		if have := s.leases[l.Name]; have != nil && have.Owner == l.Owner && have.Epoch == l.Epoch {
			have.Owner = ""
		}
		return nil
	})
}

// checkLease reports whether the claim on a named lease still holds.
func (s *Store) checkLease(l *store.Lease, now time.Time) error {
	if l == nil {
		return nil
	}
	have := s.leases[l.Name]
	if have == nil || have.Owner != l.Owner || have.Epoch != l.Epoch || !s.alive(l.Owner, now) {
		return chat.ErrFenced
	}
	return nil
}

// moveOffset never goes back: an old message that is offered again must not make the poller fetch newer ones a second time.
func (s *Store) moveOffset(l *store.Lease) {
	if l != nil {
		have := s.leases[l.Name]
		have.NextOffset = max(have.NextOffset, l.NextOffset)
	}
}
