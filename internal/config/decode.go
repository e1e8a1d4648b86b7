package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"laneway/internal/secret"
	"laneway/internal/words"
)

// maxFile is the maximum size of a configuration file in bytes; a larger file is not a
// configuration.
const maxFile = 1 << 20

// layers writes values into a Config and records the source and the faults of each. It walks the
// nodes of the YAML library instead of decoding into the structs: the library's decoder reports the
// line of a fault but not its path, and records no position of valid values.
type layers struct {
	sources map[string]Source
	faults  FaultsError
}

// defaulted is a map entry with its own defaults.
type defaulted interface{ setDefaults() }

// file applies a YAML document to cfg. name is the name of the file in faults.
func (l *layers) file(cfg *Config, name string, text []byte) {
	if len(text) > maxFile {
		l.faults = append(l.faults, Fault{Source: Source{SourceFile, name}, Message: "is larger than 1 MiB; it is not a configuration"})
		return
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if strings.TrimSpace(string(text)) != "" && doc.Kind != 0 || err.Error() != "EOF" {
			l.faults = append(l.faults, Fault{Source: Source{SourceFile, name}, Message: "is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")})
		}
		return
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		l.faults = append(l.faults, Fault{Source: Source{SourceFile, name}, Message: "holds several documents; keep one"})
		return
	}
	if len(doc.Content) == 1 {
		in := input{layers: l, source: SourceFile, name: name}
		in.value(doc.Content[0], reflect.ValueOf(cfg).Elem(), "")
	}
}

// input is one source of nodes.
type input struct {
	*layers
	source SourceKind
	name   string
}

// place returns the place of a node: the line of the file, or the name of the variable or flag.
func (in input) place(n *yaml.Node) Source {
	if in.source == SourceFile {
		return Source{in.source, in.name + ":" + strconv.Itoa(n.Line)}
	}
	return Source{in.source, in.name}
}

func (in input) faultf(n *yaml.Node, path, format string, args ...any) {
	in.faults = append(in.faults, Fault{Path: path, Source: in.place(n), Message: fmt.Sprintf(format, args...)})
}

func (in input) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if isNull(n) {
		in.null(n, v, path)
		return
	}
	if _, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		in.text(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		target := reflect.New(v.Type().Elem())
		in.value(n, target.Elem(), path)
		v.Set(target)
	case reflect.Struct:
		in.mapping(n, v, path)
	case reflect.Map:
		in.entries(n, v, path)
	case reflect.Slice:
		in.list(n, v, path)
	default:
		in.scalar(n, v, path)
	}
}

// null keeps the default of a key without a value, such as `channels:` when every line below it is
// commented out. A secret without a value is refused: "set but empty" never means "no secret".
func (in input) null(n *yaml.Node, v reflect.Value, path string) {
	switch v.Interface().(type) {
	case secret.Secret, DatabaseURL:
		in.faultf(n, path, "is set but empty; remove the line or give a value")
	}
}

func (in input) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		in.faultf(n, orRoot(path), "must be a mapping (name: value), is %s", kindName(n))
		return
	}
	fields := fieldsOf(v.Type())
	in.pairs(n, path, func(key, value *yaml.Node) {
		index, known := fields[key.Value]
		if !known {
			in.faultf(key, join(path, key.Value), "is not a setting%s", meant(key.Value, fields))
			return
		}
		in.value(value, v.Field(index), join(path, key.Value))
	})
}

func (in input) entries(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		in.faultf(n, path, "must be a mapping (name: value), is %s", kindName(n))
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	in.pairs(n, path, func(key, value *yaml.Node) {
		entry := reflect.New(v.Type().Elem())
		if d, ok := reflect.TypeAssert[defaulted](entry); ok {
			d.setDefaults()
		}
		in.value(value, entry.Elem(), join(path, key.Value))
		v.SetMapIndex(reflect.ValueOf(key.Value), entry.Elem())
	})
}

// pairs calls fn for each key of a mapping. A duplicate key is a fault, because one of its values
// would be ignored.
func (in input) pairs(n *yaml.Node, path string, fn func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			in.faultf(key, orRoot(path), "has a key that is not a string")
			continue
		}
		if line, twice := seen[key.Value]; twice {
			in.faultf(key, join(path, key.Value), "is given twice, first in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		fn(key, n.Content[i+1])
	}
}

// worded is a list that may also be given as one word.
type worded interface{ setWord(word string) bool }

