package config

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/cron/schedule"
	"laneway/internal/words"
)

var (
	nameRule  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	agentRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
)

func validName(s string) bool { return nameRule.MatchString(s) }

// check checks every value and every relation between values, and returns all faults.
func (c Config) check() FaultsError {
	var faults FaultsError
	root := at{faults: &faults}
	c.checkListeners(root)
	c.checkProcess(root)
	c.Lanes.validate(root.key("lanes"))
	before := len(faults)
	c.Queue.validate(root.key("queue"))
	base := c.Queue
	if len(faults) > before {
		base = defaultQueue() // so that a fault of the global settings is not repeated for each agent and channel
	}
	c.checkAgents(root, base)
	c.Channels.validate(root.key("channels"), base)
	c.Cron.validate(root.key("cron"))
	if c.Retention != 0 {
		root.durationBetween("retention", c.Retention, 2*Duration(day), 36500*Duration(day))
	}
	c.Limits.validate(root.key("limits"))
	c.Budgets.validate(root.key("budgets"))
	c.checkPrices(root)
	c.History.validate(root.key("history"), c.Agents)
	c.Cluster.validate(root.key("cluster"))
	c.checkHooks(root.key("hooks"))
	c.checkMCP(root)
	root.key("log").oneOf("level", c.Log.Level, "debug", "info", "warn", "error")
	root.key("log").oneOf("format", c.Log.Format, "text", "json")
	if file := c.Log.File; file != "" && !filepath.IsAbs(file) {
		root.key("log").key("file").addf("must be an absolute path, not %q", file)
	}
	return faults
}

func (c Config) checkListeners(root at) {
	listen := root.key("listen")
	if len(c.Listen) == 0 {
		listen.addf("needs at least one address, such as %s", DefaultListen)
	}
	for i, address := range c.Listen {
		checkAddress(listen, address)
		if slices.Contains(c.Listen[:i], address) {
			listen.addf("has %s twice", address)
		}
	}
	switch c.MetricsListen {
	case "off", "main":
	default:
		checkAddress(root.key("metrics_listen"), c.MetricsListen)
		if slices.Contains(c.Listen, c.MetricsListen) && !strings.HasSuffix(c.MetricsListen, ":0") {
			root.key("metrics_listen").addf("is an address of the main listener; use the value main")
		}
	}
	if c.Pprof && (c.MetricsListen == "off" || c.MetricsListen == "main") {
		root.key("pprof").addf("needs metrics_listen with a loopback address, is %s", c.MetricsListen)
	}
	for _, host := range slices.Concat(c.AllowedHosts, c.WebhookAllowedHosts) {
		if host == "" || strings.ContainsAny(host, "/*@ ") {
			root.key("allowed_hosts").addf("%q is not a host name", host)
		}
	}
}

func checkAddress(a at, address string) {
	_, port, err := net.SplitHostPort(address)
	n, numeric := strconv.Atoi(port)
	if err != nil || numeric != nil || n < 0 || n > 65_535 {
		a.addf("must be HOST:PORT, is %q", address)
	}
}

func (c Config) checkProcess(root at) {
	root.durationBetween("drain_timeout", c.DrainTimeout, 0, Duration(hour))
	root.durationBetween("shutdown_delay", c.ShutdownDelay, 0, max(0, c.DrainTimeout))
	root.between("database_conns", c.DatabaseConns, 2, 1_000)
	if len(c.Roles) == 0 {
		root.key("roles").addf("needs at least one of gateway, channels, cron, worker")
	}
	for _, role := range c.Roles {
		root.oneOf("roles", role, RoleGateway, RoleChannels, RoleCron, RoleWorker)
	}
	if path, ok := c.Database.SQLitePath(); ok && path == "" {
		root.key("database").addf("needs a path after sqlite:")
	} else if c.Database.IsSet() && !ok {
		if _, err := c.Database.parse(); err != nil {
			root.key("database").addf("%s", errDatabaseURL)
		}
	}
}

func (c Config) checkAgents(root at, queue Queue) {
	agents := root.key("agents")
	variables := map[string]string{}
	for _, id := range sortedNames(c.Agents) {
		a := c.Agents[id]
		a.validate(agents.key(id), id, queue)
		if other, taken := variables[envWord(id)]; taken {
			agents.key(id).addf("and agents.%s share the variables LANEWAY_AGENTS_%s_…; rename one", other, envWord(id))
		}
		variables[envWord(id)] = id
	}
	if len(c.Agents) == 0 && c.Agent == "" {
		agents.addf("needs at least one agent")
	} else if c.DefaultAgent == "" && len(c.Agents) > 0 {
		root.key("default_agent").addf("is needed: there are several agents and none is called main")
	}
	c.checkAgentName(root.key("default_agent"), c.DefaultAgent)
	c.checkAgentName(root.key("channels.telegram.agent"), c.Channels.Telegram.Agent)
	for _, name := range sortedNames(c.Channels.Telegram.Accounts) {
		c.checkAgentName(root.key("channels.telegram.accounts."+name+".agent"), c.Channels.Telegram.Accounts[name].Agent)
	}
}

