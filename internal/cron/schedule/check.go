package schedule

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// FieldAt is the path of the moment of an at in an [*InvalidError].
	FieldAt = "schedule.at"
	// AtGrace is how old an at may be and still run immediately: the delay that a person, a clock
	// and a network may cause.
	AtGrace = 60 * time.Second
	// fewestMs is the smallest number accepted as milliseconds. As milliseconds it is March 1973,
	// as seconds the year 5138, so the two units cannot be confused.
	fewestMs = 100_000_000_000
	// yearsAhead is the period in which an expression must fire at least once.
	yearsAhead = 8
)

// DefaultMinInterval is the minimum distance between two fires unless the operator configured
// another one.
const DefaultMinInterval = time.Second

// Rules are the bounds that depend on the operator and on the caller. The zero value is the default
// for a client with full rights.
type Rules struct {
	// MinInterval is the minimum distance between two fires of every and cron. 0 means one second.
	MinInterval time.Duration
	// AtHorizon is how far in the future an at may be. 0 means until 2199-12-31.
	AtHorizon time.Duration
	// DefaultTZ is the zone of an expression without one. "" means UTC.
	DefaultTZ string
}

// ForChat are the rules for chat users and agents: at least a minute between two fires, at most a
// year ahead.
func (r Rules) ForChat() Rules {
	r.MinInterval = max(r.MinInterval, time.Minute)
	if year := 366 * 24 * time.Hour; r.AtHorizon == 0 || r.AtHorizon > year {
		r.AtHorizon = year
	}
	return r
}

func (r Rules) minInterval() time.Duration {
	if r.MinInterval <= 0 {
		return DefaultMinInterval
	}
	return r.MinInterval
}

// latestAt is the latest accepted moment.
func latestAt() time.Time { return time.Date(2199, 12, 31, 23, 59, 59, 999e6, time.UTC) }

// Check is [Compile] for new input, with further checks: an at must not have passed (with a grace
// of 60 s), an expression must fire within eight years, and no two fires may be closer than the
// rules allow. Errors are [*InvalidError]. It takes some tens of microseconds for usual input, less
// for what the grammar refuses, and a millisecond or two for the longest lists of L, W and #.
func Check(s Spec, now time.Time, r Rules) (Schedule, error) {
	if s.Kind == KindCron && s.TZ == "" {
		s.TZ = r.DefaultTZ
	}
	if s.Kind == KindEvery && (s.EveryMs < r.minInterval().Milliseconds() || s.EveryMs > MaxEvery.Milliseconds()) {
		return Schedule{}, NewInvalid(fieldEvery, InvalidRange, "%d is out of range %d-%d",
			s.EveryMs, r.minInterval().Milliseconds(), MaxEvery.Milliseconds())
	}
	sched, err := Compile(s)
	if err != nil {
		return Schedule{}, err
	}
	switch sched.Kind() {
	case KindAt:
		return sched, checkAt(sched.spec.At, now, r)
	case KindCron:
		return sched, sched.checkFires(now, r)
	default:
		return sched, nil
	}
}

func checkAt(at, now time.Time, r Rules) error {
	if late := now.Sub(at); late > AtGrace {
		return NewInvalid(FieldAt, InvalidPast, "%s was %s before now; choose a later moment", ISO(at), late.Round(time.Second))
	}
	if r.AtHorizon > 0 && at.Sub(now) > r.AtHorizon {
		return NewInvalid(FieldAt, InvalidRange, "%s is too far ahead, at most %d days are allowed", ISO(at), r.AtHorizon/(24*time.Hour))
	}
	return nil
}

// atBounds refuses moments that no rule allows.
func atBounds(at time.Time) error {
	if at.After(latestAt()) {
		return NewInvalid(FieldAt, InvalidRange, "%s is too far ahead, the latest moment is 2199-12-31", at.UTC().Format("2006-01-02"))
	}
	return nil
}

func (s Schedule) checkFires(now time.Time, r Rules) error {
	fire, ok := s.Next(now)
	if !ok || fire.Slot.After(now.AddDate(yearsAhead, 0, 0)) {
		return NewInvalid(fieldExpr, InvalidNever, "%s never fires within eight years", s.spec.Expr)
	}
	least := int64(r.minInterval() / time.Second)
	if closest := s.wall.fields.closest(least + 1); time.Duration(closest)*time.Second < r.minInterval() {
		return NewInvalid(fieldExpr, InvalidFrequent, "%s fires %s apart, at least %s are needed",
			s.spec.Expr, time.Duration(closest)*time.Second, r.minInterval())
	}
	return nil
}

