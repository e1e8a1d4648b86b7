package config

import (
	"cmp"
	"encoding"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Options are the sources of settings for [Load].
type Options struct {
	// File is the path of the configuration file. With "", it is LANEWAY_CONFIG, or the first that
	// exists of $XDG_CONFIG_HOME/laneway/config.yaml (~/.config without the variable) and
	// SystemFile; otherwise no file is read. With /dev/null, no file is read.
	File string
	// SystemFile is the configuration file of the host; "" = /etc/laneway/config.yaml.
	SystemFile string
	// BesideGateway: the process is not a gateway. When root runs it, files are checked for the
	// owner of the data directory.
	BesideGateway bool
	// LookupEnv reads one variable; nil = an empty environment. Blank variables count as unset, see
	// [Present].
	LookupEnv func(string) (string, bool)
	// Flags are settings from the command line.
	Flags []Setting
}

// Loaded is a checked configuration with its sources.
type Loaded struct {
	Config Config
	// File is the path of the file that was read, or "".
	File string
	// Notes are sentences for the operator about automatic choices, such as a detected agent.
	Notes []string

	sources    map[string]Source
	secretFile map[string]string // path of a secret → the file that it came from
	env        func(string) (string, bool)
	as         identity // the user whose access to files is checked
	ofHost     bool     // the file is the host's, which describes the gateway of its service
}

// Source returns the source of the value of a path.
func (l *Loaded) Source(path string) Source {
	if s, ok := l.sources[path]; ok {
		return s
	}
	return Source{Kind: SourceDefault}
}

// otherData says how a user gets another data directory.
func (l *Loaded) otherData() string {
	if l.ofHost && l.Source("data").Kind == SourceFile {
		return "run laneway config init for a gateway of your own, because " + l.File + " is for the service"
	}
	return "name another with --data"
}

// Load reads the file, the environment and the flags, fills in the defaults, reads secrets from the
// named variables and files, and checks everything. The error is [FaultsError] with every fault, or
// an error of reading the file.
func Load(o Options) (*Loaded, error) {
	lookup := Present(o.LookupEnv)
	l := &layers{sources: map[string]Source{}}
	cfg := Default()
	file := configFile(o, lookup)
	if file != "" {
		text, err := readConfigFile(file)
		if err != nil {
			return nil, err
		}
		l.file(&cfg, filepath.Base(file), text)
	}
	loaded := &Loaded{File: file, sources: l.sources, secretFile: map[string]string{}, env: lookup, as: thisProcess(lookup), ofHost: o.File == "" && file == o.systemFile()}
	loaded.overlay(l, &cfg, o.Flags)
	if o.BesideGateway {
		loaded.as.beside = os.Geteuid() != 0
		if as, ok := ownerIdentity(cfg.Data); ok && !loaded.as.beside {
			loaded.as = as
		}
	}
	loaded.detectBot(&cfg)
	loaded.resolve(l, &cfg)
	if cfg.Data == "" {
		l.faults = append(l.faults, Fault{Path: "data", Message: "is not known: there is no home directory; set LANEWAY_DATA or use --data DIR"})
	}
	l.addChecks(loaded.place(cfg.check()))
	loaded.Config = cfg
	return loaded, l.faults.err()
}

// readConfigFile reads a regular file. It refuses other files: opening a pipe blocks until a writer
// opens it, and reading a device may never end.
func readConfigFile(path string) ([]byte, error) {
	const noun = "configuration file"
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		if err := checkRegular(path, noun, info); err != nil {
			return nil, err
		}
	}
	text, err := os.ReadFile(path) // the operator names it
	if err != nil {
		return nil, refuse("%s %s cannot be read: %s; name another with --config", noun, path, cause(err))
	}
	return text, nil
}

// addChecks adds the faults of the checks, except for settings that were already refused: their
// value is not the given one.
func (l *layers) addChecks(found FaultsError) {
	refused := l.faults
	for _, f := range found {
		if !refused.touch(f.Path) {
			l.faults = append(l.faults, f)
		}
	}
}

func (o Options) systemFile() string { return cmp.Or(o.SystemFile, "/etc/laneway/config.yaml") }

func configFile(o Options, lookup func(string) (string, bool)) string {
	switch o.File {
	case "":
	case os.DevNull:
		return ""
	default:
		return o.File
	}
	name, found := lookup("LANEWAY_CONFIG")
	if found && name == os.DevNull {
		return ""
	}
	if found {
		return name
	}
	for _, path := range []string{UserFile(lookup), o.systemFile()} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return path // if it cannot be read, opening it fails: to skip it would start another gateway than the configured one
		}
	}
	return ""
}

