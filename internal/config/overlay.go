package config

import (
	"encoding"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Setting is a value from the command line.
type Setting struct {
	// Path of the setting, such as `log.level`.
	Path string
	// Flag as the user wrote it, such as `--log-level`.
	Flag string
	// Values has one element, or several for a list.
	Values []string
}

// Aliases returns the additional names of a setting's variable. The first variable that is set takes effect, and the name derived from the
// path comes first.
func Aliases(path string) []string {
	long := "LANEWAY_" + envWord(path)
	switch path {
	case "database":
		return []string{long, "LANEWAY_DATABASE_URL"}
	case "lanes.main", "lanes.subagent", "lanes.team", "lanes.cron":
		short := envWord(strings.TrimPrefix(path, "lanes."))
		return []string{long, "LANEWAY_LANE_" + short, "GOCLAW_LANE_" + short}
	default:
		return []string{long}
	}
}

func envWord(path string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// Present returns lookup without blank variables: an empty variable counts as unset. The variables of the secrets that callers present are
// the exception. A blank one is returned, and [Load] refuses it, because "set but empty" must never start a gateway with another token than
// intended. lookup may be nil.
func Present(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if lookup == nil {
			return "", false
		}
		value, found := lookup(name)
		return value, found && (strings.TrimSpace(value) != "" || slices.Contains(callerSecrets(), name))
	}
}

// callerSecrets returns the variables of [Credentials].
func callerSecrets() []string {
	return []string{"LANEWAY_TOKEN", "LANEWAY_PASSWORD", "LANEWAY_WRITE_TOKEN", "LANEWAY_READ_TOKEN"}
}

// env applies the environment to v. It reads the variable of each setting; for maps, of each existing entry.
func (l *layers) env(v reflect.Value, path string, lookup func(string) (string, bool)) {
	if isLeaf(v) {
		l.envLeaf(v, path, lookup)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			l.env(v.Field(i), join(path, v.Type().Field(i).Tag.Get("yaml")), lookup)
		}
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			entry := reflect.New(v.Type().Elem()).Elem()
			entry.Set(v.MapIndex(reflect.ValueOf(key)))
			l.env(entry, join(path, key), lookup)
			v.SetMapIndex(reflect.ValueOf(key), entry)
		}
	default:
	}
}

// isLeaf distinguishes settings from groups of settings. A map of strings is one setting: its keys are chosen by the user.
func isLeaf(v reflect.Value) bool {
	if _, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return true
	}
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Map:
		return v.Type().Elem().Kind() == reflect.String
	default:
		return true
	}
}

func sortedKeys(v reflect.Value) []string {
	keys := make([]string, 0, v.Len())
	for _, k := range v.MapKeys() {
		keys = append(keys, k.String())
	}
	slices.Sort(keys)
	return keys
}

func (l *layers) envLeaf(v reflect.Value, path string, lookup func(string) (string, bool)) {
	for _, name := range Aliases(path) {
		if value, found := lookup(name); found {
			l.assign(v, path, Source{SourceEnv, name}, value)
			return
		}
	}
}

// assign parses one value of a variable or a flag. Lists are separated by commas, or written as YAML with brackets.
func (l *layers) assign(v reflect.Value, path string, source Source, value string) {
	trimmed := strings.TrimSpace(value)
	isList := v.Kind() == reflect.Slice
	switch {
	case trimmed == "" && !isList:
		l.faults = append(l.faults, Fault{Path: path, Source: source, Message: blankSentence(source.Place, path), Whole: true})
	case v.Kind() == reflect.Map || isList && strings.HasPrefix(trimmed, "["):
		l.assignYAML(v, path, source, trimmed)
	case isList:
		l.assignYAMLNode(v, path, source, listNode(splitComma(trimmed)))
	default:
		l.assignYAMLNode(v, path, source, scalarNode(v, value))
	}
}

// blankSentence returns a complete sentence with the variable as its subject.
func blankSentence(place, path string) string {
	last := path[strings.LastIndex(path, ".")+1:]
	what := "value"
	switch {
	case strings.HasSuffix(last, "token"):
		what = "token"
	case strings.HasSuffix(last, "password"):
		what = "password"
	}
	return place + " is set but empty; unset it or give a " + what
}

func splitComma(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func listNode(items []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for _, item := range items {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: item})
	}
	return n
}

// scalarNode has the tag that its target requires, because variables have no types.
func scalarNode(v reflect.Value, value string) *yaml.Node {
	if v.Kind() == reflect.String {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(value)}
}

func (l *layers) assignYAML(v reflect.Value, path string, source Source, text string) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		l.faults = append(l.faults, Fault{Path: path, Source: source, Message: "must be written as YAML, such as [a, b] or {name: value}"})
		return
	}
	l.assignYAMLNode(v, path, source, doc.Content[0])
}

func (l *layers) assignYAMLNode(v reflect.Value, path string, source Source, n *yaml.Node) {
	input{layers: l, source: source.Kind, name: source.Place}.value(n, v, path)
	l.sources[path] = source
}

// flags applies the command line to cfg.
func (l *layers) flags(cfg *Config, settings []Setting) {
	for _, s := range settings {
		v, ok := field(reflect.ValueOf(cfg).Elem(), s.Path)
		if !ok {
			l.faults = append(l.faults, Fault{Path: s.Path, Source: Source{SourceFlag, s.Flag}, Message: "is not a setting"})
			continue
		}
		source := Source{SourceFlag, s.Flag}
		if v.Kind() == reflect.Slice {
			l.assignYAMLNode(v, s.Path, source, listNode(splitComma(strings.Join(s.Values, ","))))
			continue
		}
		for _, value := range s.Values {
			l.assign(v, s.Path, source, value)
		}
	}
}

// field finds the setting of a path, through structs only.
func field(v reflect.Value, path string) (reflect.Value, bool) {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() != reflect.Struct {
			return reflect.Value{}, false
		}
		index, ok := fieldsOf(v.Type())[name]
		if !ok {
			return reflect.Value{}, false
		}
		v = v.Field(index)
	}
	return v, true
}
