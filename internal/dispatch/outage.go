package dispatch

import (
	"sync"
	"time"
)

const (
	// probeEvery is the time between two tries at a channel that says that its provider is out of reach, of probeRows messages each: what was tried in
	// vain may have arrived, so it is not tried often. The channel itself finds out with calls that do no harm.
	probeEvery = time.Minute
	probeRows  = 4
	// provenFor is how long a delivery counts for more than what the channel says of itself.
	provenFor = time.Minute
)

// outages says when to try channels whose provider is out of reach. The rows themselves come due soon after each attempt, so what waits goes out at once
// when the channel is back; until then they are not claimed.
type outages struct {
	mu sync.Mutex
	by map[string]outage
}

type outage struct{ next, proven time.Time }

// split divides channels into those to be served and those to be tried, and leaves out the others that are down.
func (o *outages) split(names []string, down func(string) bool, now time.Time) (serve, try []string) {
	for _, name := range names {
		isDown := down(name)
		o.mu.Lock()
		at, known := o.by[name]
		switch {
		case !isDown:
			delete(o.by, name)
			serve = append(serve, name)
		case now.Before(at.proven.Add(provenFor)):
			serve = append(serve, name)
		case known && now.Before(at.next):
		default:
			o.set(name, outage{next: now.Add(probeEvery), proven: at.proven})
			try = append(try, name)
		}
		o.mu.Unlock()
	}
	return serve, try
}

// over notes that a message has arrived.
func (o *outages) over(name string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at, known := o.by[name]; known {
		at.proven = now
		o.set(name, at)
	}
}

func (o *outages) set(name string, at outage) {
	if o.by == nil {
		o.by = map[string]outage{}
	}
	o.by[name] = at
}

// down reports whether a channel says that its provider is out of reach.
func (d *Dispatcher) down(name string) bool {
	c, ok := d.channels[name]
	return ok && c.Status().Down
}
