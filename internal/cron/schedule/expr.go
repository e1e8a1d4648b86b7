package schedule

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/adhocore/gronx"
)

const (
	maxExprBytes = 256
	fieldExpr    = "schedule.expr"
)

// unit is one field of an expression with its bounds and the names it accepts.
type unit struct {
	name     string
	within   string // what its values divide
	noun     string // one of its values, as a duration
	low, top int
	letter   string   // of the unit in an interval; "" = it has none
	step     int      // the largest meaningful step
	words    []string // word i means the value low+i
	item     string   // that is read, as it was typed
}

// units lists the fields in the order seconds first.
func units() [6]unit {
	return [6]unit{
		{name: "second", within: "minute", noun: "second", low: 0, top: 59, step: 59, letter: "s"},
		{name: "minute", within: "hour", noun: "minute", low: 0, top: 59, step: 59, letter: "m"},
		{name: "hour", within: "day", noun: "hour", low: 0, top: 23, step: 23, letter: "h"},
		{name: "day of month", within: "month", noun: "day", low: 1, top: 31, step: 31, letter: "d"},
		{name: "month", within: "year", noun: "month", low: 1, top: 12, step: 12, words: []string{
			"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
		}},
		{name: "day of week", within: "week", noun: "day", low: 0, top: 7, step: 7, words: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
	}
}

const (
	atSecond = iota
	atMinute
	atHour
	atDay
	atMonth
	atWeekday
)

// expression is a checked expression: six fields with plain numbers, which gronx interprets in only
// one way.
type expression struct {
	text   string // as written, with single spaces
	fields [6]string
}

// followsRealTime reports whether the expression repeats within the day, by its hour field.
func (e expression) followsRealTime() bool {
	return strings.ContainsAny(e.fields[atHour], "*/")
}

// parseExpr checks an expression against the whole grammar. gronx is more lenient, and some inputs
// that it accepts cost it a tenth of a second, so every input is checked first.
func parseExpr(text string) (expression, error) {
	if text == "" || strings.TrimSpace(text) == "" {
		return expression{}, NewInvalid(fieldExpr, InvalidMissing, "an expression of 5 fields is needed, such as 0 9 * * 1-5")
	}
	if len(text) > maxExprBytes {
		return expression{}, NewInvalid(fieldExpr, InvalidRange, "%d bytes are too long, at most %d are allowed", len(text), maxExprBytes)
	}
	for i, c := range text {
		if c != '\t' && (c < ' ' || c > '~') {
			instead := ""
			switch {
			case strings.ContainsRune("‐‑‒–—−", c):
				instead = ": a long dash; write -"
			case strings.ContainsRune("“”„«»‘’", c):
				instead = ": a quote; leave it out"
			}
			return expression{}, NewInvalid(fieldExpr, InvalidSyntax, "byte %d is not a plain ASCII character%s", i+1, instead)
		}
	}
	parts := strings.Fields(text)
	out := expression{text: strings.Join(parts, " ")}
	if sentence := foreign(out.text); sentence != "" {
		return expression{}, NewInvalid(fieldExpr, InvalidSyntax, "%s", sentence)
	}
	if strings.HasPrefix(parts[0], "@") {
		var err error
		if parts, err = expandMacro(out.text); err != nil {
			return expression{}, err
		}
	}
	given := len(parts)
	if given == 5 {
		parts = append([]string{"0"}, parts...)
	}
	switch {
	case len(parts) == 7:
		return expression{}, NewInvalid(fieldExpr, InvalidSyntax, "7 fields are given; a year is not understood: leave it out, and write %s", Excerpt(leftmost(out.text, 6)))
	case len(parts) == 1 || given == 1:
		return expression{}, NewInvalid(fieldExpr, InvalidSyntax, "1 field is given; 5 are needed, or 6 with seconds first")
	case len(parts) != 6:
		return expression{}, NewInvalid(fieldExpr, InvalidSyntax, "%d fields are given; 5 are needed, or 6 with seconds first", given)
	case given == 6 && endsWithYear(parts):
		return expression{}, NewInvalid(fieldExpr, InvalidSyntax, "a sixth field means seconds first, and a year is not understood: leave it out, and write %s", Excerpt(leftmost(out.text, 5)))
	}
	for i, u := range units() {
		field, err := u.parse(parts[i])
		if err != nil {
			return expression{}, err
		}
		out.fields[i] = field
	}
	return out, nil
}

// foreign says what to write for a form of other schedulers that is no list of fields; "" for any
// other text.
func foreign(text string) string {
	parts := strings.Fields(text)
	lower := strings.ToLower(text)
	joined := strings.NewReplacer(", ", ",", " ,", ",", " - ", "-", " -", "-", "- ", "-", " /", "/", "/ ", "/").Replace(text)
	last := parts[len(parts)-1]
	inner, bracketed := strings.CutPrefix(lower, "cron(")
	before, comment, commented := strings.Cut(text, " #")
	zone, zoned := strings.CutPrefix(strings.TrimPrefix(strings.ToUpper(parts[0]), "CRON_"), "TZ=")
	interval := strings.TrimRight(strings.NewReplacer("rate(", "", "@", "", "every", "").Replace(lower), ") ")
	switch {
	case strings.ContainsRune("\"'`", rune(text[0])):
		return "leave out the quotes around " + Excerpt(strings.Trim(text, "\"'`"))
	case bracketed:
		return "leave out cron( ) and a year at the end: write " + Excerpt(leftmost(strings.ToUpper(strings.TrimSuffix(inner, ")")), 5))
	case strings.HasPrefix(lower, "rate("), strings.HasPrefix(lower, "every "), strings.HasPrefix(lower, "@every"):
		return Excerpt(text) + " is not an expression; " + instead(strings.TrimSpace(interval))
	case zoned:
		return "leave out " + Excerpt(parts[0]) + ": the time zone is a setting of its own, tz: " + Excerpt(parts[0][len(parts[0])-len(zone):])
	case len(parts) > 5 && isZone(last):
		return "leave out " + Excerpt(last) + ": the time zone is a setting of its own, tz: " + Excerpt(last)
	case strings.Contains(lower, "freq="):
		return Excerpt(text) + " is a rule of a calendar; write the five fields, such as 0 9 * * MON"
	case strings.HasPrefix(lower, "oncalendar="), strings.Contains(text, ".."), strings.Contains(text, "*-*"):
		return Excerpt(text) + " is a calendar event of systemd; write the five fields, such as 0 9 * * MON-FRI"
	case isoInterval.MatchString(text):
		return Excerpt(text) + " is an interval of ISO 8601; use a schedule of kind every with everyMs"
	case len(parts) == 1 && isMacro("@"+lower):
		return "write @" + lower
	case len(parts) > 1 && isMacro(parts[0]):
		return "leave out what follows the expression, such as a command: write " + Excerpt(parts[0])
	case len(parts) > 5 && isCommand(parts[5:]):
		return "leave out the command of a crontab: write " + Excerpt(leftmost(text, 5))
	case commented && strings.Trim(comment, "0123456789") != "":
		return "leave out the comment: write " + Excerpt(strings.TrimSpace(before))
	case len(parts) > 5 && joined != text && (len(strings.Fields(joined)) == 5 || len(strings.Fields(joined)) == 6):
		return "a field has no spaces in it: write " + Excerpt(joined)
	}
	return ""
}

// instead says how to write what follows the word every.
func instead(interval string) string {
	p := &whenParser{text: interval}
	switch spec, ok := p.every(); {
	case ok && spec.Kind == KindCron:
		return "write " + spec.Expr
	case ok:
		return "use a schedule of kind every with everyMs: every " + short(time.Duration(spec.EveryMs)*time.Millisecond)
	}
	return "write the five fields, such as 0 9 * * MON-FRI"
}

// isoInterval matches the beginning of an interval of ISO 8601, repeated or not.
var isoInterval = regexp.MustCompile(`^(?i)(R[0-9]*/)?P(T?[0-9])`)

func isMacro(word string) bool {
	_, err := expandMacro(word)
	return err == nil && word[0] == '@'
}

// isCommand reports whether words are the command of a line in a crontab, perhaps after its user: a
// path or a variable is among the first two, or they are too many for a field.
func isCommand(words []string) bool {
	for _, word := range words[:min(len(words), 2)] {
		if strings.HasPrefix(word, "/") && len(word) > 1 || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "~/") || strings.HasPrefix(word, "$") {
			return true
		}
	}
	return len(words) > 2 && strings.Trim(strings.ToLower(words[0]), "abcdefghijklmnopqrstuvwxyz_-.") == "" && len(words[0]) > 3
}

