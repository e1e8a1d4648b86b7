package schedule

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"laneway/internal/words"
)

const (
	fieldWhen = "when"
	whenHelp  = "write in 20m, 15:00, tomorrow 9:00, monday 8:30, 2027-03-02 15:00, every 30m, every day 9:00 or a cron expression"
)

// ParseWhen parses a short form at the beginning of a chat message and returns the schedule and the
// rest, which is the message of the job and may be empty:
//
//	in 20m · in 2h30m · in 3 days · 15:00 · at 15:00 · 3pm · today 15:00
//	tomorrow 9:00 · monday 8:30 · 2027-03-02 15:00
//	every 30m · every day 9:00 · every 1d 9:00 · every weekday 9:00 · every monday 8:30
//	0 9 * * 1-5 · @daily
//
// Each form may be in quotes, including the typographic ones of phones. A time of day alone is the
// next one. Local times are in tz. Text that begins with an expression of six fields is parsed as
// five when five are enough and the sixth is a plain word or number; quotes avoid the ambiguity.
// The result is not checked: pass it to [Check]. An error is an [*InvalidError] that lists the
// forms.
func ParseWhen(text string, now time.Time, tz string) (Spec, string, error) {
	loc, err := LoadZone(tz)
	if err != nil {
		return Spec{}, "", err
	}
	p := &whenParser{text: strings.TrimSpace(text), now: now, tz: tz, loc: loc}
	spec, ok := p.parse()
	if p.err != nil {
		return Spec{}, "", p.err
	}
	if !ok {
		return Spec{}, "", NewInvalid(fieldWhen, InvalidSyntax, "%s is not understood; %s%s", Excerpt(firstWords(text)), whenHelp, meant(text))
	}
	return spec, p.text, nil
}

// ParseMoment reads an at as [ParseAt] does, or as words of [ParseWhen] that mean one moment, such
// as `in 20m`, `15:00` and `tomorrow 9:00`. Local times are in tz, UTC if that is empty.
func ParseMoment(text string, now time.Time, tz string) (time.Time, error) {
	at, err := ParseAt(text, tz)
	if bad, ok := errors.AsType[*InvalidError](err); !ok || bad.Field != FieldAt || bad.Reason != InvalidSyntax {
		return at, err
	}
	if spec, rest, err := ParseWhen(text, now, cmp.Or(tz, "UTC")); err == nil && rest == "" && spec.Kind == KindAt {
		return boundedAt(spec.At)
	}
	return at, NewInvalid(FieldAt, InvalidSyntax, "%s is not a moment; write 2027-03-02T08:00, in 20m, 15:00, tomorrow 9:00 or monday 8:30%s", Excerpt(text), meant(text))
}

// meant suggests the beginning of a text with its misspelt day, or "".
func meant(text string) string {
	days := []string{"today", "tomorrow", "yesterday", "every"}
	for day := time.Sunday; day <= time.Saturday; day++ {
		days = append(days, strings.ToLower(day.String()))
	}
	list := strings.Fields(firstWords(text))
	for i, word := range list[:min(len(list), 2)] {
		day := words.Closest(word, days)
		if day == "" || strings.EqualFold(day, word) {
			continue
		}
		list[i] = day
		return "; did you mean " + Excerpt(strings.Join(list[:min(len(list), i+2)], " ")) + "?"
	}
	return ""
}

func firstWords(text string) string {
	list := strings.Fields(text)
	return strings.Join(list[:min(len(list), 4)], " ")
}

// whenParser consumes text from the left.
type whenParser struct {
	text string
	now  time.Time
	tz   string
	loc  *time.Location
	err  error // a better message than "not understood"
}

func (p *whenParser) peek() string {
	word, _ := cutSpace(p.text)
	return word
}

func (p *whenParser) take() string {
	word, rest := cutSpace(p.text)
	p.text = rest
	return word
}

func cutSpace(s string) (word, rest string) {
	i := strings.IndexAny(s, " \t\n\r")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimSpace(s[i:])
}

func (p *whenParser) parse() (Spec, bool) {
	if inner, rest, ok := p.quoted(); ok || p.err != nil {
		return p.only(inner, rest)
	}
	switch strings.ToLower(p.peek()) {
	case "":
		return Spec{}, false
	case "in":
		p.take()
		return p.in()
	case "every":
		p.take()
		return p.every()
	case "at", "on":
		p.take()
		return p.moment()
	}
	if spec, ok := p.expression(); ok || p.err != nil {
		return spec, ok
	}
	return p.moment()
}

// quotes are the marks that begin or end a quoted form; phones replace the plain one.
const quotes = `"“”„«»`

