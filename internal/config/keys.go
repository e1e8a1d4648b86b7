package config

import (
	_ "embed" // the documentation of the keys
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"laneway/internal/secret"
)

// Key documents one setting. The path of an entry of a map contains a placeholder, such as `agents.<id>.runner`.
type Key struct {
	Path string `json:"path"`
	// Variable is the name in the environment.
	Variable string `json:"variable"`
	// Type is text, number, duration, yes or no, list, map or secret.
	Type string `json:"type"`
	// Default is the value as written in the file, or "".
	Default string `json:"default,omitempty"`
	// Meaning is the documentation of the field: its effect, unit and range.
	Meaning string `json:"meaning"`
	// Struct and Field name the declaration of the setting in this package.
	Struct string `json:"-"`
	Field  string `json:"-"`
}

// keysJSON is generated from the comments of the fields, see keysgen.
//
//go:generate go run ./keysgen -json keys.json -doc ../../docs/configuration-keys.md
//go:embed keys.json
var keysJSON []byte

// Keys documents every setting, in the order of the type [Config].
func Keys() ([]Key, error) {
	var keys []Key
	if err := json.Unmarshal(keysJSON, &keys); err != nil {
		return nil, fmt.Errorf("reading the documentation of the keys: %w", err)
	}
	return keys, nil
}

// Shape returns all settings without their meaning, from the types themselves.
func Shape() []Key {
	defaults := Default()
	var keys []Key
	shape(reflect.ValueOf(&defaults).Elem(), "", func(k Key) { keys = append(keys, k) })
	return keys
}

// placeholder returns the name of a map's entries in a path.
func placeholder(path string) string {
	if path == "agents" {
		return "<id>"
	}
	return "<name>"
}

func shape(v reflect.Value, path string, add func(Key)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, value := join(path, field.Tag.Get("yaml")), v.Field(i)
		switch {
		case isLeaf(value):
			add(Key{
				Path: name, Variable: strings.NewReplacer("<", "", ">", "").Replace(Aliases(name)[0]), Type: kindOf(value), Default: defaultOf(value),
				Struct: v.Type().Name(), Field: field.Name,
			})
		case value.Kind() == reflect.Map:
			entry := reflect.New(value.Type().Elem())
			if d, ok := reflect.TypeAssert[defaulted](entry); ok {
				d.setDefaults()
			}
			if value.Type().Elem() == v.Type() {
				continue // the accounts of a bot have the keys of a bot, except accounts
			}
			shape(entry.Elem(), join(name, placeholder(name)), add)
		default:
			shape(value, name, add)
		}
	}
}

func kindOf(v reflect.Value) string {
	switch v.Interface().(type) {
	case secret.Secret:
		return "secret"
	case Duration, *Duration:
		return "duration"
	case DatabaseURL:
		return "text"
	}
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "yes or no"
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	default:
		return "text"
	}
}

func defaultOf(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	shown, _ := show(v)
	switch value := shown.(type) {
	case []string:
		return strings.Join(value, ", ")
	case bool:
		return map[bool]string{true: "true", false: "false"}[value]
	case map[string]string:
		return ""
	}
	if v.Kind() == reflect.Struct || slices.Contains([]any{"", "not set"}, shown) {
		return ""
	}
	return fmt.Sprint(shown)
}