// isZone reports whether a word names a time zone and can be no field.
func isZone(word string) bool {
	if !strings.ContainsAny(word[:1], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") || !strings.Contains(word, "/") && !strings.EqualFold(word, "UTC") && !strings.EqualFold(word, "GMT") {
		return false
	}
	_, err := LoadZone(word)
	return err == nil
}

// endsWithYear reports whether six fields are five and a year: the last one has the digits of one,
// or the day of week is at its place in such an expression, where another one has the month.
func endsWithYear(parts []string) bool {
	digits, _, _ := strings.Cut(parts[5], "-")
	digits, _, _ = strings.Cut(digits, ",")
	digits, _, _ = strings.Cut(digits, "/")
	year, err := strconv.Atoi(digits)
	weekday := units()[atWeekday].words
	return err == nil && year >= 1970 && year <= 2199 || strings.Contains(parts[atHour], "?") || strings.Contains(parts[atMonth], "?") ||
		slices.ContainsFunc(weekday, func(day string) bool { return strings.Contains(strings.ToUpper(parts[atMonth]), day) })
}

// leftmost is an expression of the first n fields, with * for ?. The schedulers that write ? count the
// days of the week from SUN = 1, so that their numbers become names.
func leftmost(text string, n int) string {
	parts := strings.Fields(text)
	parts = parts[:min(len(parts), n)]
	if last := len(parts) - 1; strings.Contains(text, "?") {
		parts[last] = dayNames(parts[last], 1)
	}
	return strings.ReplaceAll(strings.Join(parts, " "), "?", "*")
}

