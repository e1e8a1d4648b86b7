package socket

import (
	"container/list"
	"net/netip"
)

// unproven are the connections that have not proven whose they are, the oldest first. At a limit the oldest gives way to a new one: a client that opens
// connections and authenticates none of them does not keep other clients of its address out. Its user holds the lock.
type unproven[C any] struct {
	limit int // of all together; 0 = none
	all   list.List
	from  map[netip.Addr]int // how many of each network
}

// Place is that of one unauthenticated connection. Only its [Hub] changes it.
type Place[C any] struct {
	from netip.Addr
	conn C
	used bool          // conn is there; a place that is reserved for a connection to come does not give way
	at   *list.Element // nil = it is not counted any more
}

// Conn is the connection of a place that was used.
func (p *Place[C]) Conn() C { return p.conn }

// enter takes a place for a connection of a network that may have so many. p is nil when there is no place. gone gave way to it and is not counted any more;
// nil = no connection had to.
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

// oldest is the oldest connection, of that network or of any; nil = no connection can give way.
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
