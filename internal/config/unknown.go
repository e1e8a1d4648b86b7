package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// clientVariables are read by commands, not by the gateway.
func clientVariables() []string { return []string{"LANEWAY_CONFIG", "LANEWAY_URL"} }

// serviceVariable matches the variables that Kubernetes sets in every container for a service with the name laneway.
var serviceVariable = regexp.MustCompile(`^LANEWAY(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$`)

// UnknownVariables returns a sentence for each name that begins with LANEWAY_ and has no effect: a misspelled variable would otherwise go
// unnoticed. A setting of an agent or hook that does not exist counts as unknown.
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