// dayNumber matches a number of a day of the week, but no step and no # of a month.
var dayNumber = regexp.MustCompile(`(^|[,-])[0-7]\b|(^|[,-])[0-7]L`)

// dayNames writes the numbers of a day-of-week field as names, where SUN has the number sunday.
func dayNames(field string, sunday int) string {
	words := units()[atWeekday].words
	return dayNumber.ReplaceAllStringFunc(field, func(match string) string {
		i := strings.IndexAny(match, "01234567")
		return match[:i] + words[(int(match[i]-'0')+7-sunday)%7] + match[i+1:]
	})
}

func expandMacro(text string) ([]string, error) {
	switch strings.ToLower(text) {
	case "@yearly", "@annually":
		return []string{"0", "0", "1", "1", "*"}, nil
	case "@monthly":
		return []string{"0", "0", "1", "*", "*"}, nil
	case "@weekly":
		return []string{"0", "0", "*", "*", "0"}, nil
	case "@daily", "@midnight":
		return []string{"0", "0", "*", "*", "*"}, nil
	case "@hourly":
		return []string{"0", "*", "*", "*", "*"}, nil
	}
	if strings.EqualFold(text, "@reboot") {
		return nil, NewInvalid(fieldExpr, InvalidSyntax, "@reboot is not a time: a job fires by the clock; write one such as @hourly, or let the service that starts the gateway run it")
	}
	return nil, NewInvalid(fieldExpr, InvalidSyntax,
		"%s is not known; the short forms are @yearly, @monthly, @weekly, @daily and @hourly", Excerpt(text))
}

// parse checks one field and rewrites it with plain numbers. It drops repeated items, which bounds
// the work of compiling.
func (u unit) parse(field string) (string, error) {
	var items []string
	for item := range strings.SplitSeq(field, ",") {
		u.item = item
		parsed, err := u.parseItem(strings.ToUpper(item))
		if err != nil {
			return "", err
		}
		if !slices.Contains(items, parsed) {
			items = append(items, parsed)
		}
	}
	if len(items) == 1 && items[0] == "?" { // no condition on the day
		return "*", nil
	}
	if len(items) > 1 && slices.Contains(items, "?") {
		return "", NewInvalid(fieldExpr, InvalidSyntax, "%s: ? must be alone, not in a list; write *", u.name)
	}
	if len(items) > 1 && slices.Contains(items, "*") {
		return "", NewInvalid(fieldExpr, InvalidSyntax, "%s: * must be alone, not in a list", u.name)
	}
	return strings.Join(items, ","), nil
}