// quoted splits off a form in quotes; ok is false when the text does not begin with a quote.
func (p *whenParser) quoted() (inner, rest string, ok bool) {
	opening, size := utf8.DecodeRuneInString(p.text)
	if p.text == "" || !strings.ContainsRune(quotes, opening) {
		return "", "", false
	}
	inner = p.text[size:]
	end := strings.IndexAny(inner, quotes)
	if end < 0 {
		p.err = NewInvalid(fieldWhen, InvalidSyntax, "the closing quote is missing")
		return "", "", false
	}
	_, size = utf8.DecodeRuneInString(inner[end:])
	return strings.TrimSpace(inner[:end]), strings.TrimSpace(inner[end+size:]), true
}

// only parses inner, which must be exactly one form, and leaves rest.
func (p *whenParser) only(inner, rest string) (Spec, bool) {
	if p.err != nil {
		return Spec{}, false
	}
	p.text = rest
	_, err := parseExpr(inner)
	if err == nil {
		return p.cron(inner), true
	}
	within := &whenParser{text: inner, now: p.now, tz: p.tz, loc: p.loc}
	spec, ok := within.parse()
	switch {
	case within.err != nil:
		p.err = within.err
	case ok && within.text == "":
		return spec, true
	case strings.Contains(inner, "*"): // no other form contains one
		p.err = err
	}
	return Spec{}, false
}

// in parses a duration from now.
func (p *whenParser) in() (Spec, bool) {
	d, ok := p.duration()
	if !ok {
		return Spec{}, false
	}
	return atSpec(p.now.Add(d)), true
}

func atSpec(t time.Time) Spec {
	return Spec{Kind: KindAt, At: t.UTC().Truncate(time.Millisecond)}
}

// every parses an interval, or days and a time of day.
func (p *whenParser) every() (Spec, bool) {
	if days, ok := weekField(p.peek()); ok {
		p.take()
		return p.onDays(days)
	}
	d, ok := p.duration()
	if !ok {
		return Spec{}, false
	}
	if day := 24 * time.Hour; d%day == 0 && p.timeFollows() {
		if d == day {
			return p.onDays("*")
		}
		p.err = NewInvalid(fieldWhen, InvalidSyntax, "a time of day goes with a single day, such as every day 9:00 or every monday 8:30")
		return Spec{}, false
	}
	return Spec{Kind: KindEvery, EveryMs: d.Milliseconds(), AnchorMs: p.now.UnixMilli()}, true
}

// timeFollows reports whether a time of day is next.
func (p *whenParser) timeFollows() bool {
	word, rest := cutSpace(p.text)
	if strings.EqualFold(word, "at") {
		word, _ = cutSpace(rest)
	}
	_, _, ok := timeOfDay(word)
	return ok
}

func (p *whenParser) onDays(days string) (Spec, bool) {
	if strings.EqualFold(p.peek(), "at") {
		p.take()
	}
	hour, minute, ok := timeOfDay(p.take())
	if !ok {
		p.err = NewInvalid(fieldWhen, InvalidSyntax, "a time of day is needed, such as every day 9:00")
		return Spec{}, false
	}
	return Spec{Kind: KindCron, Expr: strconv.Itoa(minute) + " " + strconv.Itoa(hour) + " * * " + days, TZ: p.tz}, true
}

// weekField is the day-of-week field for a word.
func weekField(word string) (string, bool) {
	switch word = strings.ToLower(word); word {
	case "day":
		return "*", true
	case "weekday":
		return "1-5", true
	}
	day, ok := weekday(word)
	return strconv.Itoa(int(day)), ok
}

func weekday(word string) (time.Weekday, bool) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		name := strings.ToLower(d.String())
		if word == name || word == name[:3] {
			return d, true
		}
	}
	return 0, false
}

// moment parses a time of day, optionally after a day.
func (p *whenParser) moment() (Spec, bool) {
	word := strings.ToLower(p.take())
	if hour, minute, ok := timeOfDay(word); ok {
		return p.soonest(hour, minute), true
	}
	if t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(word)); err == nil {
		return atSpec(t), true
	}
	year, month, day := p.now.In(p.loc).Date()
	if date, err := time.Parse(time.DateOnly, word); err == nil {
		year, month, day = date.Date()
	} else if ahead, ok := p.daysAhead(word); ok {
		day += ahead
	} else {
		return Spec{}, false
	}
	if strings.EqualFold(p.peek(), "at") {
		p.take()
	}
	hour, minute, ok := timeOfDay(p.take())
	if !ok {
		p.err = NewInvalid(fieldWhen, InvalidSyntax, "a time of day is needed after %s, such as 15:00", Excerpt(word))
		return Spec{}, false
	}
	at := instant(p.loc, wallOf(year, month, day, hour, minute))
	if _, named := weekday(word); named && !at.After(p.now) {
		at = instant(p.loc, wallOf(year, month, day+7, hour, minute))
	}
	return atSpec(at), true
}

