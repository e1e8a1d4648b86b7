package events

import (
	"slices"
	"sync"
)

// Hub passes events of one kind to subscribers. The zero value is ready. Publish reads the list under the mutex and calls subscribers outside of it.
type Hub[E any] struct {
	mu   sync.Mutex
	last int             // id of the newest subscriber
	subs []subscriber[E] // replaced, never changed
}

type subscriber[E any] struct {
	id     int
	fn     func(E)
	wanted func(E) bool
}

// Subscribe calls fn for every event until cancel is called. wanted reports whether fn needs an event of another replica that is costly to complete. Neither
// may block; after cancel has returned, no new call of fn begins.
func (h *Hub[E]) Subscribe(fn func(E), wanted func(E) bool) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	id := h.last
	h.subs = append(slices.Clone(h.subs), subscriber[E]{id: id, fn: fn, wanted: wanted})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.subs = slices.DeleteFunc(slices.Clone(h.subs), func(s subscriber[E]) bool { return s.id == id })
	}
}

// Publish calls every subscriber.
func (h *Hub[E]) Publish(e E) {
	for _, s := range h.all() {
		s.fn(e)
	}
}

// Wanted reports whether a subscriber needs the event.
func (h *Hub[E]) Wanted(e E) bool {
	return slices.ContainsFunc(h.all(), func(s subscriber[E]) bool { return s.wanted(e) })
}

func (h *Hub[E]) all() []subscriber[E] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subs
}