func (u unit) parseItem(item string) (string, error) {
	if item == "" {
		return "", NewInvalid(fieldExpr, InvalidSyntax, "%s has an empty item", u.name)
	}
	if special, found, err := u.parseSpecial(item); found || err != nil {
		return special, err
	}
	text, step, hasStep := strings.Cut(item, "/")
	base, err := u.parseRange(text)
	if err != nil || !hasStep {
		return base, err
	}
	if u.top == 7 && text == "7" { // Sunday begins the week
		base = "0"
	}
	n, err := u.number(step)
	if err != nil {
		return "", err
	}
	if n < 1 || n > u.step {
		instead := ""
		if n > u.step && u.letter != "" {
			instead = "; an interval is written every " + strconv.Itoa(n) + u.letter
		}
		return "", NewInvalid(fieldExpr, InvalidRange, "%s step %s is out of range 1-%d%s", u.name, Excerpt(step), u.step, instead)
	}
	if strings.Contains(base, ",") { // a range over the end of the week or the year
		return stepped(base, n), nil
	}
	return base + "/" + strconv.Itoa(n), nil
}

// parseRange reads *, a value, or two values with a dash. A value before a step runs to the end of
// the unit: 5/20 is 5,25,45. For weekdays this end is Saturday.
func (u unit) parseRange(text string) (string, error) {
	if text == "*" {
		return text, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	low, err := u.value(first)
	if err != nil || !isRange {
		return strconv.Itoa(low), err
	}
	top, err := u.value(last)
	if err != nil {
		return "", err
	}
	if u.top == 7 {
		low, top = weekRange(low, top, last)
	}
	if low > top && strings.Trim(first+last, "0123456789") == first+last { // FRI-MON, NOV-FEB
		end := u.top
		if end == 7 {
			end = 6
		}
		return counted(low, end) + "," + counted(u.low, top), nil
	}
	if low > top {
		end := u.top
		if end == 7 {
			end = 6
		}
		instead := span(low, end) + "," + span(u.low, top)
		if _, step, stepwise := strings.Cut(u.item, "/"); stepwise {
			if n, err := strconv.Atoi(step); err == nil && n > 0 {
				instead = stepped(counted(low, end)+","+counted(u.low, top), n)
			}
		}
		return "", NewInvalid(fieldExpr, InvalidRange, "%s range %s runs backwards; write %s", u.name, Excerpt(text), instead)
	}
	return strconv.Itoa(low) + "-" + strconv.Itoa(top), nil
}

// span writes a range, or a single value.
func span(low, top int) string {
	if low == top {
		return strconv.Itoa(low)
	}
	return strconv.Itoa(low) + "-" + strconv.Itoa(top)
}

// counted lists the values of a range.
func counted(low, top int) string {
	var list []string
	for v := low; v <= top; v++ {
		list = append(list, strconv.Itoa(v))
	}
	return strings.Join(list, ",")
}

// stepped keeps each n-th value of a list.
func stepped(list string, n int) string {
	var kept []string
	for i, v := range strings.Split(list, ",") {
		if i%n == 0 {
			kept = append(kept, v)
		}
	}
	return strings.Join(kept, ",")
}

// weekRange supports weeks that end on Sunday by name (FRI-SUN) or begin on it as 7.
func weekRange(low, top int, last string) (int, int) {
	if last == "SUN" && low > 0 {
		top = 7
	}
	if low == 7 && top != 7 {
		low = 0
	}
	return low, top
}

// parseSpecial reads L, L-2, LW and 15W in the day of month, 5L, 5#L and 1#2 in the day of week,
// and ? in both.
func (u unit) parseSpecial(item string) (string, bool, error) {
	days := u.top == 31 || u.top == 7
	switch {
	case days && item == "?":
		return item, true, nil
	case !days && strings.HasPrefix(item, "?"):
		return "", true, NewInvalid(fieldExpr, InvalidSyntax, "%s: %q is not understood; ? is for the day fields, write *", u.name, Excerpt(item))
	case u.top == 31 && (item == "L" || item == "LW"):
		return item, true, nil
	case u.top == 31 && item == "WL":
		return "LW", true, nil
	case u.top == 31 && strings.HasPrefix(item, "L-"):
		n, err := u.number(strings.TrimPrefix(item, "L-"))
		if err != nil {
			return "", true, NewInvalid(fieldExpr, InvalidSyntax, "%s: %q is not understood%s", u.name, Excerpt(u.item), u.instead())
		}
		if n > 30 {
			return "", true, NewInvalid(fieldExpr, InvalidRange, "%s: the number after L- is %d, out of range 0-30", u.name, n)
		}
		return "L-" + strconv.Itoa(n), true, nil
	case u.top == 31 && item == "W":
		return "", true, NewInvalid(fieldExpr, InvalidSyntax, "%s: W needs a day, such as 15W for the weekday nearest to the 15th; for every weekday write * and MON-FRI as day of week", u.name)
	case u.top == 7 && item == "L":
		return "", true, NewInvalid(fieldExpr, InvalidSyntax, "%s: L needs a day, such as FRIL for the last Friday of the month; Saturday is SAT", u.name)
	case u.top == 7 && strings.HasSuffix(item, "#L"):
		n, err := u.value(strings.TrimSuffix(item, "#L"))
		return strconv.Itoa(n) + "L", true, err
	case u.top == 7 && strings.HasSuffix(item, "W"):
		return "", true, NewInvalid(fieldExpr, InvalidSyntax, "%s: %q is not understood; W belongs to the day of month, and every weekday is MON-FRI", u.name, Excerpt(item))
	case u.top == 31 && strings.HasSuffix(item, "W"):
		n, err := u.value(strings.TrimSuffix(item, "W"))
		return strconv.Itoa(n) + "W", true, err
	case u.top == 7 && len(item) > 1 && strings.HasSuffix(item, "L"):
		n, err := u.value(strings.TrimSuffix(item, "L"))
		return strconv.Itoa(n) + "L", true, err
	case u.top == 7 && strings.Contains(item, "#"):
		special, err := u.parseNth(item)
		return special, true, err
	}
	return "", false, nil
}

func (u unit) parseNth(item string) (string, error) {
	day, nth, _ := strings.Cut(item, "#")
	n, err := u.value(day)
	if err != nil {
		return "", err
	}
	k, err := u.number(nth)
	if err != nil {
		return "", err
	}
	if k < 1 || k > 5 {
		return "", NewInvalid(fieldExpr, InvalidRange, "%s: the number after # is %d, out of range 1-5", u.name, k)
	}
	return strconv.Itoa(n%7) + "#" + strconv.Itoa(k), nil
}

// named reports whether text is the short name of a day or month, its whole name, or a longer
// abbreviation of it, such as TUES.
func named(word, text string) bool {
	if text == word {
		return true
	}
	var whole string
	for i := range 12 {
		for _, name := range []string{time.Weekday(i % 7).String(), time.Month(i + 1).String()} {
			if name = strings.ToUpper(name); strings.HasPrefix(name, word) {
				whole = name
			}
		}
	}
	return text == whole || slices.Contains([]string{"TUES", "WEDS", "THUR", "THURS", "SEPT"}, text) && strings.HasPrefix(text, word)
}

func (u unit) value(text string) (int, error) {
	if i := slices.IndexFunc(u.words, func(word string) bool { return named(word, text) }); i >= 0 {
		return u.low + i, nil
	}
	n, err := u.number(text)
	if err != nil {
		return 0, err
	}
	if n < u.low || n > u.top {
		midnight := ""
		if u.letter == "h" && n == 24 {
			midnight = "; midnight is hour 0"
		}
		return 0, NewInvalid(fieldExpr, InvalidRange, "%s %d is out of range %d-%d%s", u.name, n, u.low, u.top, midnight)
	}
	return n, nil
}

// instead says what to write for an item that is not understood.
func (u unit) instead() string {
	item := strings.ToUpper(u.item)
	hint := fmt.Sprintf("; write %d to %d", u.low, u.top)
	switch {
	case u.top == 31 && strings.Contains(item, "L"):
		return "; write L-2 for two days before the last, LW for the last weekday, or 15W for the weekday nearest to the 15th"
	case strings.HasPrefix(item, "H"), strings.HasPrefix(item, "R"), strings.Contains(item, "~"):
		hint += ": the jitter of a job spreads its fires"
	case len(u.words) > 0:
		hint += ", or " + u.words[0] + " to " + u.words[len(u.words)-1]
	}
	return hint
}

// number reads digits only: no sign, no space, and few enough not to overflow.
func (u unit) number(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, NewInvalid(fieldExpr, InvalidSyntax, "%s: %q is not understood%s", u.name, Excerpt(u.item), u.instead())
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, NewInvalid(fieldExpr, InvalidRange, "%s %s is out of range %d-%d", u.name, Excerpt(text), u.low, u.top)
	}
	return n, nil
}

