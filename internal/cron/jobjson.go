package cron

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"laneway/internal/cron/schedule"
)

// Parts are the members of a [Job] that tables store as JSON. Every engine writes and reads them
// with [EncodeParts] and [DecodeParts], so that a row means the same everywhere. TZ is a copy of
// the zone for people who read the table; reading ignores it.
type Parts struct {
	Schedule string
	TZ       string
	Payload  string
	Delivery string
	Alert    string
	Policy   string // overlap, missed, retry, timeout, at most once, delete after, pause after
}

// EncodeParts encodes the parts of a job. It fails when Options of the payload or of a delivery are
// not JSON. White space in Options is not kept.
func EncodeParts(j Job) (Parts, error) {
	spec := j.Schedule
	if !spec.At.IsZero() {
		spec.At = spec.At.UTC()
	}
	p := Parts{TZ: spec.TZ}
	for _, part := range []struct {
		name  string
		text  *string
		value any
	}{
		{"schedule", &p.Schedule, spec},
		{"payload", &p.Payload, j.Payload},
		{"delivery", &p.Delivery, j.Delivery},
		{"alert", &p.Alert, alertRow{
			Off: j.Alert.Off, After: j.Alert.After, Cooldown: span(j.Alert.Cooldown),
			IncludeSkipped: j.Alert.IncludeSkipped, Delivery: j.Alert.Delivery,
		}},
		{"policy", &p.Policy, policyRowOf(j)},
	} {
		text, err := encodeText(part.value)
		if err != nil {
			return Parts{}, fmt.Errorf("writing the %s of job %s: %w", part.name, j.ID, err)
		}
		*part.text = text
	}
	return p, nil
}

// nothing is the JSON of a part with only default members, as for most jobs.
const nothing = "{}"

// PayloadLeftOut stands for a payload that was not read; see JobFilter.WithoutPayload. No stored
// payload has this value.
const PayloadLeftOut = "null"

// DecodeParts decodes the parts into j. It leaves the payload empty where it is [PayloadLeftOut].
// It is strict: broken JSON, unknown members and words, and numbers out of bounds are an error with
// a sentence for [Job.Invalid], and j then stays unchanged. It does not compile the schedule; see
// [Compile].
func DecodeParts(p Parts, j *Job) error {
	var (
		spec   schedule.Spec
		alert  alertRow
		policy policyRow
	)
	read := *j
	read.Payload, read.Delivery = Payload{}, Delivery{}
	for _, part := range []struct {
		name, text string
		into       any
	}{
		{"schedule", p.Schedule, &spec},
		{"payload", p.Payload, &read.Payload},
		{"delivery", p.Delivery, &read.Delivery},
		{"alert", p.Alert, &alert},
		{"policy", p.Policy, &policy},
	} {
		if part.text == nothing || (part.text == PayloadLeftOut && part.into == &read.Payload) {
			continue // each row already has the values to be decoded
		}
		if err := decodeText(part.text, part.into); err != nil {
			return fmt.Errorf("the stored %s cannot be read: %w", part.name, err)
		}
	}
	if !spec.At.IsZero() {
		spec.At = spec.At.UTC()
	}
	read.Schedule = spec
	read.Alert = Alert{
		Off: alert.Off, After: alert.After, Cooldown: time.Duration(alert.Cooldown),
		IncludeSkipped: alert.IncludeSkipped, Delivery: alert.Delivery,
	}
	policy.into(&read)
	if err := read.checkStored(p.Payload == PayloadLeftOut); err != nil {
		return err
	}
	*j = read
	return nil
}

// checkStored refuses words that this version does not recognise: not running a job is better than
// guessing its meaning.
func (j Job) checkStored(withoutPayload bool) error {
	switch j.Schedule.Kind {
	case schedule.KindAt, schedule.KindEvery, schedule.KindCron:
	default:
		return fmt.Errorf("the stored schedule has the kind %s, which is not known", schedule.Excerpt(string(j.Schedule.Kind)))
	}
	switch j.Payload.Kind {
	case PayloadAgentTurn, PayloadSystemEvent, PayloadCommand, PayloadScript:
	default:
		if withoutPayload {
			break
		}
		return fmt.Errorf("the stored payload has the kind %s, which is not known", schedule.Excerpt(string(j.Payload.Kind)))
	}
	for _, d := range []Delivery{j.Delivery, j.Alert.Delivery} {
		switch d.Mode {
		case "", DeliverNone, DeliverAnnounce, DeliverWebhook:
		default:
			return fmt.Errorf("the stored delivery has the mode %s, which is not known", schedule.Excerpt(string(d.Mode)))
		}
	}
	for _, check := range []func() error{j.Overlap.Check, j.Missed.Check} {
		if err := check(); err != nil {
			return fmt.Errorf("the stored policy cannot be used: %w", err)
		}
	}
	if j.Retry == (Retry{}) { // a job that was created without the border, such as a built-in one: no retries
		return nil
	}
	if err := j.Retry.Check(); err != nil {
		return fmt.Errorf("the stored policy cannot be used: %w", err)
	}
	return nil
}

type alertRow struct {
	Off            bool     `json:"off,omitempty"`
	After          int      `json:"after,omitempty"`
	Cooldown       span     `json:"cooldown,omitzero"`
	IncludeSkipped bool     `json:"includeSkipped,omitempty"`
	Delivery       Delivery `json:"delivery,omitzero"`
}