// soonest is the next instant that shows a time of day.
func (p *whenParser) soonest(hour, minute int) Spec {
	year, month, day := p.now.In(p.loc).Date()
	at := instant(p.loc, wallOf(year, month, day, hour, minute))
	for ahead := 1; !at.After(p.now); ahead++ {
		at = instant(p.loc, wallOf(year, month, day+ahead, hour, minute))
	}
	return atSpec(at)
}

func (p *whenParser) daysAhead(word string) (int, bool) {
	switch word {
	case "today":
		return 0, true
	case "tomorrow":
		return 1, true
	case "yesterday": // refused as past, which says more than not understood
		return -1, true
	}
	day, ok := weekday(word)
	return (int(day-p.now.In(p.loc).Weekday()) + 7) % 7, ok
}

// timeOfDay reads 9:00, 09:00, 9pm and 9:30pm.
func timeOfDay(word string) (hour, minute int, ok bool) {
	word = strings.ToLower(word)
	digits, half := word, ""
	if strings.HasSuffix(word, "am") || strings.HasSuffix(word, "pm") {
		digits, half = word[:len(word)-2], word[len(word)-2:]
	}
	hours, minutes, colon := strings.Cut(digits, ":")
	if len(hours) == 1 {
		hours = "0" + hours
	}
	if !colon {
		if half == "" {
			return 0, 0, false
		}
		minutes = "00"
	}
	hour, okHour := twoDigits(hours)
	minute, okMinute := twoDigits(minutes)
	if !okHour || !okMinute || minute > 59 {
		return 0, 0, false
	}
	if half == "" {
		return hour, minute, hour <= 23
	}
	if hour < 1 || hour > 12 {
		return 0, 0, false
	}
	if hour %= 12; half == "pm" {
		hour += 12
	}
	return hour, minute, true
}

// expression reads a cron expression.
func (p *whenParser) expression() (Spec, bool) {
	if strings.HasPrefix(p.text, "@") {
		macro := p.take()
		_, p.err = parseExpr(macro)
		return p.cron(macro), p.err == nil
	}
	five, rest := leading(p.text, 5)
	six, restOfSix := leading(p.text, 6)
	if !strings.ContainsAny(five[:min(len(five), 1)], "0123456789*") {
		return Spec{}, false
	}
	_, errFive := parseExpr(five)
	_, errSix := parseExpr(six)
	if errSix == nil && (errFive != nil || strings.ContainsAny(six[len(five):], "*/,-#")) && six != five {
		p.text = restOfSix
		return p.cron(six), true
	}
	if errFive == nil {
		p.text = rest
		return p.cron(five), true
	}
	if looksLikeCron(five) {
		p.err = errFive
	}
	return Spec{}, false
}

// looksLikeCron distinguishes five words of digits and stars from a moment with a message, so that
// a mistake in an expression gets a specific error.
func looksLikeCron(five string) bool {
	return len(strings.Fields(five)) == 5 && strings.Trim(five, "0123456789*/,-? ") == "" && strings.Contains(five, "*")
}

func (p *whenParser) cron(expr string) Spec {
	return Spec{Kind: KindCron, Expr: strings.Join(strings.Fields(expr), " "), TZ: p.tz}
}

// leading splits off the first n words.
func leading(text string, n int) (head, rest string) {
	rest = text
	var words []string
	for len(words) < n && rest != "" {
		var word string
		word, rest = cutSpace(rest)
		words = append(words, word)
	}
	return strings.Join(words, " "), rest
}

// duration reads 20m, 2h30m, 1d12h, or a number and a word: 20 minutes. The sum is at least a
// millisecond and at most [MaxEvery].
func (p *whenParser) duration() (time.Duration, bool) {
	word := strings.ToLower(p.take())
	if word != "" && strings.Trim(word, "0123456789") == "" {
		word += strings.ToLower(p.take())
	}
	var sum time.Duration
	for word != "" {
		digits := len(word) - len(strings.TrimLeft(word, "0123456789"))
		if digits == 0 {
			return 0, false
		}
		n, err := strconv.ParseInt(word[:digits], 10, 64)
		word = word[digits:]
		name := word[:len(word)-len(strings.TrimLeft(word, "abcdefghijklmnopqrstuvwxyz"))]
		word = word[len(name):]
		unit, ok := unitOf(name)
		if !ok {
			return 0, false
		}
		if err != nil || n > int64(MaxEvery/unit) || sum+time.Duration(n)*unit > MaxEvery {
			p.err = NewInvalid(fieldWhen, InvalidRange, "that is too long, at most ten years are allowed")
			return 0, false
		}
		sum += time.Duration(n) * unit
	}
	if sum <= 0 {
		return 0, false
	}
	return sum, true
}