// AtFromMs reads an at in Unix milliseconds. A number that is only plausible as seconds is refused
// with a hint, not multiplied.
func AtFromMs(ms int64) (time.Time, error) {
	switch {
	case ms < 0:
		return time.Time{}, NewInvalid("schedule.atMs", InvalidRange, "%d is negative; milliseconds since 1970 are needed", ms)
	case ms < fewestMs:
		return time.Time{}, NewInvalid("schedule.atMs", InvalidRange,
			"%d looks like seconds; milliseconds since 1970 are needed, try %d", ms, ms*1000)
	case ms > latestAt().UnixMilli():
		return time.Time{}, NewInvalid("schedule.atMs", InvalidRange, "%d is too far ahead, the latest moment is 2199-12-31", ms)
	}
	return time.UnixMilli(ms).UTC(), nil
}

// ParseAt reads an at as a string: RFC 3339, the same without an offset (in tz, UTC if that is
// empty), a date alone (its midnight), or Unix milliseconds. A local time in a gap means the first
// instant after it; one that occurs twice means the first.
func ParseAt(text, tz string) (time.Time, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return AtFromMs(ms)
	}
	loc, err := LoadZone(tz)
	if err != nil {
		return time.Time{}, err
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return boundedAt(t)
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, strings.Replace(text, " ", "T", 1)); err == nil {
			return boundedAt(instant(loc, wall(t.Unix())).Add(time.Duration(t.Nanosecond())))
		}
	}
	return time.Time{}, NewInvalid(FieldAt, InvalidSyntax, "%s is not a moment; write it as 2027-03-02T08:00:00Z", Excerpt(text))
}

func boundedAt(t time.Time) (time.Time, error) {
	t = t.UTC().Truncate(time.Millisecond)
	return t, atBounds(t)
}

// ISO formats an instant in the format of the product.
func ISO(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// DefaultCompilerSize is the default number of schedules that a Compiler caches.
const DefaultCompilerSize = 4096

// Compiler is a caching [Compile]. Compiling takes some twenty microseconds and a zone may need a
// file, too much for a claim of hundreds of rows each second; a repeated call costs one lookup. It
// is safe for concurrent use and holds at most twice its size: when the newer half is full, the
// older one is dropped. Zones are never dropped, because their number is bounded by the zone
// database.
type Compiler struct {
	size  int
	rules zoneRules
	// release is that of the rules. Zones are cached, so the rules of a Compiler never change.
	release string

	mu    sync.Mutex
	newer map[Spec]Schedule
	older map[Spec]Schedule
	zones map[string]*time.Location
}

// NewCompiler creates a Compiler that caches size schedules. A size of 0 or less means
// [DefaultCompilerSize].
func NewCompiler(size int) *Compiler {
	if size <= 0 {
		size = DefaultCompilerSize
	}
	rules := currentZones()
	return &Compiler{size: size, rules: rules, release: rules.release(), newer: map[Spec]Schedule{}, zones: map[string]*time.Location{}}
}

// Release is that of the zone rules, see [ZoneRelease].
func (c *Compiler) Release() string { return c.release }

// Compile returns the result of the function [Compile]. Errors are not cached.
func (c *Compiler) Compile(s Spec) (Schedule, error) {
	if s.Kind != KindCron {
		return Compile(s)
	}
	if found, ok := c.find(s); ok {
		return found, nil
	}
	sched, err := compileWith(s, c.zone, func() string { return c.release })
	if err != nil {
		return Schedule{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(s, sched)
	return sched, nil
}

func (c *Compiler) find(s Spec) (Schedule, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.newer[s]; ok {
		return found, true
	}
	found, ok := c.older[s]
	if ok {
		c.keep(s, found)
	}
	return found, ok
}

// keep adds a schedule to the cache; the caller holds the mutex.
func (c *Compiler) keep(s Spec, sched Schedule) {
	if len(c.newer) >= c.size {
		c.newer, c.older = make(map[Spec]Schedule, c.size), c.newer
	}
	c.newer[s] = sched
}

func (c *Compiler) zone(name string) (*time.Location, error) {
	c.mu.Lock()
	loc, ok := c.zones[name]
	c.mu.Unlock()
	if ok {
		return loc, nil
	}
	loc, err := c.rules.load(name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zones[name] = loc
	return loc, nil
}
