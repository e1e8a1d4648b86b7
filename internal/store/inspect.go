package store

import (
	"context"
	"regexp"
	"slices"
)

// Inspector is an optional ability of a store: read-only queries of its tables.
type Inspector interface {
	// Violations runs one rule in a read-only transaction and returns the first limit rows as strings: the rule's id, then the location. values has a value for
	// every name in [Invariant.Params].
	Violations(ctx context.Context, rule Invariant, values map[string]any, limit int) ([][]string, error)
}

var boundName = regexp.MustCompile(`:[a-z]+`)

// Bind returns the SQL of a rule for one engine and the values of its parameters. It replaces each name by place(n), where n counts the names from 1; a name
// that occurs twice keeps its number. The values are in the order of the numbers.
func (i Invariant) Bind(values map[string]any, place func(n int, value any) string) (text string, args []any) {
	var names []string
	text = boundName.ReplaceAllStringFunc(i.SQL, func(found string) string {
		name := found[1:]
		at := slices.Index(names, name)
		if at < 0 {
			at = len(names)
			names = append(names, name)
			args = append(args, values[name])
		}
		return place(at+1, values[name])
	})
	return text, args
}
