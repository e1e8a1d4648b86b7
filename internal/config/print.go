package config

import (
	_ "embed" // the documentation of the keys
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"laneway/internal/secret"
)

// Value is one effective setting, for display.
type Value struct {
	// Path of the setting.
	Path string `json:"path"`
	// Value as printed; for a secret `set` or `not set`.
	Value any `json:"value"`
	// Source is the source of the value.
	Source Source `json:"source"`

	secret bool
}

// Values returns all effective settings in the order of the documentation, with secrets hidden.
func (l *Loaded) Values() []Value {
	values := l.values()
	for i := range values {
		values[i].Source = l.Source(values[i].Path)
	}
	return values
}

func (l *Loaded) values() []Value {
	var all []Value
	collect(reflect.ValueOf(&l.Config).Elem(), "", func(path string, v reflect.Value) {
		shown, isSecret := show(v)
		if words, ok := shown.([]string); ok && len(words) > 1 && (path == "command" || strings.HasSuffix(path, ".command")) {
			shown = []string{words[0], fmt.Sprintf("[%d arguments]", len(words)-1)} // arguments of a program may be secrets
		}
		all = append(all, Value{Path: path, Value: shown, secret: isSecret})
	})
	return all
}

// Secrets returns all secrets of the configuration, for a log handler that redacts them.
func (l *Loaded) Secrets() []secret.Secret {
	var all []secret.Secret
	collect(reflect.ValueOf(&l.Config).Elem(), "", func(_ string, v reflect.Value) {
		switch value := v.Interface().(type) {
		case secret.Secret:
			all = append(all, value)
		case DatabaseURL:
			all = append(all, value.password())
		case map[string]string:
			for _, text := range value {
				all = append(all, secret.New(text))
			}
		}
	})
	return slices.DeleteFunc(all, func(s secret.Secret) bool { return !s.IsSet() })
}

func collect(v reflect.Value, path string, fn func(string, reflect.Value)) {
	if isLeaf(v) {
		fn(path, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			collect(v.Field(i), join(path, v.Type().Field(i).Tag.Get("yaml")), fn)
		}
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			entry := reflect.New(v.Type().Elem()).Elem()
			entry.Set(v.MapIndex(reflect.ValueOf(key)))
			collect(entry, join(path, key), fn)
		}
	default:
	}
}

// show returns the form of a value for display.
func show(v reflect.Value) (shown any, isSecret bool) {
	switch value := v.Interface().(type) {
	case secret.Secret:
		if value.IsSet() {
			return "set", true
		}
		return "not set", false
	case DatabaseURL:
		return value.String(), value.HasPassword()
	case map[string]string: // variables of a program are often secrets
		hidden := make(map[string]string, len(value))
		for name := range value {
			hidden[name] = "set"
		}
		return hidden, len(value) > 0
	case encoding.TextMarshaler:
		text, err := value.MarshalText()
		if err != nil {
			return secret.Redacted, false
		}
		return string(text), false
	default:
		return v.Interface(), false
	}
}

// Members returns the settings of an agent with this id as in a file: the runner, and values that
// differ from the defaults. Secrets are left out.
func (a *Agent) Members(id string) map[string]any {
	defaults := newAgent()
	defaults.Runner = a.Runner
	defaults.fill(id)
	standard := map[string]any{}
	collect(reflect.ValueOf(&defaults).Elem(), "", func(path string, v reflect.Value) { standard[path], _ = show(v) })
	members := map[string]any{}
	collect(reflect.ValueOf(a).Elem(), "", func(path string, v reflect.Value) {
		value, isSecret := show(v)
		if path == "runner" || !isSecret && !v.IsZero() && !reflect.DeepEqual(value, standard[path]) {
			members[path] = value
		}
	})
	return members
}

// Print writes the effective configuration as YAML, each value followed by its source. It leaves
// out settings of agents and overrides that were not given.
func (l *Loaded) Print(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, value := range l.Values() {
		if l.silent(value) {
			continue
		}
		if err := insert(root, strings.Split(value.Path, "."), value); err != nil {
			return fmt.Errorf("printing %s: %w", value.Path, err)
		}
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return fmt.Errorf("printing the configuration: %w", err)
	}
	return encoder.Close()
}

func (l *Loaded) silent(v Value) bool {
	if v.Source.Kind != SourceDefault {
		return false
	}
	value := reflect.ValueOf(v.Value)
	if value.Kind() == reflect.Pointer {
		return value.IsNil()
	}
	return strings.HasPrefix(v.Path, "agents.") && (value.IsZero() || v.Value == "0s" || v.Value == "not set")
}

func insert(parent *yaml.Node, path []string, v Value) error {
	if len(path) == 1 {
		var leaf yaml.Node
		if err := leaf.Encode(v.Value); err != nil {
			return err
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}
		if leaf.Kind == yaml.ScalarNode {
			leaf.LineComment = v.Source.String()
		} else {
			leaf.Style = yaml.FlowStyle
			key.HeadComment = v.Source.String()
		}
		parent.Content = append(parent.Content, key, &leaf)
		return nil
	}
	for i := 0; i+1 < len(parent.Content); i += 2 {
		if parent.Content[i].Value == path[0] {
			return insert(parent.Content[i+1], path[1:], v)
		}
	}
	child := &yaml.Node{Kind: yaml.MappingNode}
	parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}, child)
	return insert(child, path[1:], v)
}

// Key documents one setting. The path of an entry of a map contains a placeholder, such as
// `agents.<id>.runner`.
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
