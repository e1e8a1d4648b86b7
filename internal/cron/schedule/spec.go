// Package schedule computes when a schedule fires. It is pure: it uses no database, no goroutine
// and no clock. Every function takes the time as an argument, so the same inputs give the same
// result on every replica, in a preview and in a test.
//
// # Ideas
//
// A [Spec] is the schedule as a person wrote it: at, every or cron. A [Schedule] is a Spec that was
// checked and compiled. It cannot be created in any other way, so code that has one need not check
// again. A [cron.Timetable] adds the settings of one job: jitter, a first and a last moment, a
// number of fires. Preview and firing both call its method Next, which is the only way to compute a
// fire.
//
// A cron expression describes wall times, and wall clocks jump. The search therefore works in wall
// time and maps each match to an instant piece by piece, where a piece is a period with a constant
// offset of the zone. Two rules decide about the edges of the pieces: [GapRule] for wall times that
// do not exist, [FoldRule] for those that occur twice. The pieces are searched in the order of
// absolute time, so the next fire is strictly later than the last one in every zone.
//
// gronx defines the meaning of an expression. It is called once per value when the expression is
// compiled, and never with a zone. The results are stored as bit sets: seconds, minutes, hours,
// months, and the days of the 28 shapes that a month can have (four lengths, seven first weekdays).
// Searching and counting are bit operations. A search by gronx itself costs some hundred times as
// much and stops after 500 steps; the tests use it as one of the oracles.
//
// # Promises
//
//   - A fire is strictly later than the given instant.
//   - All slots in one gap give at most one fire.
//   - A refused schedule is reported as [*InvalidError], with the field, a
//     reason from a closed set and a sentence that names the bound.
//   - Schedule is immutable and safe for concurrent use. So is [Compiler].
//
// # What it does not do
//
// It claims nothing, runs nothing and stores nothing. It reads no default zone from the process: a
// Spec without a zone means UTC unless [Rules] name another. As in Unix time, leap seconds do not
// exist. The minimum distance between two fires is measured on the wall clock; in the hour of a
// daylight-saving change two fires may be closer.
//
// The package has nothing to start or stop.
//
// # Example
//
//	s, err := schedule.Check(schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * 1-5", TZ: "Europe/Berlin"}, now, schedule.Rules{})
//	if err != nil {
//		return err // schedule.expr: minute 99 is out of range 0-59
//	}
//	fire, ok := s.Next(now) // ok is false when no fire follows
package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of a schedule.
type Kind string

// The kinds of schedule.
const (
	KindAt    Kind = "at"    // one moment
	KindEvery Kind = "every" // a fixed interval of absolute time
	KindCron  Kind = "cron"  // an expression on a wall clock
)

// Spec is a schedule as requested and stored. It is not checked; see [Check] for new input and
// [Compile] for stored schedules.
//
// At belongs to kind at and has millisecond precision. EveryMs and AnchorMs belong to every: slot k
// is AnchorMs + k*EveryMs for k >= 0, in Unix milliseconds; a job that is created without an anchor
// uses its time of creation. Expr, TZ, Gap and Fold belong to cron. An empty TZ is UTC, an empty
// rule is the default for the expression.
type Spec struct {
	Kind     Kind      `json:"kind"`
	At       time.Time `json:"at,omitzero"`
	EveryMs  int64     `json:"everyMs,omitempty"`
	AnchorMs int64     `json:"anchorMs,omitempty"`
	Expr     string    `json:"expr,omitempty"`
	TZ       string    `json:"tz,omitempty"`
	Gap      GapRule   `json:"gap,omitempty"`
	Fold     FoldRule  `json:"fold,omitempty"`
}

// Signature is a string that identifies the pattern: "at:1803898800000", "every:60000", "cron:0 9 *
// * 1:Europe/Madrid". It does not include anchor, jitter and the daylight-saving rules.
func (s Spec) Signature() string {
	switch s.Kind {
	case KindAt:
		return "at:" + strconv.FormatInt(s.At.UnixMilli(), 10)
	case KindEvery:
		return "every:" + strconv.FormatInt(s.EveryMs, 10)
	case KindCron:
		zone := cmp.Or(s.TZ, "UTC")
		return "cron:" + strings.Join(strings.Fields(s.Expr), " ") + ":" + zone
	default:
		return string(s.Kind) + ":"
	}
}

