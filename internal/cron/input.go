package cron

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// Members are the members of a job from a client: absent = unchanged, null = back to the default.
type Members map[string]json.RawMessage

// Border is the context in which input for a job is checked.
type Border struct {
	Now          time.Time
	Rules        schedule.Rules
	DefaultAgent string
	// Agent and Channel report whether an agent or channel with this name exists; Payload whether a kind that runs on the host is enabled.
	Agent, Channel func(name string) bool
	Payload        func(kind PayloadKind) bool
	// Channels are the names for which Channel answers true, as a refusal lists them.
	Channels []string
	// Webhook refuses URLs to which sending is not allowed; nil checks only their form.
	Webhook func(url string) error
	Lanes   []string
}

// Bounds of text.
const (
	maxNameRunes    = 200
	maxPayloadBytes = 65_536
)

// Apply changes a job by members and checks the result. A job without an id is new. Errors are [*InvalidError] for the schedule and its related settings, and
// *chat.Error for the rest.
func (b Border) Apply(j Job, m Members) (Job, error) {
	if j.ID == "" {
		j = b.blank(j)
	}
	names := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(names, func(a, c string) int { return rank(a) - rank(c) })
	for _, name := range names {
		set, known := setters()[name]
		if !known {
			return j, chat.Errorf(chat.CodeInvalid, "at root: unexpected property '%s'", chat.Cut(name, 64))
		}
		if err := set(b, &j, m[name], m); err != nil {
			return j, err
		}
	}
	return b.finish(j, m)
}

// rank orders members so that those on which others depend come first.
func rank(name string) int {
	switch name {
	case "agentId", "schedule":
		return 0
	case "sessionKey":
		return 1
	case "paused": // paused takes precedence over enabled
		return 3
	}
	return 2
}

func (b Border) blank(j Job) Job {
	j.Agent, j.Lane, j.WakeMode, j.Enabled = b.DefaultAgent, DefaultLane, WakeNow, true
	j.Overlap, j.Retry, j.Timeout, j.PauseAfter = OverlapSkip, DefaultRetry(), DefaultTimeout, DefaultPauseAfter
	j.Missed, j.Delivery.Mode = MissedPolicy{Rule: MissedFireOnce}, DeliverNone
	return j
}

type setter func(b Border, j *Job, raw json.RawMessage, all Members) error

func setters() map[string]setter {
	return map[string]setter{
		"name":               text(func(j *Job) *string { return &j.Name }, 1, maxNameRunes),
		"displayName":        text(func(j *Job) *string { return &j.DisplayName }, 0, maxNameRunes),
		"description":        text(func(j *Job) *string { return &j.Description }, 0, maxDescriptionRunes),
		"agentId":            setAgent,
		"owner":              ignore,
		"state":              ignore,
		"extended":           ignore,
		"idempotencyKey":     ignore,
		"key":                ignore,
		"declarationKey":     ignore,
		"sessionKey":         ignore,
		"enabled":            flag(func(j *Job) *bool { return &j.Enabled }, true),
		"paused":             setPaused,
		"deleteAfterRun":     setDelete,
		"schedule":           setSchedule,
		"sessionTarget":      setSession,
		"wakeMode":           choice(func(j *Job) *string { return &j.WakeMode }, WakeNow, WakeNow, WakeLater),
		"payload":            setPayload,
		"delivery":           setDelivery,
		"failureAlert":       setAlert,
		"dst":                setDST,
		"overlap":            setOverlap,
		"missed":             setMissed,
		"jitterMs":           integer(func(j *Job, n int64) { j.JitterMs = n }, 0),
		"retry":              setRetry,
		"timeoutSeconds":     integer(func(j *Job, n int64) { j.Timeout = seconds(n) }, int64(DefaultTimeout/time.Second)),
		"lane":               setLane,
		"pauseAfterFailures": integer(func(j *Job, n int64) { j.PauseAfter = int(n) }, DefaultPauseAfter),
		"atMostOnce":         flag(func(j *Job) *bool { return &j.AtMostOnce }, false),
		"startsAtMs":         integer(func(j *Job, n int64) { j.StartsAt = moment(n) }, 0),
		"endsAtMs":           integer(func(j *Job, n int64) { j.EndsAt = moment(n) }, 0),
		"maxRuns":            integer(func(j *Job, n int64) { j.MaxRuns = int(n) }, 0),
		"trigger":            unsupported("trigger"),
		"pacing":             unsupported("pacing"),
	}
}

