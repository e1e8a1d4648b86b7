package cron

import "sync"

// Bounds of what a [PartsDecoder] remembers.
const (
	maxRemembered = 1024
	maxPartsBytes = 1024 // of the texts of a job
)

// PartsDecoder is [DecodeParts] that remembers what the texts of the latest jobs mean: a job is read when it is claimed, when its run begins and when
// that ends, and its texts are the same each time. What a text means does not change, so there is nothing to be kept up to date. It remembers
// some 2 MiB at most. Safe for concurrent use; the zero value is ready.
type PartsDecoder struct {
	mu    sync.Mutex
	known map[Parts]Job // with the members that the texts have, and no other
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

func (d *PartsDecoder) find(p Parts) (Job, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, ok := d.known[p]
	return j, ok
}

func (d *PartsDecoder) remember(p Parts, j *Job) {
	if len(p.Schedule)+len(p.TZ)+len(p.Payload)+len(p.Delivery)+len(p.Alert)+len(p.Policy) > maxPartsBytes {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) >= maxRemembered {
		d.known = make(map[Parts]Job)
	}
	d.known[p] = Job{
		Schedule: j.Schedule, Payload: j.Payload, Delivery: j.Delivery, Alert: j.Alert,
		Overlap: j.Overlap, Missed: j.Missed, Retry: j.Retry, Timeout: j.Timeout,
		AtMostOnce: j.AtMostOnce, DeleteAfter: j.DeleteAfter, PauseAfter: j.PauseAfter,
	}
}