// Key is the key of a job without a given key: the name and the signature with two colons between
// them.
func Key(name string, s Spec) string { return name + "::" + s.Signature() }

// Fire is one planned moment of a job. Slot is the moment in the plan, which identifies the run; At
// is the slot plus the job's jitter, the moment to start. Both are in UTC.
type Fire struct {
	Slot time.Time
	At   time.Time
	DST  DSTNote
}

// Schedule is a checked and compiled [Spec]: a small immutable value, safe for
// concurrent use. The zero value never fires.
type Schedule struct {
	spec    Spec
	wall    *wallClock // for kind cron
	release string
}

// Compile turns an accepted Spec into a Schedule. It checks the form and the hard bounds, but
// neither the current time nor the rules of a user, so a stored job stays valid when it grows old
// or the rules get stricter. Errors are [*InvalidError].
func Compile(s Spec) (Schedule, error) {
	rules := currentZones()
	return compileWith(s, rules.load, rules.release)
}

func compileWith(s Spec, zone func(string) (*time.Location, error), release func() string) (Schedule, error) {
	switch s.Kind {
	case KindAt:
		return compileAt(s)
	case KindEvery:
		return compileEvery(s)
	case KindCron:
		return compileCron(s, zone, release)
	case "":
		return Schedule{}, NewInvalid("schedule.kind", InvalidMissing, "one of at, every and cron is needed")
	default:
		return Schedule{}, NewInvalid("schedule.kind", InvalidKind, "%s is not known; the kinds are at, every and cron", Excerpt(string(s.Kind)))
	}
}

func compileAt(s Spec) (Schedule, error) {
	if s.At.IsZero() {
		return Schedule{}, NewInvalid(FieldAt, InvalidMissing, "a moment is needed, such as 2027-03-02T08:00:00Z")
	}
	if err := atBounds(s.At); err != nil {
		return Schedule{}, err
	}
	return Schedule{spec: Spec{Kind: KindAt, At: s.At.UTC().Truncate(time.Millisecond)}}, nil
}

func compileCron(s Spec, zone func(string) (*time.Location, error), release func() string) (Schedule, error) {
	expr, err := parseExpr(s.Expr)
	if err != nil {
		return Schedule{}, err
	}
	loc, err := zone(s.TZ)
	if err != nil {
		return Schedule{}, err
	}
	clock := &wallClock{loc: loc}
	if clock.fields, err = compile(expr); err != nil {
		return Schedule{}, err
	}
	if clock.gap, clock.fold, err = dstRules(s, clock.fields.repeats); err != nil {
		return Schedule{}, err
	}
	s.TZ = cmp.Or(s.TZ, "UTC")
	out := Schedule{
		spec: Spec{Kind: KindCron, Expr: expr.text, TZ: s.TZ, Gap: s.Gap, Fold: s.Fold},
		wall: clock,
	}
	if loc != time.UTC && !strings.ContainsRune("+-", rune(s.TZ[0])) {
		out.release = release()
	}
	return out, nil
}

// dstRules fills in the rules that the job does not set. A job that repeats within the day follows
// real time: a clock change neither drops nor doubles a fire.
func dstRules(s Spec, repeats bool) (GapRule, FoldRule, error) {
	gap, fold := s.Gap, s.Fold
	switch gap {
	case GapRunAfter, GapSkip:
	case "":
		gap = GapRunAfter
		if repeats {
			gap = GapSkip
		}
	default:
		return "", "", NewInvalid("dst.gap", InvalidChoice, "%s is not known; the rules are run_after and skip", Excerpt(string(gap)))
	}
	switch fold {
	case FoldFirst, FoldSecond, FoldBoth:
	case "":
		fold = FoldFirst
		if repeats {
			fold = FoldBoth
		}
	default:
		return "", "", NewInvalid("dst.overlap", InvalidChoice, "%s is not known; the rules are first, second and both", Excerpt(string(fold)))
	}
	return gap, fold, nil
}

