package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/wire"
)

// differences returns a line for each member that changes, with the names of the flags and the formats of laneway cron list.
func differences(old, members map[string]any) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		lines = append(lines, changesOf(name, old[name], members[name])...)
	}
	return lines
}

// changesOf returns the lines of the member at a path; nil when nothing changes. after is a patch: members of an object that it does not
// name are kept.
func changesOf(path string, before, after any) []string {
	was, _ := before.(map[string]any) //nolint:errcheck // nil for all that is no object
	given, isObject := after.(map[string]any)
	switch {
	case isObject && asJSON(onlyNamed(was, given)) == asJSON(given), asJSON(before) == asJSON(after):
		return nil
	case path == "schedule":
		return []string{changed("schedule", shownAs(scheduleOf, path, was), shownAs(scheduleOf, path, given), was, given)}
	case path == "delivery":
		next := onlyNamed(was, was)
		maps.Copy(next, given)
		return []string{changed("answers to", shownAs(deliveryOf, path, was), shownAs(deliveryOf, path, next), was, next)}
	case isObject:
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(given)) {
			lines = append(lines, changesOf(path+"."+name, was[name], given[name])...)
		}
		return lines
	}
	w, known := flagOf(path)
	if !known {
		return []string{changed(path, "", "", before, after)}
	}
	return []string{changed(strings.TrimPrefix(w.flag, "--"), w.shown(before), w.shown(after), before, after)}
}

// changed returns one line. Two values that look the same or have no display form are shown as JSON.
func changed(name, was, is string, before, after any) string {
	if was, is = oneLine(was), oneLine(is); was == is {
		was, is = oneLine(asJSON(before)), oneLine(asJSON(after))
	}
	return fmt.Sprintf("%s: %s → %s", name, was, is)
}

// shownAs formats a member of a job for people; "" when it cannot be parsed.
func shownAs(show func(wire.Job) string, member string, value map[string]any) string {
	var j wire.Job
	if value == nil || json.Unmarshal([]byte(asJSON(map[string]any{member: value})), &j) != nil {
		return ""
	}
	return show(j)
}

func deliveryOf(j wire.Job) string { return targetOf(j.Delivery) }

// shown formats a value as the argument of the flag; - for nil.
func (w flagWord) shown(value any) string {
	if value == nil {
		return "-"
	}
	if text, ok := value.(string); ok {
		return text
	}
	if w.unit > 0 {
		return w.duration(asJSON(value))
	}
	text := asJSON(value)
	if ms, err := strconv.ParseInt(text, 10, 64); w.instant && err == nil {
		return momentAt(ms)
	}
	return text
}

// onlyNamed returns the members of an object that another one has, too.
func onlyNamed(whole, given map[string]any) map[string]any {
	out := map[string]any{}
	for name := range given {
		if value, has := whole[name]; has {
			out[name] = value
		}
	}
	return out
}

// asJSON formats a value on one line; null for nil.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(text)
}
