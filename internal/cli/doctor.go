package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"laneway/internal/app"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/wire"
)

// level is the severity of a finding.
type level string

const (
	levelOK      level = "ok"
	levelWarning level = "warning"
	levelFailure level = "failure"
)

// finding is one line of the doctor.
type finding struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	Text  string `json:"text"`
	// Cure says what to do; "" when the text says it, or when there is nothing to do.
	Cure string `json:"cure,omitempty"`
}

// check examines one subject. It has its own deadline, changes nothing, and returns at least one
// finding, or none when it was not requested.
type check struct {
	name string
	run  func(ctx context.Context, p *patient) []finding
	// slow: it may take as long as the installation of a package.
	slow bool
}

// agentStartTime limits the start of the agents.
const agentStartTime = 5 * time.Minute

// patient has the subjects of the checks.
type patient struct {
	env    *environment
	flags  *doctorCmd
	loaded *config.Loaded // nil when the configuration cannot be read
}

type doctorCmd struct {
	configFlags
	URL            string        `help:"Address of the gateway; default LANEWAY_URL, else ws://127.0.0.1:18790." placeholder:"URL"`
	Token          string        `help:"Token; default LANEWAY_TOKEN, else the token file of the data directory." placeholder:"TOKEN"`
	AllowPlaintext bool          `help:"Allow sending the token unencrypted (ws://) to another host."`
	Timeout        time.Duration `help:"Time limit of each check." default:"10s"`
	Agents         bool          `help:"Also start each coding agent and open a session, which may install it. No model is called."`
	JSON           bool          `help:"Print JSON."`
}

// checks returns the checks in order; later ones may use the results of earlier ones.
func checks() []check {
	return []check{
		{name: "configuration", run: checkConfiguration},
		{name: "start", run: checkStart},
		{name: "data directory", run: checkData},
		{name: "disk", run: checkSpace},
		{name: "token file", run: checkTokenFile},
		{name: "database", run: checkDatabase},
		{name: "agents", run: checkAgents},
		{name: "agent starts", run: checkAgentStarts, slow: true},
		{name: "gateway", run: checkGateway},
		{name: "credential", run: checkCredential},
		{name: "channels", run: checkChannels},
		{name: "problems", run: checkProblems},
	}
}

// Run executes all checks and prints the findings.
func (c *doctorCmd) Run(ctx context.Context, env *environment) error {
	if c.Timeout <= 0 {
		return usageError("--timeout must be longer than 0")
	}
	p := &patient{env: env, flags: c}
	var all []finding
	failed := false
	for _, one := range checks() {
		for _, f := range c.do(ctx, one, p) {
			f.Check = one.name
			failed = failed || f.Level == levelFailure
			all = append(all, f)
		}
	}
	if err := c.print(env, all); err != nil {
		return err
	}
	if failed {
		return errQuiet
	}
	return nil
}

func (c *doctorCmd) do(ctx context.Context, one check, p *patient) []finding {
	limit := c.Timeout
	if one.slow {
		limit = max(limit, agentStartTime)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return one.run(ctx, p)
}

func (c *doctorCmd) print(env *environment, all []finding) error {
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"findings": all})
	}
	for _, f := range all {
		line := fmt.Sprintf("%-8s %-15s %s", f.Level, f.Check, oneLine(f.Text))
		if f.Cure != "" {
			line += "; " + f.Cure
		}
		if err := env.printLine(line); err != nil {
			return err
		}
	}
	return nil
}

func ok(format string, args ...any) []finding {
	return []finding{{Level: levelOK, Text: fmt.Sprintf(format, args...)}}
}

func failure(text, cure string) []finding {
	return []finding{{Level: levelFailure, Text: text, Cure: cure}}
}

func warning(text, cure string) []finding {
	return []finding{{Level: levelWarning, Text: text, Cure: cure}}
}

// each returns one failure for every sentence of a refused configuration.
func each(err error) []finding {
	var refused config.FaultsError
	if !errors.As(err, &refused) {
		return failure(err.Error(), "")
	}
	var all []finding
	for _, line := range refused.Lines() {
		all = append(all, finding{Level: levelFailure, Text: line})
	}
	return all
}

func checkConfiguration(_ context.Context, p *patient) []finding {
	loaded, err := p.flags.loadBeside(p.env)
	if err != nil {
		return each(err)
	}
	p.loaded = loaded
	if loaded.File == "" {
		return ok("no file; defaults and environment")
	}
	return ok("%s", loaded.File)
}

func checkStart(_ context.Context, p *patient) []finding {
	if p.loaded == nil {
		return warning("not checked", "fix the configuration first")
	}
	plan, err := config.Preflight(p.loaded)
	if err != nil {
		return each(err)
	}
	all := ok("the gateway can start with this configuration")
	for _, w := range slices.Concat(plan.Warnings, p.loaded.UnknownVariables(p.env.variableNames())) {
		all = append(all, finding{Level: levelWarning, Text: w})
	}
	return all
}