func seconds(n int64) time.Duration { return units(n, time.Second) }

// units is n times unit, or the longest duration on overflow, which the bounds refuse.
func units(n int64, unit time.Duration) time.Duration {
	most := int64(math.MaxInt64 / unit)
	return time.Duration(max(-most, min(n, most))) * unit
}

func isNull(raw json.RawMessage) bool { return strings.TrimSpace(string(raw)) == "null" }

func refuse(format string, args ...any) error { return chat.Errorf(chat.CodeInvalid, format, args...) }

// Unsupported refuses a feature that this gateway does not have.
func Unsupported(field, what string) error {
	return chat.Errorf(chat.CodeInvalid, "%s is not supported", what).With("code", "CRON_UNSUPPORTED").With("field", field)
}

func unsupported(field string) setter {
	return func(_ Border, _ *Job, raw json.RawMessage, _ Members) error {
		if isNull(raw) {
			return nil
		}
		return Unsupported(field, field)
	}
}

func ignore(Border, *Job, json.RawMessage, Members) error { return nil }

// readInto decodes one member strictly.
func readInto(name string, raw json.RawMessage, into any) error {
	if err := decodeText(string(raw), into); err != nil {
		return refuse("at /%s: %s", name, strings.TrimPrefix(err.Error(), "it is not the JSON that was expected: json: "))
	}
	return nil
}

func text(at func(*Job) *string, least, most int) setter {
	return func(_ Border, j *Job, raw json.RawMessage, _ Members) error {
		var s string
		if err := readInto("name or text", raw, &s); err != nil {
			return err
		}
		n := utf8.RuneCountInString(s)
		switch {
		case n < least || n > most || (least > 0 && strings.TrimSpace(s) == ""):
			return refuse("names and descriptions must have %d to %d characters, not only blanks", least, most)
		case strings.ContainsFunc(s, func(r rune) bool {
			return chat.Unprintable(r) && r != '\n' && r != '\t' || (chat.Unprintable(r) && most <= maxNameRunes)
		}):
			return refuse("names and descriptions must not contain control or bidirectional characters")
		}
		*at(j) = s
		return nil
	}
}

func flag(at func(*Job) *bool, none bool) setter {
	return func(_ Border, j *Job, raw json.RawMessage, _ Members) error {
		*at(j) = none
		if isNull(raw) {
			return nil
		}
		return readInto("a flag", raw, at(j))
	}
}

func integer(set func(*Job, int64), none int64) setter {
	return func(_ Border, j *Job, raw json.RawMessage, _ Members) error {
		n := none
		if !isNull(raw) {
			if err := readInto("a number", raw, &n); err != nil {
				return err
			}
		}
		set(j, n)
		return nil
	}
}

func choice(at func(*Job) *string, none string, words ...string) setter {
	return func(_ Border, j *Job, raw json.RawMessage, _ Members) error {
		*at(j) = none
		if isNull(raw) {
			return nil
		}
		if err := readInto("wakeMode", raw, at(j)); err != nil {
			return err
		}
		if !slices.Contains(words, *at(j)) {
			return refuse("%s is not one of %s", schedule.Excerpt(*at(j)), strings.Join(words, ", "))
		}
		return nil
	}
}

