package store

import (
	"context"
	"regexp"
	"slices"
)

// Inspector is the optional part of a store that looks at its tables and changes nothing.
type Inspector interface {
	// Violations runs one rule in a read-only transaction, with a value for every name that it has ([Invariant.Params]), and returns the
	// first limit rows as text: the rule's id, then where.
	Violations(ctx context.Context, rule Invariant, values map[string]any, limit int) ([][]string, error)
}

var boundName = regexp.MustCompile(`:[a-z]+`)

// Bind is the text of a rule with place(n) where a name was, for the engine's own kind of parameter, and the values in the order of
// their numbers, from 1. A name that comes twice has one number.
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
