package schedule

import (
	"slices"
	"strconv"
	"strings"
)

const (
	maxExprBytes = 256
	fieldExpr    = "schedule.expr"
)

// unit is one field of an expression with its bounds and the names it accepts.
type unit struct {
	name     string
	low, top int
	step     int      // the largest meaningful step
	words    []string // word i means the value low+i
}

// units lists the fields in the order seconds first.
func units() [6]unit {
	return [6]unit{
		{name: "second", low: 0, top: 59, step: 59},
		{name: "minute", low: 0, top: 59, step: 59},
		{name: "hour", low: 0, top: 23, step: 23},
		{name: "day of month", low: 1, top: 31, step: 31},
		{name: "month", low: 1, top: 12, step: 12, words: []string{
			"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
		}},
		{name: "day of week", low: 0, top: 7, step: 7, words: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
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

// expression is a checked expression: six fields with plain numbers, which gronx interprets in only one way.
type expression struct {
	text   string // as written, with single spaces
	fields [6]string
}

// followsRealTime reports whether the expression repeats within the day, by its hour field.
func (e expression) followsRealTime() bool {
	return strings.ContainsAny(e.fields[atHour], "*/")
}

// parseExpr checks an expression against the whole grammar. gronx is more lenient, and some inputs that it accepts cost it a tenth of a second, so every input
// is checked first.
func parseExpr(text string) (expression, error) {
	if text == "" || strings.TrimSpace(text) == "" {
		return expression{}, NewInvalid(fieldExpr, InvalidMissing, "an expression of 5 fields is needed, such as 0 9 * * 1-5")
	}
	if len(text) > maxExprBytes {
		return expression{}, NewInvalid(fieldExpr, InvalidRange, "%d bytes are too long, at most %d are allowed", len(text), maxExprBytes)
	}
	for i := range len(text) {
		if c := text[i]; c != '\t' && (c < ' ' || c > '~') {
			return expression{}, NewInvalid(fieldExpr, InvalidSyntax, "byte %d is not a plain ASCII character", i+1)
		}
	}
	parts := strings.Fields(text)
	out := expression{text: strings.Join(parts, " ")}
	if strings.HasPrefix(parts[0], "@") {
		var err error
		if parts, err = expandMacro(out.text); err != nil {
			return expression{}, err
		}
	}
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 6 {
		return expression{}, NewInvalid(fieldExpr, InvalidSyntax, "%d fields are given; 5 are needed, or 6 with seconds first", len(parts))
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

func expandMacro(text string) ([]string, error) {
	switch strings.ToLower(text) {
	case "@yearly":
		return []string{"0", "0", "1", "1", "*"}, nil
	case "@monthly":
		return []string{"0", "0", "1", "*", "*"}, nil
	case "@weekly":
		return []string{"0", "0", "*", "*", "0"}, nil
	case "@daily":
		return []string{"0", "0", "*", "*", "*"}, nil
	case "@hourly":
		return []string{"0", "*", "*", "*", "*"}, nil
	}
	if strings.HasPrefix(strings.ToLower(text), "@every") {
		return nil, NewInvalid(fieldExpr, InvalidSyntax, "@every is not an expression; use a schedule of kind every with everyMs")
	}
	return nil, NewInvalid(fieldExpr, InvalidSyntax,
		"%s is not known; the short forms are @yearly, @monthly, @weekly, @daily and @hourly", Excerpt(text))
}

// parse checks one field and rewrites it with plain numbers. It drops repeated items, which bounds the work of compiling.
func (u unit) parse(field string) (string, error) {
	var items []string
	for item := range strings.SplitSeq(strings.ToUpper(field), ",") {
		parsed, err := u.parseItem(item)
		if err != nil {
			return "", err
		}
		if !slices.Contains(items, parsed) {
			items = append(items, parsed)
		}
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
	base, step, hasStep := strings.Cut(item, "/")
	base, err := u.parseRange(base)
	if err != nil || !hasStep {
		return base, err
	}
	n, err := u.number(step)
	if err != nil {
		return "", err
	}
	if n < 1 || n > u.step {
		return "", NewInvalid(fieldExpr, InvalidRange, "%s step %s is out of range 1-%d", u.name, Excerpt(step), u.step)
	}
	return base + "/" + strconv.Itoa(n), nil
}

// parseRange reads *, a value, or two values with a dash. A value before a step runs to the end of the unit: 5/20 is 5,25,45. For weekdays this end is
// Saturday.
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
	if low > top {
		return "", NewInvalid(fieldExpr, InvalidRange, "%s range %s runs backwards", u.name, Excerpt(text))
	}
	return strconv.Itoa(low) + "-" + strconv.Itoa(top), nil
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

// parseSpecial reads L and 15W in the day of month, 5L and 1#2 in the day of week.
func (u unit) parseSpecial(item string) (string, bool, error) {
	switch {
	case u.top == 31 && item == "L":
		return item, true, nil
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

func (u unit) value(text string) (int, error) {
	if i := slices.Index(u.words, text); i >= 0 {
		return u.low + i, nil
	}
	n, err := u.number(text)
	if err != nil {
		return 0, err
	}
	if n < u.low || n > u.top {
		return 0, NewInvalid(fieldExpr, InvalidRange, "%s %d is out of range %d-%d", u.name, n, u.low, u.top)
	}
	return n, nil
}

// number reads digits only: no sign, no space, and few enough not to overflow.
func (u unit) number(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, NewInvalid(fieldExpr, InvalidSyntax, "%s: %q is not understood", u.name, Excerpt(text))
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, NewInvalid(fieldExpr, InvalidRange, "%s %s is out of range %d-%d", u.name, Excerpt(text), u.low, u.top)
	}
	return n, nil
}