const (
	daySeconds  = 24 * 60 * 60
	monthShapes = 4 * 7 // 28 to 31 days, starting on one of seven weekdays
)

// fields is a compiled expression: for each part of the wall clock the set of matching values. Bit
// v stands for value v. It is immutable.
type fields struct {
	seconds, minutes, hours uint64
	months                  uint64
	// days[shape] has bit d for each matching day d of a month of that shape. It combines day of
	// month, day of week, L, W and #.
	days [monthShapes]uint64
	// perDay counts the matching moments of a matching day; first and last are
	// the earliest and the latest of them, in seconds since midnight.
	perDay, first, last int64
	repeats             bool // the hour is a wildcard or a step, or all hours are named
	narrow              bool // both day fields are restricted, one of them as */n, so both must match
}

// compile calls gronx once for each value of each field. The date is labelled UTC and only carries
// the value.
func compile(e expression) (*fields, error) {
	q := &question{}
	f := &fields{
		narrow:  e.fields[atDay] != "*" && e.fields[atWeekday] != "*" && mustBoth(e.fields[atDay], e.fields[atWeekday]),
		seconds: q.set(e.fields[atSecond], atSecond, 0, 59, inDay(time.Second)),
		minutes: q.set(e.fields[atMinute], atMinute, 0, 59, inDay(time.Minute)),
		hours:   q.set(e.fields[atHour], atHour, 0, 23, inDay(time.Hour)),
		months:  q.set(e.fields[atMonth], atMonth, 1, 12, func(v int) time.Time { return date(2000, v, 1) }),
	}
	f.repeats = e.followsRealTime() || f.hours == 1<<24-1
	f.days = q.daysOf(e.fields[atDay], e.fields[atWeekday])
	if q.err != nil {
		return nil, NewInvalid(fieldExpr, InvalidSyntax, "the expression is not understood (%v)", q.err)
	}
	if f.seconds == 0 || f.minutes == 0 || f.hours == 0 {
		return nil, NewInvalid(fieldExpr, InvalidNever, "the expression never fires")
	}
	f.perDay = int64(bits.OnesCount64(f.seconds) * bits.OnesCount64(f.minutes) * bits.OnesCount64(f.hours))
	f.first = clock(lowest(f.hours), lowest(f.minutes), lowest(f.seconds))
	f.last = clock(highest(f.hours), highest(f.minutes), highest(f.seconds))
	return f, nil
}