func (in input) list(n *yaml.Node, v reflect.Value, path string) {
	if list, ok := reflect.TypeAssert[worded](v.Addr()); ok && n.Kind == yaml.ScalarNode && list.setWord(n.Value) {
		in.sources[path] = in.place(n)
		return
	}
	if n.Kind != yaml.SequenceNode {
		in.faultf(n, path, "must be a list, is %s", kindName(n))
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		in.value(item, items.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
	v.Set(items)
	in.sources[path] = in.place(n)
}

func (in input) text(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		in.faultf(n, path, "must be a single value, is %s", kindName(n))
		return
	}
	in.sources[path] = in.place(n)
	in.setText(n, v, path, n.Value)
}

func (in input) setText(n *yaml.Node, v reflect.Value, path, text string) {
	unmarshaler, _ := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
	err := unmarshaler.UnmarshalText([]byte(text))
	var identity identityError
	switch {
	case errors.As(err, &identity):
		in.faults = append(in.faults, Fault{Path: path, Source: in.place(n), Message: err.Error(), Whole: true})
	case errors.Is(err, secret.ErrBlank):
		in.faultf(n, path, "is set but empty; remove the line or give a value")
	case err != nil:
		in.faultf(n, path, "%s", err)
	}
}

func (in input) scalar(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		in.faultf(n, path, "must be %s, is %s", wanted(v.Kind()), kindName(n))
		return
	}
	in.sources[path] = in.place(n)
	if v.Kind() == reflect.String {
		if n.Tag != "!!str" {
			in.faultf(n, path, "must be text, is %s; put it in quotes", kindName(n))
			return
		}
		v.SetString(n.Value)
		return
	}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		in.faultf(n, path, "must be %s, is the text %q", wanted(v.Kind()), n.Value)
		return
	}
	if err := setScalar(v, n.Value); err != nil {
		in.faultf(n, path, "%s", err)
	}
}

// setScalar parses a number or a boolean from text, as in files, variables and flags.
func setScalar(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.Bool:
		b, err := parseSwitch(text)
		if err != nil {
			return err
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 0)
		if err != nil {
			return fmt.Errorf("must be a whole number, is %q", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) {
			return fmt.Errorf("must be a number, is %q", text)
		}
		v.SetFloat(f)
	default:
		v.SetString(text)
	}
	return nil
}

func wanted(kind reflect.Kind) string {
	switch kind {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	default:
		return "text"
	}
}

func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "a number"
	case n.Tag == "!!bool":
		return "true or false"
	case n.Tag == "!!timestamp":
		return "a date"
	default:
		return "text"
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func orRoot(path string) string {
	return cmp.Or(path, "the file")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fieldsOf maps the yaml names of a struct to its fields.
func fieldsOf(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		fields[t.Field(i).Tag.Get("yaml")] = i
	}
	return fields
}

// meant suggests the setting that was probably meant by an unknown key: a key of this mapping, or
// the only key of that name elsewhere.
func meant(given string, fields map[string]int) string {
	if best := words.Meant(given, slices.Collect(maps.Keys(fields))); best != "" {
		return best
	}
	var elsewhere []string
	collect(reflect.ValueOf(new(Config)).Elem(), "", func(path string, _ reflect.Value) {
		if path == given || strings.HasSuffix(path, "."+given) {
			elsewhere = append(elsewhere, path)
		}
	})
	if len(elsewhere) == 1 {
		return words.Meant(elsewhere[0], elsewhere)
	}
	return ""
}

// Errors of values. They are wrapped in a [Fault] with the path and the place.
var (
	errNoPostgres  = errors.New("is not a Postgres address")
	errDatabaseURL = errors.New("is not a valid address; write it as postgres://USER@HOST/NAME or sqlite:PATH")
)

// Duration is a time.Duration that is written as `800ms`, `10m`, `1h30m` or `30d` (a day has 24
// hours).
type Duration time.Duration

const day = 24 * time.Hour

// String writes whole days as `30d` and other durations as package time does.
func (d Duration) String() string {
	if d != 0 && time.Duration(d)%day == 0 {
		return strconv.FormatInt(int64(time.Duration(d)/day), 10) + "d"
	}
	return time.Duration(d).String()
}

// MarshalText returns the string of String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses a duration. A number without a unit other than 0 is refused, because seconds
// and milliseconds are easily confused.
func (d *Duration) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if s == "" {
		return secret.ErrBlank
	}
	if whole, found := strings.CutSuffix(s, "d"); found {
		return setDays(d, whole, s)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("must be a duration such as 800ms, 10m or 30d, is %q", s)
	}
	*d = Duration(parsed)
	return nil
}

func setDays(d *Duration, whole, given string) error {
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || n > int64(math.MaxInt64/day) {
		return fmt.Errorf("must be a duration such as 800ms, 10m or 30d, is %q", given)
	}
	*d = Duration(time.Duration(n) * day)
	return nil
}

// ID is the decimal identity of a person or a chat on Telegram; ids of groups are negative. A
// @username is not accepted, because it can be released and then taken by another account.
type ID int64

// String returns the decimal form.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText returns the string of String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses a decimal id other than 0.
func (id *ID) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n == 0 {
		return identityError(s)
	}
	*id = ID(n)
	return nil
}

// identityError is a complete sentence: it is shown without the path.
type identityError string

func (s identityError) Error() string {
	return fmt.Sprintf("%q is not an identity; use the numeric id", string(s))
}

func parseSwitch(s string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "on", "yes", "1":
		return true, nil
	case "false", "off", "no", "0":
		return false, nil
	case "":
		return false, secret.ErrBlank
	default:
		return false, fmt.Errorf("must be true or false, is %q", s)
	}
}

// splitWords splits a command line at spaces. Single and double quotes group words, and a backslash
// outside of single quotes escapes the next character. Nothing is expanded: no shell interprets the
// words.
func splitWords(line string) ([]string, error) {
	var (
		words   []string
		word    strings.Builder
		quote   rune // 0 = outside
		escaped bool
		begun   bool
	)
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && unicode.IsSpace(r):
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("has a quote or a backslash that is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