func (c Config) checkAgentName(a at, id string) {
	if _, known := c.Agents[id]; id != "" && !known {
		a.addf("names no agent: %q; there are %s%s", id, strings.Join(sortedNames(c.Agents), ", "), words.Meant(id, sortedNames(c.Agents)))
	}
}

func (c Cron) validate(a at) {
	if _, err := schedule.LoadZone(c.Timezone); err != nil || c.Timezone == "" {
		a.key("timezone").addf("must be a known time zone such as Europe/Berlin, is %q", c.Timezone)
	}
	a.durationBetween("min_interval", c.MinInterval, Duration(second), Duration(day))
	a.durationBetween("user_min_interval", c.UserMinInterval, Duration(second), 365*Duration(day))
	if c.UserMinInterval < c.MinInterval {
		a.key("user_min_interval").addf("must not be shorter than min_interval (%s), is %s", c.MinInterval, c.UserMinInterval)
	}
	a.between("max_jobs", c.MaxJobs, 0, noUpperBound)
	a.between("max_jobs_per_owner", c.MaxJobsPerOwner, 0, noUpperBound)
	a.between("max_runs_per_day", c.MaxRunsPerDay, 0, noUpperBound)
	a.between("retention_runs", c.RetentionRuns, 0, noUpperBound)
	a.durationBetween("retention", c.Retention, Duration(hour), 3650*Duration(day))
	for _, kind := range c.Payloads {
		a.oneOf("payloads", kind, "command", "script")
	}
	if slices.Contains(c.Payloads, "script") && c.ScriptInterpreter == "" {
		a.key("script_interpreter").addf("is needed for the payload kind script, such as /bin/sh")
	}
}

func (l Limits) validate(a at) {
	for _, rate := range []struct {
		name  string
		value int
	}{
		{"cron_writes", l.CronWrites},
		{"chat", l.Chat},
		{"requests", l.Requests},
		{"hooks", l.Hooks},
		{"chat_user", l.ChatUser},
		{"user_turns", l.UserTurns},
		{"own_waiting", l.OwnWaiting},
		{"waiting", l.CallerWaiting},
	} {
		a.between(rate.name, rate.value, 0, 1_000_000)
	}
	if l.Bytes != 0 {
		a.between("bytes", l.Bytes, 65_536, 1<<40)
	}
	if l.ChatUserBytes != 0 {
		a.between("chat_user_bytes", l.ChatUserBytes, 65_536, 1<<40)
	}
	a.between("own_sessions", l.OwnSessions, 0, noUpperBound)
	a.between("sessions", l.CallerSessions, 0, noUpperBound)
	a.between("free_space", l.FreeSpace, 0, 1<<50)
	a.between("kept_files", l.KeptFiles, 0, 1<<50)
	a.between("max_payload", l.MaxPayload, 65_536, 26_214_400)
	a.between("max_buffered", l.MaxBuffered, 65_536, 1<<30)
	if l.MaxBuffered < l.MaxPayload {
		a.key("max_buffered").addf("must not be smaller than max_payload (%d), is %d", l.MaxPayload, l.MaxBuffered)
	}
	a.between("sockets", l.Sockets, 1, 1_000_000)
	a.between("unauthenticated", l.Unauthenticated, 1, l.Sockets)
	a.between("unauthenticated_per_address", l.UnauthenticatedPerAddress, 1, l.Unauthenticated)
	a.between("sockets_per_principal", l.SocketsPerPrincipal, 1, l.Sockets)
}

func (c Cluster) validate(a at) {
	a.durationBetween("lease", c.Lease, 3*Duration(second), 10*Duration(minute))
	a.durationBetween("heartbeat", c.Heartbeat, Duration(second)/2, Duration(minute))
	a.durationBetween("sweep", c.Sweep, Duration(second)/10, Duration(minute))
	if c.AgentWait != 0 {
		a.durationBetween("agent_wait", c.AgentWait, Duration(minute), 30*24*Duration(hour))
	}
	if 3*c.Heartbeat > c.Lease {
		a.key("lease").addf("must be three heartbeats (%s) or longer, is %s", 3*c.Heartbeat, c.Lease)
	}
	if len(c.NodeID) > 64 || strings.ContainsFunc(c.NodeID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		a.key("node_id").addf("must be at most 64 printable characters without blanks")
	}
}

func (c Config) checkHooks(a at) {
	for _, name := range sortedNames(c.Hooks) {
		hook := a.key(name)
		if !validName(name) {
			hook.addf("is no hook name; use lower-case letters, digits and dashes, at most 64")
		}
		hook.oneOf("scheme", c.Hooks[name].Scheme, "laneway", "github")
		c.checkAgentName(hook.key("agent"), c.Hooks[name].Agent)
		if len(c.Hooks[name].Session) > 512 {
			hook.key("session").addf("must be at most 512 characters")
		}
	}
}