func date(year, month, day int) time.Time {
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
}

// inDay returns moments of one day, by the number of units since midnight.
func inDay(unit time.Duration) func(int) time.Time {
	return func(v int) time.Time { return date(2000, 1, 1).Add(time.Duration(v) * unit) }
}

func clock(hour, minute, second int) int64 {
	return int64(hour)*3600 + int64(minute)*60 + int64(second)
}

func lowest(set uint64) int  { return bits.TrailingZeros64(set) }
func highest(set uint64) int { return 63 - bits.LeadingZeros64(set) }

// question calls gronx and keeps the first error. A gronx checker stores the date of the last call,
// so each compile has its own.
type question struct {
	checker gronx.SegmentChecker
	err     error
}

func (q *question) due(field string, pos int, at time.Time) bool {
	if field == "*" || field == "" {
		return field == "*"
	}
	q.checker.SetRef(at)
	due, err := q.checker.CheckDue(field, pos)
	if err != nil && q.err == nil {
		q.err = fmt.Errorf("reading field %q: %w", field, err)
	}
	return due
}

func (q *question) set(field string, pos, low, top int, at func(int) time.Time) uint64 {
	var set uint64
	for v := low; v <= top; v++ {
		if q.due(field, pos, at(v)) {
			set |= 1 << v
		}
	}
	return set
}

// daysOf fills the table of month shapes. When both fields are restricted, a day matches by either
// of them. A field that begins with * (including */2) does not count as restricted: then both must
// match. This is the traditional behaviour of cron.
func (q *question) daysOf(day, weekday string) [monthShapes]uint64 {
	both := mustBoth(day, weekday)
	table, byWeek := q.monthDays(day), q.weekDays(weekday)
	for shape := range table {
		if both {
			table[shape] &= byWeek[shape]
		} else {
			table[shape] |= byWeek[shape]
		}
	}
	return table
}

