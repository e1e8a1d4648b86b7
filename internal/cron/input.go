package cron

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/words"
)

// Members are the members of a job from a client: absent = unchanged, null = back to the default.
type Members map[string]json.RawMessage

// Border is the context in which input for a job is checked.
type Border struct {
	Now          time.Time
	Rules        schedule.Rules
	DefaultAgent string
	// Agent and Channel report whether an agent or channel with this name exists; Payload whether a
	// kind that runs on the host is enabled.
	Agent, Channel func(name string) bool
	Payload        func(kind PayloadKind) bool
	// Agents and Channels are the names for which Agent and Channel answer true, as a refusal lists
	// them.
	Agents, Channels []string
	// Webhook refuses URLs to which sending is not allowed; nil checks only their form.
	Webhook func(url string) error
	Lanes   []string
}

// Bounds of text.
const (
	maxNameRunes    = 200
	maxPayloadBytes = 65_536
)

// Apply changes a job by members and checks the result. A job without an id is new. Errors are
// [*InvalidError] for the schedule and its related settings, and *chat.Error for the rest.
func (b Border) Apply(j Job, m Members) (Job, error) {
	if j.ID == "" {
		j = b.blank(j)
	}
	names := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(names, func(a, c string) int { return rank(a) - rank(c) })
	for _, name := range names {
		set, known := setters()[name]
		if !known {
			return j, chat.Errorf(chat.CodeInvalid, "at root: unexpected property '%s'%s", chat.Cut(name, 64), words.Meant(name, slices.Collect(maps.Keys(setters()))))
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
		"startsAtMs":         instant("startsAtMs", func(j *Job) *time.Time { return &j.StartsAt }),
		"endsAtMs":           instant("endsAtMs", func(j *Job) *time.Time { return &j.EndsAt }),
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

// refuseAt is refuse for the member at a path, so that a form can show the sentence at its field.
func refuseAt(field, format string, args ...any) error {
	return chat.Errorf(chat.CodeInvalid, format, args...).With("field", field)
}

// unknownAgent refuses an agent and lists the existing ones.
func (b Border) unknownAgent(field, name string) error {
	known := ""
	if len(b.Agents) > 0 {
		known = "; the agents are " + strings.Join(b.Agents, ", ") + words.Meant(name, b.Agents)
	}
	return chat.Errorf(chat.CodeUnknownAgent, "there is no agent %s here%s", schedule.Excerpt(name), known).
		With("agentId", chat.Cut(name, 64)).With("field", field)
}

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
		case most <= maxNameRunes && chat.Name(s) != s, strings.ContainsFunc(s, func(r rune) bool { return chat.Unprintable(r) && r != '\n' && r != '\t' }):
			return refuse("names and descriptions must not contain control or bidirectional characters, and names none that cannot be seen")
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
		return b.unknownAgent("agentId", j.Agent)
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
		return refuseAt("lane", "there is no lane %s; the lanes are %s%s", schedule.Excerpt(j.Lane), strings.Join(b.Lanes, ", "), words.Meant(j.Lane, b.Lanes))
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

// instant is a member with a moment: Unix milliseconds, null for none, or words in the zone of the
// schedule.
func instant(field string, at func(*Job) *time.Time) setter {
	return func(b Border, j *Job, raw json.RawMessage, all Members) error {
		var words string
		if json.Unmarshal(raw, &words) != nil || isNull(raw) {
			return integer(func(j *Job, n int64) { *at(j) = moment(n) }, 0)(b, j, raw, all)
		}
		in := struct {
			TZ string `json:"tz"`
		}{j.Schedule.TZ}
		if given := all["schedule"]; given != nil {
			_ = json.Unmarshal(given, &in) // its setter has refused what is not understood
		}
		t, err := schedule.ParseMoment(words, b.Now, in.TZ)
		if bad, ok := errors.AsType[*schedule.InvalidError](err); ok && bad.Field == schedule.FieldAt {
			bad.Field = field
		}
		*at(j) = t
		return err
	}
}

func (b Border) readAt(text *string, ms *int64, tz string) (time.Time, error) {
	switch {
	case ms != nil:
		return schedule.AtFromMs(*ms)
	case text != nil:
		return schedule.ParseMoment(*text, b.Now, tz)
	}
	return time.Time{}, schedule.NewInvalid(schedule.FieldAt, schedule.InvalidMissing, "a moment is needed, such as 2027-03-02T08:00:00Z")
}

// finish checks the relations between members of the job.
func (b Border) finish(j Job, m Members) (Job, error) {
	_, newSchedule := m["schedule"]
	_, newDST := m["dst"]
	if err := required(j); err != nil {
		return j, err
	}
	if j.Schedule.Kind != schedule.KindCron && (j.Schedule.Gap != "" || j.Schedule.Fold != "") {
		return j, schedule.NewInvalid("dst", schedule.InvalidChoice, "rules for daylight saving belong to schedules of kind cron; kind %s follows absolute time", j.Schedule.Kind)
	}
	if newSchedule || newDST {
		s, err := schedule.Check(j.Schedule, b.Now, b.Rules)
		if err != nil {
			return j, err
		}
		if err := j.Timetable(s).Check(b.Now); err != nil {
			return j, err
		}
		if j.Schedule.Kind == schedule.KindCron {
			j.Schedule.Expr = strings.Join(strings.Fields(j.Schedule.Expr), " ")
		}
	} else if m["jitterMs"] != nil || m["startsAtMs"] != nil || m["endsAtMs"] != nil || m["maxRuns"] != nil {
		s, err := schedule.Compile(j.Schedule)
		if err != nil {
			return j, err
		}
		if err := j.Timetable(s).Check(b.Now); err != nil {
			return j, err
		}
	}
	if err := j.CheckSettings(); err != nil {
		return j, err
	}
	return j, j.checkPayload()
}

func required(j Job) error {
	for _, f := range []struct {
		name  string
		given bool
	}{{"name", j.Name != ""}, {"schedule", j.Schedule.Kind != ""}, {"sessionTarget", j.Session != ""}, {"payload", j.Payload.Kind != ""}} {
		if !f.given {
			return refuse("must have required property '%s'", f.name)
		}
	}
	return nil
}

func (j Job) checkPayload() error {
	if strings.ContainsRune(j.Payload.Text, 0) {
		return refuse("payload text must not contain U+0000")
	}
	if len(j.Payload.Text) > maxPayloadBytes {
		return chat.Errorf(chat.CodeLimit, "the text of the payload has %d bytes; the limit is %d", len(j.Payload.Text), maxPayloadBytes).
			With("field", "payload").With("limit", maxPayloadBytes)
	}
	if j.Payload.Kind != PayloadCommand && strings.TrimSpace(j.Payload.Text) == "" {
		return refuseAt("payload", "the message is empty; write what the job should do")
	}
	switch j.Payload.Kind {
	case PayloadSystemEvent:
		if j.Session == Isolated && !j.Reminds() {
			return refuse("a systemEvent needs the sessionTarget main, current or session:<key>, or the wakeMode next-heartbeat and a delivery to a channel")
		}
	case PayloadCommand:
		if !strings.Contains(string(j.Payload.Options), `"argv"`) {
			return refuse("payload.argv is needed")
		}
	default: // the others have only text
	}
	if (j.Payload.Kind == PayloadCommand || j.Payload.Kind == PayloadScript) && j.Session != Isolated {
		return refuse("payloads that run on the host need the sessionTarget isolated")
	}
	return nil
}

// PlanningMembers are the members of a job that decide when it fires.
func PlanningMembers() []string {
	return []string{"schedule", "dst", "startsAtMs", "endsAtMs", "maxRuns"}
}

// Planned reads the members that decide when a job fires, for a preview: into an existing job, as
// [Border.Apply] does, or into a zero one. The latter has no jitter, which depends on the id of the
// job. Its schedule may be in the past.
func (b Border) Planned(j Job, m Members) (Job, error) {
	for _, name := range PlanningMembers() {
		if raw, given := m[name]; given {
			if err := setters()[name](b, &j, raw, m); err != nil {
				return j, err
			}
		}
	}
	if j.ID == "" {
		j.JitterMs = 0
	}
	if j.Schedule.Kind == "" {
		return j, refuse("id or schedule is needed")
	}
	return j, nil
}

const maxNoteRunes = 500

// setPaused reads the pause of an imported job, as views show it: note (1 to 500 characters), by,
// atMs (now), untilMs (null = until the job is resumed), enabled (the state of the job after the
// pause). A pause whose end has passed is ignored.
func setPaused(b Border, j *Job, raw json.RawMessage, _ Members) error {
	if strings.TrimSpace(string(raw)) == "null" {
		return nil
	}
	var in struct {
		Note    string `json:"note"`
		By      string `json:"by"`
		AtMs    int64  `json:"atMs"`
		UntilMs *int64 `json:"untilMs"`
		Enabled *bool  `json:"enabled"`
	}
	if err := readInto("paused", raw, &in); err != nil {
		return err
	}
	for name, text := range map[string]string{"paused.note": in.Note, "paused.by": in.By} {
		if text == "" {
			continue
		}
		if err := chat.CheckText(name, text, 4*maxNoteRunes); err != nil {
			return err
		}
	}
	switch {
	case strings.TrimSpace(in.Note) == "" || len([]rune(in.Note)) > maxNoteRunes:
		return refuse("paused.note must have 1 to 500 characters, not only blanks")
	case in.AtMs < 0 || (in.UntilMs != nil && *in.UntilMs < 1):
		return refuse("paused.atMs and paused.untilMs must be milliseconds since 1970")
	}
	p := &Pause{Note: in.Note, By: in.By, At: b.Now}
	if at := time.UnixMilli(in.AtMs).UTC(); in.AtMs > 0 && at.Before(b.Now) {
		p.At = at
	}
	if in.UntilMs != nil {
		p.Until = time.UnixMilli(*in.UntilMs).UTC()
	}
	if in.Enabled != nil {
		j.Enabled = *in.Enabled
	}
	if p.Until.IsZero() || p.Until.After(b.Now) {
		j.Pause = p
	}
	return nil
}
