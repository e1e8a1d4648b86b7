package cron

import "sync"

// Bounds of the cache of a [PartsDecoder].
const (
	maxRemembered = 2048 // in each of its two generations
	maxPartsBytes = 1024 // of the parts of a job
)

// PartsDecoder is a caching [DecodeParts]: a job is read when it is claimed, when its run begins and when that ends, and its parts are usually the same. The
// result depends only on the parts, so entries never become stale. It caches the parts of 2048 to 4096 jobs, some 6 MiB at most. Safe for concurrent use; the
// zero value is ready.
type PartsDecoder struct {
	mu sync.Mutex
	// known is the current generation, and older the previous one, which was current until it was full. Each entry is a job with only the members that the
	// parts contain.
	known, older map[Parts]*Job
}

// Decode is DecodeParts.
func (d *PartsDecoder) Decode(p Parts, j *Job) error {
	if known, ok := d.find(p); ok {
		j.Schedule, j.Payload, j.Delivery, j.Alert = known.Schedule, known.Payload, known.Delivery, known.Alert
		j.Overlap, j.Missed, j.Retry, j.Timeout = known.Overlap, known.Missed, known.Retry, known.Timeout
		j.AtMostOnce, j.DeleteAfter, j.PauseAfter = known.AtMostOnce, known.DeleteAfter, known.PauseAfter
		return nil
	}
	if err := DecodeParts(p, j); err != nil {
		return err
	}
	if j.Payload.Options == nil && j.Delivery.Options == nil && j.Alert.Delivery.Options == nil { // a caller may change those in place
		d.remember(p, j)
	}
	return nil
}

func (d *PartsDecoder) find(p Parts) (*Job, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j, ok := d.known[p]; ok {
		return j, true
	}
	j, ok := d.older[p]
	if ok {
		d.add(p, j)
	}
	return j, ok
}

// add adds a job; the caller holds d.mu.
func (d *PartsDecoder) add(p Parts, j *Job) {
	if d.known == nil || len(d.known) >= maxRemembered {
		d.known, d.older = map[Parts]*Job{}, d.known
	}
	d.known[p] = j
}

func (d *PartsDecoder) remember(p Parts, j *Job) {
	if len(p.Schedule)+len(p.TZ)+len(p.Payload)+len(p.Delivery)+len(p.Alert)+len(p.Policy) > maxPartsBytes {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(p, &Job{
		Schedule: j.Schedule, Payload: j.Payload, Delivery: j.Delivery, Alert: j.Alert,
		Overlap: j.Overlap, Missed: j.Missed, Retry: j.Retry, Timeout: j.Timeout,
		AtMostOnce: j.AtMostOnce, DeleteAfter: j.DeleteAfter, PauseAfter: j.PauseAfter,
	})
}