// UserFile returns the configuration file of the user; "" when the environment names no home.
func UserFile(lookup func(string) (string, bool)) string {
	if xdg, _ := lookup("XDG_CONFIG_HOME"); filepath.IsAbs(xdg) {
		return filepath.Join(xdg, "laneway", "config.yaml")
	}
	if home, _ := lookup("HOME"); home != "" {
		return filepath.Join(home, ".config", "laneway", "config.yaml")
	}
	return ""
}

// overlay applies environment and flags to the values of the file. The agents are added in between,
// because the short forms and the detection make entries that variables may change.
func (l *Loaded) overlay(in *layers, cfg *Config, flags []Setting) {
	agents := cfg.Agents
	cfg.Agents = nil
	in.env(reflect.ValueOf(cfg).Elem(), "", l.env)
	cfg.Agents = agents
	in.flags(cfg, flags)
	l.agents(in, cfg, l.env)
	in.env(reflect.ValueOf(cfg).Elem().FieldByName("Agents"), "agents", l.env)
	cfg.Data = cmp.Or(cfg.Data, DefaultData(l.env))
	fill(cfg)
	l.noteUnused(cfg)
}

// agents turns the short form into the agent main, or detects one when none is configured.
func (l *Loaded) agents(in *layers, cfg *Config, lookup func(string) (string, bool)) {
	if cfg.Agents == nil {
		cfg.Agents = map[string]Agent{}
	}
	source := l.Source("agent")
	switch {
	case cfg.Agent != "":
		l.shortAgent(in, cfg, source)
	case len(cfg.Agents) == 0:
		l.detectAgent(cfg, lookup)
	}
}

func (l *Loaded) shortAgent(in *layers, cfg *Config, source Source) {
	if _, both := cfg.Agents[MainAgent]; both && source.Kind == SourceFile {
		in.faults = append(in.faults, Fault{Path: "agent", Source: source, Message: "and agents.main are both given; keep one of them"})
		return
	}
	a, err := ParseShortAgent(cfg.Agent)
	if err != nil {
		in.faults = append(in.faults, Fault{Path: "agent", Source: source, Message: err.Error()})
		return
	}
	if host, _ := l.env("OLLAMA_HOST"); strings.TrimSpace(host) != "" && strings.HasPrefix(cfg.Agent, ollamaName+":") && !strings.Contains(cfg.Agent, "@http") {
		a.BaseURL = ollamaURL(host)
	}
	cfg.Agents = maps.Clone(cfg.Agents)
	cfg.Agents[MainAgent] = a
	cfg.DefaultAgent = MainAgent
	forget(l.sources, "agents.main.")
	for _, name := range []string{"runner", "preset", "command", "model", "base_url"} {
		l.sources["agents.main."+name] = source
	}
}

func forget(sources map[string]Source, prefix string) {
	maps.DeleteFunc(sources, func(path string, _ Source) bool { return strings.HasPrefix(path, prefix) })
}

// fill sets values that follow from other settings.
func fill(cfg *Config) {
	for id, a := range cfg.Agents {
		a.fill(id)
		cfg.Agents[id] = a
	}
	for name, bot := range cfg.Channels.Telegram.Accounts {
		bot.Account = cmp.Or(bot.Account, name)
		cfg.Channels.Telegram.Accounts[name] = bot
	}
	cfg.DefaultAgent = cmp.Or(cfg.DefaultAgent, onlyAgent(cfg.Agents))
}

// onlyAgent returns main, or the only agent; "" when the user has to choose.
func onlyAgent(agents map[string]Agent) string {
	if _, ok := agents[MainAgent]; ok {
		return MainAgent
	}
	if ids := sortedNames(agents); len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// place sets in each fault the source of its value.
func (l *Loaded) place(faults FaultsError) FaultsError {
	for i, f := range faults {
		if s, ok := l.sources[f.Path]; ok {
			faults[i].Source = s
		}
	}
	return faults
}

// cause returns the error of the operating system without the name of the call and the path, which
// the sentence already contains.
func cause(err error) string {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err.Error()
	}
	return err.Error()
}

// Setting is a value from the command line.
type Setting struct {
	// Path of the setting, such as `log.level`.
	Path string
	// Flag as the user wrote it, such as `--log-level`.
	Flag string
	// Values has one element, or several for a list.
	Values []string
}

// Aliases returns the additional names of a setting's variable. The first variable that is set
// takes effect, and the name derived from the path comes first.
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

// Present returns lookup without blank variables: an empty variable counts as unset. The variables
// of the secrets that callers present are the exception. A blank one is returned, and [Load]
// refuses it, because "set but empty" must never start a gateway with another token than intended.
// lookup may be nil.
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

// env applies the environment to v. It reads the variable of each setting; for maps, of each
// existing entry.
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

// isLeaf distinguishes settings from groups of settings. A map of strings is one setting: its keys
// are chosen by the user.
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

// assign parses one value of a variable or a flag. Lists are separated by commas, or written as
// YAML with brackets.
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
	if v.Kind() != reflect.String {
		value = strings.TrimSpace(value)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
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