type policyRow struct {
	Overlap     OverlapPolicy `json:"overlap,omitempty"`
	Missed      MissedRule    `json:"missed,omitempty"`
	MaxCatchup  int           `json:"maxCatchup,omitempty"`
	Window      span          `json:"window,omitzero"`
	Retries     int           `json:"retries,omitempty"`
	RetryBase   span          `json:"retryBase,omitzero"`
	RetryMax    span          `json:"retryMax,omitzero"`
	Timeout     span          `json:"timeout,omitzero"`
	AtMostOnce  bool          `json:"atMostOnce,omitempty"`
	DeleteAfter bool          `json:"deleteAfter,omitempty"`
	PauseAfter  int           `json:"pauseAfter,omitempty"`
}

func policyRowOf(j Job) policyRow {
	return policyRow{
		Overlap: j.Overlap, Missed: j.Missed.Rule, MaxCatchup: j.Missed.MaxCatchup, Window: span(j.Missed.Window),
		Retries: j.Retry.Retries, RetryBase: span(j.Retry.Base), RetryMax: span(j.Retry.Max), Timeout: span(j.Timeout),
		AtMostOnce: j.AtMostOnce, DeleteAfter: j.DeleteAfter, PauseAfter: j.PauseAfter,
	}
}

func (r policyRow) into(j *Job) {
	j.Overlap = r.Overlap
	j.Missed = MissedPolicy{Rule: r.Missed, MaxCatchup: r.MaxCatchup, Window: time.Duration(r.Window)}
	j.Retry = Retry{Retries: r.Retries, Base: time.Duration(r.RetryBase), Max: time.Duration(r.RetryMax)}
	j.Timeout = time.Duration(r.Timeout)
	j.AtMostOnce, j.DeleteAfter, j.PauseAfter = r.AtMostOnce, r.DeleteAfter, r.PauseAfter
}

type attemptRow struct {
	Number       int          `json:"attempt"`
	State        AttemptState `json:"state,omitempty"`
	StartedAtMs  int64        `json:"startedAtMs,omitempty"`
	FinishedAtMs int64        `json:"finishedAtMs,omitempty"`
	Error        string       `json:"error,omitempty"`
	ErrorClass   string       `json:"errorClass,omitempty"`
	Node         string       `json:"node,omitempty"`
}

// span is a duration in readable form: 1h0m0s. It keeps the special values of a window, which are
// single nanoseconds.
type span time.Duration

// MarshalText formats the duration.
func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText parses the duration.
func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%s is not a length of time", schedule.Excerpt(string(text)))
	}
	*s = span(d)
	return nil
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func encodeText(value any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(b.Bytes())), nil
}

func decodeText(text string, into any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("it is not the JSON that was expected: %w", err)
	}
	if strings.Trim(text[dec.InputOffset():], " \t\r\n") != "" {
		return errors.New("something follows after its end")
	}
	return nil
}

// EncodeAttempts encodes the attempts of a run; no attempts are an empty list.
func EncodeAttempts(list []Attempt) (string, error) {
	rows := make([]attemptRow, 0, len(list))
	for _, a := range list {
		rows = append(rows, attemptRow{
			Number: a.Number, State: a.State, StartedAtMs: millis(a.StartedAt), FinishedAtMs: millis(a.FinishedAt),
			Error: a.Error, ErrorClass: a.ErrorClass, Node: a.Node,
		})
	}
	text, err := encodeText(rows)
	if err != nil {
		return "", fmt.Errorf("writing attempts: %w", err)
	}
	return text, nil
}

// DecodeAttempts decodes the result of [EncodeAttempts]. An empty string means no attempts.
func DecodeAttempts(text string) ([]Attempt, error) {
	if text == "" || text == "[]" {
		return nil, nil
	}
	var rows []attemptRow
	if err := decodeText(text, &rows); err != nil {
		return nil, fmt.Errorf("the stored attempts cannot be read: %w", err)
	}
	var list []Attempt
	for _, r := range rows {
		list = append(list, Attempt{
			Number: r.Number, State: r.State, StartedAt: moment(r.StartedAtMs), FinishedAt: moment(r.FinishedAtMs),
			Error: r.Error, ErrorClass: r.ErrorClass, Node: r.Node,
		})
	}
	return list, nil
}

// Bounds of the cache of a [PartsDecoder].
const (
	maxRemembered = 2048 // in each of its two generations
	maxPartsBytes = 1024 // of the parts of a job
)

// PartsDecoder is a caching [DecodeParts]: a job is read when it is claimed, when its run begins
// and when that ends, and its parts are usually the same. The result depends only on the parts, so
// entries never become stale. It caches the parts of 2048 to 4096 jobs, some 6 MiB at most. Safe
// for concurrent use; the zero value is ready.
type PartsDecoder struct {
	mu sync.Mutex
	// known is the current generation, and older the previous one, which was current until it was
	// full. Each entry is a job with only the members that the parts contain.
	known, older map[Parts]*Job
}

// Decode is DecodeParts.
func (d *PartsDecoder) Decode(p Parts, j *Job) error {
	if known, ok := d.find(p); ok {
		j.copyParts(known)
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
	known := &Job{}
	known.copyParts(j)
	d.add(p, known)
}

// copyParts copies what [Parts] describe.
func (j *Job) copyParts(from *Job) {
	j.Schedule, j.Payload, j.Delivery, j.Alert = from.Schedule, from.Payload, from.Delivery, from.Alert
	j.Overlap, j.Missed, j.Retry, j.Timeout = from.Overlap, from.Missed, from.Retry, from.Timeout
	j.AtMostOnce, j.DeleteAfter, j.PauseAfter = from.AtMostOnce, from.DeleteAfter, from.PauseAfter
}