// Spec is the schedule in its stored form: single spaces, the zone filled in, at in UTC and whole
// milliseconds, and no members of another kind.
func (s Schedule) Spec() Spec { return s.spec }

// Kind is the kind of schedule, empty for the zero value.
func (s Schedule) Kind() Kind { return s.spec.Kind }

// Rules are the applied daylight-saving rules, with the defaults filled in. They are empty for at
// and every, which have no daylight saving.
func (s Schedule) Rules() (GapRule, FoldRule) {
	if s.wall == nil {
		return "", ""
	}
	return s.wall.gap, s.wall.fold
}

// Release is the release of the zone rules with which the schedule was compiled, see [ZoneRelease].
// It is empty when no rules take part: for at and every, for UTC and for a fixed offset.
func (s Schedule) Release() string { return s.release }

// Location is the zone of a cron schedule, UTC for the other kinds.
func (s Schedule) Location() *time.Location {
	if s.wall == nil {
		return time.UTC
	}
	return s.wall.loc
}

// Next is the first fire strictly later than after. It reports false when no fire follows: an at
// that has passed, an expression without a fire in 48 years, or the end of the year 9999.
// [cron.Timetable.Next] adds the jitter of a job.
func (s Schedule) Next(after time.Time) (Fire, bool) {
	switch {
	case s.spec.Kind == KindAt:
		return fireAt(s.spec.At, DSTNone), s.spec.At.After(after)
	case s.spec.Kind == KindEvery:
		ms, ok := s.nextEvery(after)
		return fireAt(time.UnixMilli(ms).UTC(), DSTNone), ok
	case s.wall != nil:
		seconds := after.Unix()
		at, note, ok := s.wall.next(seconds, min(seconds+reach, lastSecond))
		return fireAt(time.Unix(at, 0).UTC(), note), ok
	default:
		return Fire{}, false
	}
}

func fireAt(at time.Time, note DSTNote) Fire { return Fire{Slot: at, At: at, DST: note} }

// Count is the number of fires in (after, until]. Its cost does not depend on
// that number: it is constant for at and every, and a few operations per month
// for cron.
func (s Schedule) Count(after, until time.Time) int64 {
	if !until.After(after) {
		return 0
	}
	switch {
	case s.spec.Kind == KindAt:
		if s.spec.At.After(after) && !s.spec.At.After(until) {
			return 1
		}
		return 0
	case s.spec.Kind == KindEvery:
		return s.everyUntil(until) - s.everyUntil(after)
	case s.wall != nil:
		return s.wall.count(after.Unix(), min(until.Unix(), lastSecond))
	default:
		return 0
	}
}

// Lost lists the gaps in (after, until] in which a job with a fixed hour had a slot that its rule
// skip dropped, each as a Fire at the first instant after the gap. Jobs that follow real time lose
// nothing in a gap and return an empty list, as do the other rules and kinds.
func (s Schedule) Lost(after, until time.Time) []Fire {
	if s.wall == nil || s.wall.gap != GapSkip || s.wall.fields.repeats {
		return nil
	}
	var fires []Fire
	for _, at := range s.wall.lost(after.Unix(), min(until.Unix(), lastSecond)) {
		fires = append(fires, fireAt(time.Unix(at, 0).UTC(), DSTNone))
	}
	return fires
}

// Zone is the name of the zone as requested; "" = UTC.
func (s Schedule) Zone() string { return s.spec.TZ }

// SkipsGaps reports whether a slot is lost when its wall time does not exist: a cron expression
// with [GapSkip] whose slots do not follow real time.
func (s Schedule) SkipsGaps() bool {
	return s.wall != nil && s.wall.gap == GapSkip && !s.wall.fields.repeats
}