// ExitCode is the exit status of a process with an invalid configuration (EX_CONFIG of sysexits.h).
const ExitCode = 78

// SourceKind is the layer of a value.
type SourceKind string

// The layers, lowest first. Detected is a default that follows from a well-known variable of
// another program.
const (
	SourceDefault  SourceKind = "default"
	SourceDetected SourceKind = "detected"
	SourceFile     SourceKind = "file"
	SourceEnv      SourceKind = "environment"
	SourceFlag     SourceKind = "flag"
)

// Source is the source of a value: the layer, and the place in it (`laneway.yaml:12`,
// `LANEWAY_QUEUE_CAP`, `--listen`).
type Source struct {
	Kind  SourceKind `json:"kind"`
	Place string     `json:"place,omitempty"`
}

// String returns the place, or the layer when there is no place.
func (s Source) String() string {
	switch {
	case s.Place == "" && s.Kind == "":
		return string(SourceDefault)
	case s.Place == "":
		return string(s.Kind)
	case s.Kind == SourceDetected:
		return "detected from " + s.Place
	default:
		return s.Place
	}
}

// Fault is one error in a configuration.
type Fault struct {
	// Path of the setting, such as `queue.cap`; "" when the fault is about the whole file.
	Path string
	// Source is the source of the invalid value.
	Source Source
	// Message follows the path: `must be 1 or more, is 0`. With Whole it is a complete sentence.
	Message string
	// Whole sentences are shown without path and place.
	Whole bool
}

// String returns the place, the path and the message.
func (f Fault) String() string {
	if f.Whole {
		return f.Message
	}
	var head []string
	if f.Source.Place != "" {
		head = append(head, f.Source.Place)
	}
	if f.Path != "" {
		head = append(head, f.Path)
	}
	if len(head) == 0 {
		return f.Message
	}
	return strings.Join(head, ": ") + " " + f.Message
}

// FaultsError has every fault, in the order of the file. It is the error of [Load] and [Preflight].
type FaultsError []Fault

// Error has one line for each fault.
func (f FaultsError) Error() string {
	return strings.Join(f.Lines(), "\n")
}

// ExitCode returns the exit status of the process.
func (f FaultsError) ExitCode() int { return ExitCode }

// Lines returns one sentence for each fault.
func (f FaultsError) Lines() []string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return lines
}

// touch reports whether a fault concerns path, a part of it, or the group that contains it.
func (f FaultsError) touch(path string) bool {
	return slices.ContainsFunc(f, func(one Fault) bool {
		return one.Path == path || strings.HasPrefix(path, one.Path+".") || strings.HasPrefix(one.Path, path+".") || strings.HasPrefix(one.Path, path+"[")
	})
}

// err returns nil when there are no faults, so that callers never have a typed nil.
func (f FaultsError) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// at collects faults of one part of the configuration under its path.
type at struct {
	path   string
	faults *FaultsError
}

func (a at) key(name string) at {
	if a.path == "" {
		return at{path: name, faults: a.faults}
	}
	return at{path: a.path + "." + name, faults: a.faults}
}

func (a at) addf(format string, args ...any) {
	*a.faults = append(*a.faults, Fault{Path: a.path, Message: fmt.Sprintf(format, args...)})
}

func (a at) between(name string, value, low, high int) {
	switch {
	case value < low && high == noUpperBound:
		a.key(name).addf("must be %d or more, is %d", low, value)
	case value < low || value > high:
		a.key(name).addf("must be between %d and %d, is %d", low, high, value)
	}
}

func (a at) durationBetween(name string, value, low, high Duration) {
	if value < low || value > high {
		a.key(name).addf("must be between %s and %s, is %s", low, high, value)
	}
}

func (a at) oneOf(name, value string, known ...string) {
	if slices.Contains(known, value) {
		return
	}
	a.key(name).addf("must be one of %s, is %q", strings.Join(known, ", "), value)
}

// serviceVariable matches the variables that Kubernetes sets in every container for a service with
// the name laneway.
var serviceVariable = regexp.MustCompile(`^LANEWAY(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$`)

// UnknownVariables returns a sentence for each name that begins with LANEWAY_ and has no effect: a
// misspelled variable would otherwise go unnoticed. A setting of an agent or hook that does not
// exist counts as unknown.
func (l *Loaded) UnknownVariables(names []string) []string {
	known := map[string]int{"LANEWAY_CONFIG": 0, "LANEWAY_URL": 0} // commands read them, not the gateway
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
		sentences = append(sentences, name+" is not a setting and has no effect"+words.Meant(name, slices.Collect(maps.Keys(known))))
	}
	return sentences
}
