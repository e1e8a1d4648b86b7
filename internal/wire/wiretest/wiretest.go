// Package wiretest compares the frames of a gateway with the published description of the protocol.
//
// [Load] reads docs/protocol.json. [Protocol.Answer], [Protocol.Event] and [Protocol.Refusal] check
// a payload against its schema. A missing member, an undescribed member and a value of another type
// are errors. So a test that checks every frame of a connection fails when the gateway and its
// description differ. An unknown keyword of JSON Schema is an error, too.
//
// A Protocol is immutable and safe for concurrent use.
package wiretest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

type object = map[string]any

// Protocol is the description of the protocol.
type Protocol struct {
	results, events map[string]object
	refusal         object
	defs            map[string]object
}

// Load reads the description from a file.
func Load(path string) (*Protocol, error) {
	raw, err := os.ReadFile(path) // a file that the test names
	if err != nil {
		return nil, fmt.Errorf("reading the description of the protocol: %w", err)
	}
	var doc struct {
		ConnectResult object
		Methods       []struct {
			Name   string
			Result object
		}
		Events []struct {
			Name    string
			Payload object
		}
		Error object
		Defs  map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("decoding the description of the protocol: %w", err)
	}
	p := &Protocol{results: map[string]object{"connect": doc.ConnectResult}, events: map[string]object{}, refusal: doc.Error, defs: doc.Defs}
	for _, m := range doc.Methods {
		p.results[m.Name] = m.Result
	}
	for _, e := range doc.Events {
		p.events[e.Name] = e.Payload
	}
	if len(p.results) < 2 || len(p.events) == 0 || len(p.defs) == 0 || len(p.refusal) == 0 {
		return nil, fmt.Errorf("%s describes %d methods, %d events and %d types", path, len(p.results), len(p.events), len(p.defs))
	}
	return p, nil
}

// Answer checks the payload of a response that is ok.
func (p *Protocol) Answer(method string, payload json.RawMessage) error {
	s, known := p.results[method]
	if !known {
		return fmt.Errorf("the method %s is not described", method)
	}
	return p.compare("the answer to "+method, s, payload)
}

// Event checks the payload of an event.
func (p *Protocol) Event(name string, payload json.RawMessage) error {
	s, known := p.events[name]
	if !known {
		return fmt.Errorf("the event %s is not described", name)
	}
	return p.compare("the event "+name, s, payload)
}

// Refusal checks the error of a response.
func (p *Protocol) Refusal(e json.RawMessage) error { return p.compare("the error", p.refusal, e) }

func (p *Protocol) compare(what string, s object, payload json.RawMessage) error {
	var v any
	if err := json.Unmarshal(payload, &v); err != nil {
		return fmt.Errorf("%s is no JSON: %w", what, err)
	}
	if err := p.check(s, v, ""); err != nil {
		return fmt.Errorf("%s is not as described: %w: %.2000s", what, err, payload)
	}
	return nil
}

// check compares a value with a schema. at is its path.
func (p *Protocol) check(s object, v any, at string) error {
	for word := range s {
		if !slices.Contains([]string{
			"$ref", "description", "type", "required", "anyOf", "properties", "additionalProperties", "items", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength",
			"maxBytes", "sameAs", "minItems", "maxItems",
		}, word) {
			return fmt.Errorf("at %s: the schema has the unknown word %s", at, word)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		def, known := p.defs[strings.TrimPrefix(ref, "#/$defs/")]
		if !known {
			return fmt.Errorf("at %s: %s is not defined", at, ref)
		}
		return p.check(def, v, at)
	}
	if err := p.anyOf(s, v, at); err != nil {
		return err
	}
	if err := typed(s, v, at); err != nil {
		return err
	}
	if enum, ok := s["enum"].([]any); ok && v != nil && !slices.Contains(enum, v) {
		return fmt.Errorf("at %s: %v is not one of %v", at, v, enum)
	}
	switch v := v.(type) {
	case string:
		return text(s, v, at)
	case float64:
		return between(s, "minimum", "maximum", v, at)
	case []any:
		return p.list(s, v, at)
	case object:
		return p.object(s, v, at)
	}
	return nil
}

func (p *Protocol) anyOf(s object, v any, at string) error {
	variants, ok := s["anyOf"].([]any)
	if !ok {
		return nil
	}
	var faults []error
	for _, one := range variants {
		variant, ok := one.(object)
		if !ok {
			return fmt.Errorf("at %s: the schema has a variant that is no schema: %v", at, one)
		}
		err := p.check(variant, v, at)
		if err == nil {
			return nil
		}
		faults = append(faults, err)
	}
	return fmt.Errorf("at %s: none of the variants: %w", at, errors.Join(faults...))
}

// typed checks the type of a value: one type, or one of several.
func typed(s object, v any, at string) error {
	names, ok := s["type"].([]any)
	if !ok {
		if s["type"] == nil {
			return nil
		}
		names = []any{s["type"]}
	}
	got := "null"
	switch v := v.(type) {
	case string:
		got = "string"
	case bool:
		got = "boolean"
	case []any:
		got = "array"
	case object:
		got = "object"
	case float64:
		if got = "number"; v == math.Trunc(v) {
			got = "integer"
		}
	}
	if !slices.Contains(names, any(got)) {
		return fmt.Errorf("at %s: %s instead of %v", at, got, s["type"])
	}
	return nil
}

func text(s object, v, at string) error {
	if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
		return fmt.Errorf("at %s: %q does not match %s", at, v, pattern)
	}
	if err := between(s, "", "maxBytes", float64(len(v)), at); err != nil {
		return err
	}
	return between(s, "minLength", "maxLength", float64(utf8.RuneCountInString(v)), at)
}

func between(s object, low, high string, n float64, at string) error {
	if least, ok := s[low].(float64); ok && n < least {
		return fmt.Errorf("at %s: %v is less than %v", at, n, least)
	}
	if most, ok := s[high].(float64); ok && n > most {
		return fmt.Errorf("at %s: %v is more than %v", at, n, most)
	}
	return nil
}

func (p *Protocol) list(s object, v []any, at string) error {
	if err := between(s, "minItems", "maxItems", float64(len(v)), at); err != nil {
		return err
	}
	items, ok := s["items"].(object)
	if !ok {
		return nil
	}
	for i, item := range v {
		if err := p.check(items, item, fmt.Sprintf("%s/%d", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Protocol) object(s, v object, at string) error {
	required, _ := s["required"].([]any) // absent = no required members
	for _, name := range required {
		if _, given := v[name.(string)]; !given { //nolint:errcheck // an invalid schema panics the test
			return fmt.Errorf("at %s: %s is missing", at, name)
		}
	}
	properties, described := s["properties"].(object)
	for _, name := range slices.Sorted(maps.Keys(v)) {
		of, known := properties[name].(object)
		if !known {
			var open bool
			if of, open = s["additionalProperties"].(object); !open {
				if described && s["additionalProperties"] != true {
					return fmt.Errorf("at %s: %s is not described", at, name)
				}
				continue
			}
		}
		if err := p.check(of, v[name], at+"/"+name); err != nil {
			return err
		}
	}
	return nil
}