// JoinsDayFields reports whether day of month and day of week must both match because one of them
// begins with *, although both are given.
func (s Schedule) JoinsDayFields() bool { return s.wall != nil && s.wall.fields.narrow }

const (
	// MaxEvery is the longest interval, ten years of 365 days.
	MaxEvery = 315_360_000_000 * time.Millisecond

	fieldEvery  = "schedule.everyMs"
	fieldAnchor = "schedule.anchorMs"
	lastMilli   = lastSecond*1000 + 999
)

func compileEvery(s Spec) (Schedule, error) {
	if s.EveryMs < 1 || s.EveryMs > MaxEvery.Milliseconds() {
		return Schedule{}, NewInvalid(fieldEvery, InvalidRange, "%d is out of range 1-%d", s.EveryMs, MaxEvery.Milliseconds())
	}
	if s.AnchorMs < 0 || s.AnchorMs > latestAt().UnixMilli() {
		return Schedule{}, NewInvalid(fieldAnchor, InvalidRange, "%d is out of range 0-%d", s.AnchorMs, latestAt().UnixMilli())
	}
	return Schedule{spec: Spec{Kind: KindEvery, EveryMs: s.EveryMs, AnchorMs: s.AnchorMs}}, nil
}

// everyUntil counts the slots up to and including an instant. Instants are clamped to the
// representable years, so this cannot overflow.
func (s Schedule) everyUntil(at time.Time) int64 {
	ms := clampMilli(at)
	if ms < s.spec.AnchorMs {
		return 0
	}
	return (ms-s.spec.AnchorMs)/s.spec.EveryMs + 1
}

// nextEvery is slot k, where k slots have passed.
func (s Schedule) nextEvery(after time.Time) (int64, bool) {
	if after.Unix() > lastSecond {
		return 0, false
	}
	ms := s.spec.AnchorMs + s.everyUntil(after)*s.spec.EveryMs
	return ms, ms <= lastMilli
}

// clampMilli is the Unix time in milliseconds, rounded down.
func clampMilli(t time.Time) int64 {
	switch seconds := t.Unix(); {
	case seconds < 0:
		return -1
	case seconds > lastSecond:
		return lastMilli
	default:
		return t.UnixMilli()
	}
}

// ErrInvalid is wrapped by every [*InvalidError]. Nothing was stored, and the same input gives the
// same error again.
var ErrInvalid = errors.New("invalid schedule")

// InvalidReason is why an input was refused. The set is closed, so that it can be a label of a
// metric.
type InvalidReason string

// The reasons for refusing a schedule or a related setting.
const (
	InvalidKind     InvalidReason = "unknown_kind"  // not at, every or cron
	InvalidMissing  InvalidReason = "missing"       // a member that the kind needs is absent
	InvalidSyntax   InvalidReason = "syntax"        // cannot be parsed
	InvalidRange    InvalidReason = "out_of_range"  // can be parsed, but is outside its bounds
	InvalidZone     InvalidReason = "unknown_zone"  // the zone does not exist
	InvalidPast     InvalidReason = "past"          // an at that has passed
	InvalidNever    InvalidReason = "never_fires"   // no fire within eight years, or none inside the limits
	InvalidFrequent InvalidReason = "too_frequent"  // two fires closer than the minimum interval
	InvalidChoice   InvalidReason = "unknown_value" // not one of the listed words
)

// InvalidError is a refused input. Field is its path as on the wire (schedule.expr, dst.gap,
// jitterMs); Sentence is for people and names the violated bound.
type InvalidError struct {
	Field    string
	Reason   InvalidReason
	Sentence string
}

// Error is the whole message, such as "schedule.expr: minute 99 is out of range 0-59".
func (e *InvalidError) Error() string {
	if e.Reason == InvalidPast {
		return e.Field + " is in the past: " + e.Sentence
	}
	return e.Field + ": " + e.Sentence
}

// Unwrap makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// NewInvalid returns an [*InvalidError] whose sentence is formatted as by fmt.Sprintf.
func NewInvalid(field string, reason InvalidReason, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: reason, Sentence: fmt.Sprintf(format, args...)}
}