func setAgent(b Border, j *Job, raw json.RawMessage, _ Members) error {
	j.Agent = b.DefaultAgent
	if isNull(raw) {
		return nil
	}
	if err := readInto("agentId", raw, &j.Agent); err != nil {
		return err
	}
	if !b.Agent(j.Agent) {
		return chat.Errorf(chat.CodeUnknownAgent, "there is no agent %s here", schedule.Excerpt(j.Agent)).With("agentId", chat.Cut(j.Agent, 64))
	}
	return nil
}

func setDelete(_ Border, j *Job, raw json.RawMessage, _ Members) error {
	j.DeleteAfter = j.Schedule.Kind == schedule.KindAt
	if isNull(raw) {
		return nil
	}
	return readInto("deleteAfterRun", raw, &j.DeleteAfter)
}

func setLane(b Border, j *Job, raw json.RawMessage, _ Members) error {
	j.Lane = DefaultLane
	if isNull(raw) {
		return nil
	}
	if err := readInto("lane", raw, &j.Lane); err != nil {
		return err
	}
	if !slices.Contains(b.Lanes, j.Lane) {
		return refuse("there is no lane %s; the lanes are %s", schedule.Excerpt(j.Lane), strings.Join(b.Lanes, ", "))
	}
	return nil
}

func setOverlap(_ Border, j *Job, raw json.RawMessage, _ Members) error {
	j.Overlap = OverlapSkip
	if isNull(raw) {
		return nil
	}
	return readInto("overlap", raw, &j.Overlap)
}

func setDST(_ Border, j *Job, raw json.RawMessage, _ Members) error {
	if isNull(raw) {
		j.Schedule.Gap, j.Schedule.Fold = "", ""
		return nil
	}
	var in struct {
		Gap     *schedule.GapRule  `json:"gap"`
		Overlap *schedule.FoldRule `json:"overlap"`
	}
	if err := readInto("dst", raw, &in); err != nil {
		return err
	}
	if in.Gap != nil {
		j.Schedule.Gap = *in.Gap
	}
	if in.Overlap != nil {
		j.Schedule.Fold = *in.Overlap
	}
	return nil
}

func setMissed(_ Border, j *Job, raw json.RawMessage, _ Members) error {
	if isNull(raw) {
		j.Missed = MissedPolicy{Rule: MissedFireOnce}
		return nil
	}
	in := struct {
		Policy     *MissedRule     `json:"policy"`
		MaxCatchup *int            `json:"maxCatchup"`
		Window     json.RawMessage `json:"windowSeconds"`
	}{}
	if err := readInto("missed", raw, &in); err != nil {
		return err
	}
	if in.Policy != nil {
		j.Missed.Rule = *in.Policy
	}
	if in.MaxCatchup != nil {
		if *in.MaxCatchup < 1 {
			return schedule.NewInvalid("missed.maxCatchup", schedule.InvalidRange, "%d is out of range 1-%d", *in.MaxCatchup, MaxMaxCatchup)
		}
		j.Missed.MaxCatchup = *in.MaxCatchup
	}
	switch {
	case in.Window == nil:
	case isNull(in.Window):
		j.Missed.Window = NoWindow
	default:
		var n int64
		if err := readInto("missed/windowSeconds", in.Window, &n); err != nil {
			return err
		}
		j.Missed.Window = seconds(n)
		if n == 0 {
			j.Missed.Window = EmptyWindow
		}
	}
	return nil
}

func setRetry(_ Border, j *Job, raw json.RawMessage, _ Members) error {
	if isNull(raw) {
		j.Retry = DefaultRetry()
		return nil
	}
	in := struct {
		Retries *int   `json:"maxRetries"`
		Base    *int64 `json:"baseMs"`
		Max     *int64 `json:"maxMs"`
	}{}
	if err := readInto("retry", raw, &in); err != nil {
		return err
	}
	if in.Retries != nil {
		j.Retry.Retries = *in.Retries
	}
	if in.Base != nil {
		j.Retry.Base = units(*in.Base, time.Millisecond)
	}
	if in.Max != nil {
		j.Retry.Max = units(*in.Max, time.Millisecond)
	}
	return nil
}