func checkData(_ context.Context, p *patient) []finding {
	if p.loaded == nil {
		return warning("not checked", "fix the configuration first")
	}
	data := p.loaded.Config.Data
	info, err := os.Stat(data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ok("%s does not exist yet; laneway serve creates it", data)
	case err != nil:
		return failure(data+" cannot be read", "check who owns it")
	case !info.IsDir():
		return failure(data+" is a file", "name another with --data")
	case modeOf(info)&0o022 != 0:
		return failure(fmt.Sprintf("%s has mode %04o: others can put files there", data, modeOf(info)), "run: chmod 700 "+data)
	case ownerOf(info) != os.Geteuid() && ownerOf(info) >= 0 && os.Geteuid() != 0:
		return warning(fmt.Sprintf("%s belongs to user %d, and this is user %d", data, ownerOf(info), os.Geteuid()),
			"run laneway doctor as root or as the user of the gateway")
	}
	probe, err := os.CreateTemp(data, ".doctor-*")
	if err != nil {
		return failure(data+" cannot be written to", "check who owns it and whether the disk is full")
	}
	if err := errors.Join(probe.Close(), os.Remove(filepath.Clean(probe.Name()))); err != nil {
		return failure(data+" cannot be written to", "check whether the disk is full")
	}
	if mode := modeOf(info); mode&0o077 != 0 {
		return warning(fmt.Sprintf("%s has mode %04o: others can look into it", data, mode), "run: chmod 700 "+data)
	}
	return ok("%s", data)
}

func (c *doctorCmd) client() clientFlags {
	flags := clientFlags{URL: oneURL(c.URL), Token: c.Token, Config: c.Config, AllowPlaintext: c.AllowPlaintext}
	if c.Data != nil {
		flags.Data = *c.Data
	}
	return flags
}

func checkGateway(ctx context.Context, p *patient) []finding {
	addresses, err := p.flags.client().addresses(p.env)
	if err != nil {
		return failure(err.Error(), "")
	}
	base := addresses[0]
	if _, _, err := probe(ctx, base, "/healthz"); err != nil {
		return failure(err.Error(), "")
	}
	body, status, err := probe(ctx, base, "/readyz")
	switch {
	case err != nil:
		return failure(err.Error(), "")
	case status != 200:
		return failure("alive, but not ready: "+oneLine(string(body)), "see the log of the gateway")
	default:
		return ok("alive and ready")
	}
}

func checkCredential(ctx context.Context, p *patient) []finding {
	var status wire.StatusResult
	var raw json.RawMessage
	if err := p.flags.client().call(ctx, p.env, "status", map[string]any{}, &raw); err != nil {
		return failure(err.Error(), "")
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		return failure("the status of the gateway cannot be read", "check that gateway and program have the same version")
	}
	if own := p.env.version.Version; status.Version != own {
		return warning(fmt.Sprintf("the gateway has version %s, this program %s", cell(status.Version, 20), own), "use the same version of both")
	}
	return ok("accepted by %s", cell(status.NodeID, 40))
}

// checkProblems requests the problems of the running gateway and of all work.
func checkProblems(ctx context.Context, p *patient) []finding {
	report := wire.HealthResult{HealthExtra: &wire.HealthExtra{}}
	if err := p.flags.client().call(ctx, p.env, "health", map[string]any{"extended": true}, &report); err != nil {
		return warning("not checked: no gateway answers", "start it, or give --url and --token")
	}
	if len(report.Problems) == 0 {
		return ok("the gateway has none")
	}
	var all []finding
	for _, problem := range report.Problems {
		all = append(all, warning(problem, "")...)
	}
	return all
}

const (
	mebibyte    = 1 << 20
	littleSpace = 1024 * mebibyte
	noSpace     = 100 * mebibyte
)

// notChecked is the finding when the configuration cannot be read.
func notChecked() []finding { return warning("not checked", "fix the configuration first") }

func findings(list []app.Finding) []finding {
	out := make([]finding, 0, len(list))
	for _, f := range list {
		out = append(out, finding{Level: level(f.Weight), Text: f.Text, Cure: f.Cure})
	}
	return out
}

func checkDatabase(ctx context.Context, p *patient) []finding {
	if p.loaded == nil {
		return notChecked()
	}
	secrets := p.loaded.Secrets()
	if token, err := config.ReadSecretFile(config.TokenPath(p.loaded.Config.Data)); err == nil { // another check reports whether it can be read
		secrets = append(secrets, token)
	}
	return findings(app.ExamineStore(ctx, p.loaded.Config, secrets, p.env.now))
}

func checkAgents(ctx context.Context, p *patient) []finding {
	if p.loaded == nil {
		return notChecked()
	}
	if filepath.Dir(p.loaded.File) == "/etc/laneway" && app.UnitHidesHomes("/") { // the configuration of the unit
		if hidden := app.ExamineHomes(p.loaded.Config, p.env.lookupEnv, func(string) bool { return true }); len(hidden) > 0 {
			return findings(hidden)
		}
	}
	runs, servers, lacks := p.agentsThere(ctx)
	return append(findings(slices.Concat(
		app.ExamineAgents(ctx, p.loaded.Config, runs, p.env.lookupEnv), app.ExamineServers(p.loaded.Config, servers, p.env.lookupEnv))), lacks...)
}