func unitOf(name string) (time.Duration, bool) {
	switch name {
	case "s", "sec", "secs", "second", "seconds":
		return time.Second, true
	case "m", "min", "mins", "minute", "minutes":
		return time.Minute, true
	case "h", "hr", "hrs", "hour", "hours":
		return time.Hour, true
	case "d", "day", "days":
		return 24 * time.Hour, true
	case "w", "week", "weeks":
		return 7 * 24 * time.Hour, true
	}
	return 0, false
}

// withSeconds splits a moment whose time of day has seconds: before them, the seconds, after them.
// A fraction is not part of the moment.
var withSeconds = regexp.MustCompile(`^(.*\b\d{1,2}:\d{2}):([0-5]\d)(?:\.\d+)?((?:[aApP][mM])?)$`)

// halves matches the space before the half of a day.
var halves = regexp.MustCompile(`(?i)(\d) (am|pm)$`)

// ParsePast parses a moment that has probably passed: `9:00` is the most recent one, and
// `monday 8:30` that of the last seven days. `yesterday 9:00`, `today 9:00`, `tomorrow 9:00`,
// `in 3h`, `3h ago`, `now`, the moments that explanations show, and every format of [ParseAt] are
// taken literally. A time of day may have seconds. Local times are in tz. An error is an
// [*InvalidError].
func ParsePast(text string, now time.Time, tz string) (time.Time, error) {
	loc, err := LoadZone(tz)
	if err != nil {
		return time.Time{}, err
	}
	text = strings.TrimSpace(text)
	if at, err := ParseAt(text, tz); err == nil {
		return at, nil
	}
	if at, ok := shown(text, now, loc); ok {
		return at, nil
	}
	if word, rest := cutSpace(text); strings.EqualFold(word, "at") || strings.EqualFold(word, "on") {
		text = rest
	}
	text = halves.ReplaceAllString(text, "$1$2")
	if strings.EqualFold(text, "now") {
		return now, nil
	}
	if length, ok := strings.CutSuffix(strings.ToLower(text), " ago"); ok {
		if spec, rest, err := ParseWhen("in "+length, now, tz); err == nil && rest == "" {
			return now.Add(now.Sub(spec.At)), nil
		}
	}
	if m := withSeconds.FindStringSubmatch(text); m != nil {
		seconds, _ := time.ParseDuration(m[2] + "s") // two digits
		switch day, _ := cutSpace(text); strings.ToLower(day) {
		case "today", "yesterday", "tomorrow":
		default:
			now = now.Add(-seconds) // the most recent one has passed with its seconds
		}
		minute, err := ParsePast(m[1]+m[3], now, tz)
		if err != nil {
			return time.Time{}, err
		}
		return minute.Add(seconds), nil
	}
	day, clock := cutSpace(text)
	from := now.Add(-24 * time.Hour)
	switch word := strings.ToLower(day); {
	case word == "today" && clock != "":
		from, text = midnight(now.In(loc), 0), clock
	case word == "yesterday" && clock != "":
		from, text = midnight(now.In(loc), -1), clock
	case word == "in" || word == "tomorrow":
		from = now
	case clock != "" && strings.Trim(day, "0123456789:.apmAPM") != "":
		from = now.Add(-7 * 24 * time.Hour)
	}
	spec, rest, err := ParseWhen(text, from, tz)
	if err != nil || rest != "" || spec.Kind != KindAt {
		return time.Time{}, NewInvalid(fieldWhen, InvalidSyntax, "%s is not a moment; write 9:00, 9:00:30, yesterday 9:00, monday 8:30 or 2027-03-02 09:00%s", Excerpt(text), meant(text))
	}
	return spec.At, nil
}

// shown reads a moment as replies and explanations write it, in loc unless it names a zone. Without
// a year it is the most recent one.
func shown(text string, now time.Time, loc *time.Location) (time.Time, bool) {
	for _, day := range []string{"Mon 2 Jan 2006", "2 Jan 2006", "2006-01-02"} {
		for _, clock := range []string{" 15:04", " 15:04:05"} {
			for _, zone := range []string{"", " -07:00", " MST"} {
				at, err := time.ParseInLocation(day+clock+zone, text, loc)
				if foreign := zone == " MST" && at.Location() != loc && at.Location() != time.UTC; err == nil && !foreign {
					return at, true
				}
			}
			at, err := time.Parse(strings.TrimSuffix(day, " 2006")+clock, text)
			if err != nil {
				continue
			}
			year := now.In(loc).Year()
			dated := func() time.Time {
				return time.Date(year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, loc)
			}
			if dated().After(now) {
				year--
			}
			return dated(), true
		}
	}
	return time.Time{}, false
}

// midnight is immediately before the first instant of a day.
func midnight(of time.Time, days int) time.Time {
	return time.Date(of.Year(), of.Month(), of.Day()+days, 0, 0, 0, 0, of.Location()).Add(-1)
}
