package cron

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"laneway/internal/cron/schedule"
)

// Parts are the members of a [Job] that tables store as JSON. Every engine writes and reads them with [EncodeParts] and [DecodeParts], so that a row means the
// same everywhere. TZ is a copy of the zone for people who read the table; reading ignores it.
type Parts struct {
	Schedule string
	TZ       string
	Payload  string
	Delivery string
	Alert    string
	Policy   string // overlap, missed, retry, timeout, at most once, delete after, pause after
}

// EncodeParts encodes the parts of a job. It fails when Options of the payload or of a delivery are not JSON. White space in Options is not kept.
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
		{"payload", &p.Payload, payloadRow{Kind: j.Payload.Kind, Text: j.Payload.Text, Options: j.Payload.Options}},
		{"delivery", &p.Delivery, deliveryRowOf(j.Delivery)},
		{"alert", &p.Alert, alertRow{
			Off: j.Alert.Off, After: j.Alert.After, Cooldown: span(j.Alert.Cooldown),
			IncludeSkipped: j.Alert.IncludeSkipped, Delivery: deliveryRowOf(j.Alert.Delivery),
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

// PayloadLeftOut stands for a payload that was not read; see JobFilter.WithoutPayload. No stored payload has this value.
const PayloadLeftOut = "null"

// DecodeParts decodes the parts into j. It leaves the payload empty where it is [PayloadLeftOut]. It is strict: broken JSON, unknown members and words, and
// numbers out of bounds are an error with a sentence for [Job.Invalid], and j then stays unchanged. It does not compile the schedule; see [Compile].
func DecodeParts(p Parts, j *Job) error {
	var (
		spec     schedule.Spec
		payload  payloadRow
		delivery deliveryRow
		alert    alertRow
		policy   policyRow
	)
	for _, part := range []struct {
		name, text string
		into       any
	}{
		{"schedule", p.Schedule, &spec},
		{"payload", p.Payload, &payload},
		{"delivery", p.Delivery, &delivery},
		{"alert", p.Alert, &alert},
		{"policy", p.Policy, &policy},
	} {
		if part.text == nothing || (part.text == PayloadLeftOut && part.into == &payload) {
			continue // each row already has the values to be decoded
		}
		if err := decodeText(part.text, part.into); err != nil {
			return fmt.Errorf("the stored %s cannot be read: %w", part.name, err)
		}
	}
	read := *j
	if !spec.At.IsZero() {
		spec.At = spec.At.UTC()
	}
	read.Schedule = spec
	read.Payload = Payload{Kind: payload.Kind, Text: payload.Text, Options: payload.Options}
	read.Delivery = delivery.delivery()
	read.Alert = Alert{
		Off: alert.Off, After: alert.After, Cooldown: time.Duration(alert.Cooldown),
		IncludeSkipped: alert.IncludeSkipped, Delivery: alert.Delivery.delivery(),
	}
	policy.into(&read)
	if err := read.checkStored(p.Payload == PayloadLeftOut); err != nil {
		return err
	}
	*j = read
	return nil
}

// checkStored refuses words that this version does not recognise: not running a job is better than guessing its meaning.
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

type payloadRow struct {
	Kind    PayloadKind     `json:"kind"`
	Text    string          `json:"text,omitempty"`
	Options json.RawMessage `json:"options,omitempty"`
}

type deliveryRow struct {
	Mode       DeliveryMode    `json:"mode,omitempty"`
	Channel    string          `json:"channel,omitempty"`
	To         string          `json:"to,omitempty"`
	Thread     string          `json:"thread,omitempty"`
	Account    string          `json:"account,omitempty"`
	BestEffort bool            `json:"bestEffort,omitempty"`
	Options    json.RawMessage `json:"options,omitempty"`
}

func deliveryRowOf(d Delivery) deliveryRow {
	return deliveryRow{
		Mode: d.Mode, Channel: d.Channel, To: d.To, Thread: d.Thread, Account: d.Account,
		BestEffort: d.BestEffort, Options: d.Options,
	}
}

func (r deliveryRow) delivery() Delivery {
	return Delivery{
		Mode: r.Mode, Channel: r.Channel, To: r.To, Thread: r.Thread, Account: r.Account,
		BestEffort: r.BestEffort, Options: r.Options,
	}
}

type alertRow struct {
	Off            bool        `json:"off,omitempty"`
	After          int         `json:"after,omitempty"`
	Cooldown       span        `json:"cooldown,omitzero"`
	IncludeSkipped bool        `json:"includeSkipped,omitempty"`
	Delivery       deliveryRow `json:"delivery,omitzero"`
}

func (r deliveryRow) IsZero() bool {
	return r.Mode == "" && r.Channel == "" && r.To == "" && r.Thread == "" && r.Account == "" && !r.BestEffort && r.Options == nil
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

// span is a duration in readable form: 1h0m0s. It keeps the special values of a window, which are single nanoseconds.
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
