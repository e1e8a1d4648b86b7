package socket

import (
	"container/list"
	"net/netip"
)

// unproven has the unauthenticated connections, the oldest first. At a limit the oldest is closed for a new one: a client that opens
// connections without authenticating does not block other clients of its address. The caller holds the lock.
type unproven[C any] struct {
	limit int // of all networks together; 0 = no limit
	all   list.List
	from  map[netip.Addr]int // number for each network
}

// Place is the place of one unauthenticated connection. Only its [Hub] changes it.
type Place[C any] struct {
	from netip.Addr
	conn C
	used bool          // conn is set; a place that is reserved for a future connection is not taken away
	at   *list.Element // nil = it is no longer counted
}

// Conn returns the connection of a used place.
func (p *Place[C]) Conn() C { return p.conn }

// enter takes a place for a connection of a network with this limit. p is nil when no place is free. gone is the connection that must be
// closed for it and is no longer counted, or nil.
func (u *unproven[C]) enter(from netip.Addr, limit int) (p, gone *Place[C]) {
	crowded := u.from[from] >= limit
	if crowded || (u.limit > 0 && u.all.Len() >= u.limit) {
		if gone = u.oldest(from, crowded); gone == nil {
			return nil, nil
		}
		u.leave(gone)
	}
	if u.from == nil {
		u.from = map[netip.Addr]int{}
	}
	u.from[from]++
	p = &Place[C]{from: from}
	p.at = u.all.PushBack(p)
	return p, gone
}

// oldest returns the oldest connection, of that network or of any; nil = no connection can be closed.
func (u *unproven[C]) oldest(from netip.Addr, ofNetwork bool) *Place[C] {
	for e := u.all.Front(); e != nil; e = e.Next() {
		if p, ok := e.Value.(*Place[C]); ok && p.used && (!ofNetwork || p.from == from) {
			return p
		}
	}
	return nil
}

// use puts a connection into its place.
func (p *Place[C]) use(c C) { p.conn, p.used = c, true }

// leave stops counting a connection. A second call does nothing.
func (u *unproven[C]) leave(p *Place[C]) {
	if p.at == nil {
		return
	}
	u.all.Remove(p.at)
	p.at = nil
	if u.from[p.from]--; u.from[p.from] <= 0 {
		delete(u.from, p.from)
	}
}