// agentsThere returns the runners by agent, the tool servers of the running gateway and what models
// have refused; nil when no gateway answers, which another check reports.
func (p *patient) agentsThere(ctx context.Context) (runners map[string]string, servers []chat.ToolServer, lacks []finding) {
	var reply wire.AgentsListResult
	if err := p.flags.client().call(ctx, p.env, "agents.list", map[string]any{}, &reply); err != nil {
		return nil, nil, nil
	}
	runners = make(map[string]string, len(reply.Agents))
	for _, a := range reply.Agents {
		runners[a.ID] = a.Runner
		for _, lack := range a.Lacks {
			lacks = append(lacks, warning(lackOf(a.ID, lack), "choose a model that takes it, or wait: it is tried again")...)
		}
	}
	servers = make([]chat.ToolServer, 0, len(reply.Servers))
	for _, s := range reply.Servers {
		one := chat.ToolServer{Name: s.Name, State: s.State, Tools: s.Tools}
		for _, t := range s.Renamed {
			one.Renamed = append(one.Renamed, chat.RenamedTool{Name: t.Name, Own: t.Own})
		}
		for _, t := range s.LeftOut {
			one.LeftOut = append(one.LeftOut, chat.LeftOutTool{Name: t.Name, Why: t.Reason})
		}
		if s.LastError != nil {
			one.LastError = *s.LastError
		}
		servers = append(servers, one)
	}
	return runners, servers, lacks
}

// checkSpace checks the disk of the data directory.
func checkSpace(_ context.Context, p *patient) []finding {
	if p.loaded == nil {
		return notChecked()
	}
	free, err := freeSpace(p.loaded.Config.Data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ok("the data directory does not exist yet")
	case errors.Is(err, errors.ErrUnsupported):
		return ok("not measured on this system")
	case err != nil:
		return warning("the free space cannot be read", "")
	default:
		return spaceFinding(free)
	}
}

func spaceFinding(free uint64) []finding {
	text := fmt.Sprintf("%d MiB are free", free/mebibyte)
	switch {
	case free < noSpace:
		return failure(text, "make room before the database cannot write")
	case free < littleSpace:
		return warning(text, "make room")
	default:
		return ok("%s", text)
	}
}

// checkTokenFile checks who can read the token.
func checkTokenFile(_ context.Context, p *patient) []finding {
	if p.loaded == nil {
		return notChecked()
	}
	path, err := p.loaded.CheckToken()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ok("there is no token file; a token is given, or laneway serve creates one")
	case errors.Is(err, os.ErrPermission):
		return warning("the files of the gateway are closed to this user", "run laneway doctor as root or as the user of the gateway")
	case err != nil:
		return each(err)
	}
	return ok("%s is readable by the gateway and by no other user", path)
}

// checkChannels queries the networks of the configured bots, and the running gateway for its
// channels.
func checkChannels(ctx context.Context, p *patient) []finding {
	var all []finding
	if p.loaded != nil {
		all = findings(app.ExamineChannels(ctx, p.loaded.Config))
	}
	var report wire.ChannelsStatusResult
	if err := p.flags.client().call(ctx, p.env, "channels.status", map[string]any{}, &report); err != nil {
		return append(all, warning("the gateway's are not checked: no gateway answers", "start it, or give --url and --token")...)
	}
	for _, id := range slices.Sorted(maps.Keys(report.Accounts)) {
		for _, a := range report.Accounts[id] {
			name := cell(id, 40) + " " + cell(a.AccountID, 40)
			switch {
			case a.State == "disabled":
				all = append(all, warning(name+" is switched off: its token is refused", "get a token from @BotFather, put it in, and restart laneway")...)
			case a.State == "standby":
				all = append(all, ok("%s is polled by another node", name)...)
			case !a.Connected:
				why := ""
				if a.LastError != nil {
					why = ": " + oneLine(*a.LastError)
				}
				all = append(all, warning(name+" is not connected"+why, "see the log of the gateway")...)
			case a.OutboxFailed > 0:
				all = append(all, warning(fmt.Sprintf("%s could not deliver %s", name, count(a.OutboxFailed, "message")), "see the log of the gateway")...)
			case a.OutboxMaybeSent > 0:
				all = append(all, warning(fmt.Sprintf("%s: whether %s arrived is not known", name, count(a.OutboxMaybeSent, "message")), "they were being sent when a process ended, and are not sent again; ask their receivers if they matter")...)
			default:
				all = append(all, ok("%s is connected", name)...)
			}
		}
	}
	return all
}

// checkAgentStarts starts the agents over ACP. It runs only on request, because it needs their
// keys, and a first start may install a program.
func checkAgentStarts(ctx context.Context, p *patient) []finding {
	switch {
	case !p.flags.Agents:
		return nil
	case p.loaded == nil:
		return notChecked()
	}
	all := findings(app.ProbeAgents(ctx, p.loaded.Config, p.env.lookupEnv, p.env.environ()))
	if len(all) == 0 {
		return ok("no agent speaks ACP")
	}
	return all
}
