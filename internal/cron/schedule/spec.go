package schedule

import (
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

// Spec is a schedule as requested and stored. It is not checked; see [Check] for new input and [Compile] for stored schedules.
//
// At belongs to kind at and has millisecond precision. EveryMs and AnchorMs belong to every: slot k is AnchorMs + k*EveryMs for k >= 0, in Unix milliseconds; a
// job that is created without an anchor uses its time of creation. Expr, TZ, Gap and Fold belong to cron. An empty TZ is UTC, an empty rule is the default for
// the expression.
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

// Signature is a string that identifies the pattern: "at:1803898800000", "every:60000", "cron:0 9 * * 1:Europe/Madrid". It does not include anchor, jitter and
// the daylight-saving rules.
func (s Spec) Signature() string {
	switch s.Kind {
	case KindAt:
		return "at:" + strconv.FormatInt(s.At.UnixMilli(), 10)
	case KindEvery:
		return "every:" + strconv.FormatInt(s.EveryMs, 10)
	case KindCron:
		zone := s.TZ
		if zone == "" {
			zone = "UTC"
		}
		return "cron:" + strings.Join(strings.Fields(s.Expr), " ") + ":" + zone
	default:
		return string(s.Kind) + ":"
	}
}

// Key is the key of a job without a given key: the name and the signature with two colons between them.
func Key(name string, s Spec) string { return name + "::" + s.Signature() }

// Fire is one planned moment of a job. Slot is the moment in the plan, which identifies the run; At is the slot plus the job's jitter, the moment to start.
// Both are in UTC.
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

// Compile turns an accepted Spec into a Schedule. It checks the form and the hard bounds, but neither the current time nor the rules of a user, so a stored job
// stays valid when it grows old or the rules get stricter. Errors are [*InvalidError].
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
	if s.TZ == "" {
		s.TZ = "UTC"
	}
	out := Schedule{
		spec: Spec{Kind: KindCron, Expr: expr.text, TZ: s.TZ, Gap: s.Gap, Fold: s.Fold},
		wall: clock,
	}
	if loc != time.UTC && !strings.ContainsRune("+-", rune(s.TZ[0])) {
		out.release = release()
	}
	return out, nil
}

// dstRules fills in the rules that the job does not set. A job that repeats within the day follows real time: a clock change neither drops nor doubles a fire.
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

// Spec is the schedule in its stored form: single spaces, the zone filled in, at in UTC and whole milliseconds, and no members of another kind.
func (s Schedule) Spec() Spec { return s.spec }

// Kind is the kind of schedule, empty for the zero value.
func (s Schedule) Kind() Kind { return s.spec.Kind }

// Rules are the applied daylight-saving rules, with the defaults filled in. They are empty for at and every, which have no daylight saving.
func (s Schedule) Rules() (GapRule, FoldRule) {
	if s.wall == nil {
		return "", ""
	}
	return s.wall.gap, s.wall.fold
}

// Release is the release of the zone rules with which the schedule was compiled, see [ZoneRelease]. It is empty when no rules take part: for at and every, for
// UTC and for a fixed offset.
func (s Schedule) Release() string { return s.release }

// Location is the zone of a cron schedule, UTC for the other kinds.
func (s Schedule) Location() *time.Location {
	if s.wall == nil {
		return time.UTC
	}
	return s.wall.loc
}

// Next is the first fire strictly later than after. It reports false when no fire follows: an at that has passed, an expression without a fire in 48 years, or
// the end of the year 9999. [cron.Timetable.Next] adds the jitter of a job.
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

// Lost lists the gaps in (after, until] in which a job with a fixed hour had a slot that its rule skip dropped, each as a Fire at the first instant after the
// gap. Jobs that follow real time lose nothing in a gap and return an empty list, as do the other rules and kinds.
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

// SkipsGaps reports whether a slot is lost when its wall time does not exist: a cron expression with [GapSkip] whose slots do not follow real time.
func (s Schedule) SkipsGaps() bool {
	return s.wall != nil && s.wall.gap == GapSkip && !s.wall.fields.repeats
}

// JoinsDayFields reports whether day of month and day of week must both match because one of them begins with *, although both are given.
func (s Schedule) JoinsDayFields() bool { return s.wall != nil && s.wall.fields.narrow }
