package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// clientVariables are read by commands, not by the gateway.
func clientVariables() []string { return []string{"LANEWAY_CONFIG", "LANEWAY_URL"} }

// serviceVariable is what Kubernetes sets in every container for a service that is called laneway.
var serviceVariable = regexp.MustCompile(`^LANEWAY(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$`)

// UnknownVariables are the names that begin with LANEWAY_ and set nothing: a misspelled variable has no effect, and the user would not
// notice. Each has a sentence for the operator. A setting of an agent or hook that does not exist counts as unknown.
func (l *Loaded) UnknownVariables(names []string) []string {
	known := map[string]int{}
	for _, name := range clientVariables() {
		known[name] = 0
	}
	collect(reflect.ValueOf(&l.Config).Elem(), "", func(path string, _ reflect.Value) {
		for _, name := range Aliases(path) {
			known[name] = 0
		}
	})
	var sentences []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		if _, ok := known[name]; ok || !strings.HasPrefix(name, "LANEWAY_") || serviceVariable.MatchString(name) {
			continue
		}
		sentences = append(sentences, name+" is not a setting and has no effect"+suggestion(name, known))
	}
	return sentences
}