func mustBoth(day, weekday string) bool {
	return strings.HasPrefix(day, "*") || strings.HasPrefix(weekday, "*")
}

// monthDays is the table for the field day of month alone.
func (q *question) monthDays(field string) [monthShapes]uint64 {
	plain, special := divide(field)
	table := q.specialDays(special, atDay)
	set := q.set(plain, atDay, 1, 31, func(v int) time.Time { return date(2000, 1, v) })
	for shape := range table {
		table[shape] |= set & monthMask(shape)
	}
	return table
}

// weekDays is the table for the field day of week alone.
func (q *question) weekDays(field string) [monthShapes]uint64 {
	plain, special := divide(field)
	table := q.specialDays(special, atWeekday)
	// 2 January 2000 was a Sunday.
	week := q.set(plain, atWeekday, 0, 6, func(v int) time.Time { return date(2000, 1, 2+v) })
	for shape := range table {
		for d := 1; d <= 28+shape/7; d++ {
			table[shape] |= (week >> ((shape + d - 1) % 7) & 1) << d
		}
	}
	return table
}

// divide separates the items with the same meaning in each month from L, W and #.
func divide(field string) (plain string, special []string) {
	var same []string
	for item := range strings.SplitSeq(field, ",") {
		if strings.ContainsAny(item, "LW#") {
			special = append(special, item)
		} else {
			same = append(same, item)
		}
	}
	return strings.Join(same, ","), special
}

// specialDays evaluates one example month of each shape: L, W and # depend on nothing else.
func (q *question) specialDays(items []string, pos int) [monthShapes]uint64 {
	var table [monthShapes]uint64
	if len(items) == 0 {
		return table
	}
	for shape, first := range exampleMonths() {
		length := 28 + shape/7
		for _, item := range items {
			if d := lastDay(item, length, shape%7); d > 0 {
				table[shape] |= 1 << d
				continue
			}
			if strings.HasPrefix(item, "L-") { // the month is too short
				continue
			}
			low, top := around(item, pos, length)
			table[shape] |= q.set(item, pos, max(low, 1), min(top, length), func(v int) time.Time { return first.AddDate(0, 0, v-1) })
		}
	}
	return table
}

// lastDay is the day that LW or L-n means in a month of a length that begins on a weekday; 0 = it
// means none. gronx does not know these items.
func lastDay(item string, length, first int) int {
	if before, ok := strings.CutPrefix(item, "L-"); ok {
		n, err := strconv.Atoi(before)
		if err != nil {
			return 0
		}
		return max(length-n, 0)
	}
	if item != "LW" {
		return 0
	}
	switch time.Weekday((first + length - 1) % 7) {
	case time.Saturday:
		return length - 1
	case time.Sunday:
		return length - 2
	default: // the other days are weekdays
	}
	return length
}

// around bounds the days that an item can mean. It only reduces the number of calls: long lists of
// such items would otherwise take milliseconds.
func around(item string, pos, length int) (low, top int) {
	if pos == atDay && item == "L" {
		return length, length
	}
	number, nth, isNth := strings.Cut(item, "#")
	if !isNth && strings.HasSuffix(number, "L") {
		return length - 6, length
	}
	if isNth {
		number = nth
	}
	n, err := strconv.Atoi(strings.TrimSuffix(number, "W"))
	switch {
	case err != nil:
		return 1, length
	case isNth:
		return 7*n - 6, 7 * n
	default:
		return n - 2, n + 2
	}
}

// exampleMonths has the first day of a month of each shape.
func exampleMonths() [monthShapes]time.Time {
	var months [monthShapes]time.Time
	for m, missing := 0, monthShapes; missing > 0; m++ {
		first := date(2000, 1+m, 1)
		shape := shapeOf(lengthOf(first.Year(), first.Month()), int(first.Weekday()))
		if months[shape].IsZero() {
			months[shape] = first
			missing--
		}
	}
	return months
}

// shapeOf numbers the shapes so that shape%7 is the weekday of the first and 28+shape/7 the length.
func shapeOf(length, firstWeekday int) int { return (length-28)*7 + firstWeekday }

func monthMask(shape int) uint64 { return (1<<(28+shape/7) - 1) << 1 }
