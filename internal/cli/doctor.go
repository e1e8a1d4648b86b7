package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

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

// check examines one subject. It has its own deadline, changes nothing, and returns at least one finding, or none when it was not
// requested.
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
	Token          string        `help:"Credential; default LANEWAY_TOKEN, else the token file of the data directory." placeholder:"TOKEN"`
	AllowPlaintext bool          `help:"Send the credential over ws:// to another host."`
	Timeout        time.Duration `help:"How long each check may take." default:"10s"`
	Agents         bool          `help:"Start each agent over ACP and make a session with it; a first start may install it. No model is called."`
	JSON           bool          `help:"Print JSON."`
}

// Help is the long help of the command.
func (*doctorCmd) Help() string {
	return `Each line is ok, a warning or a failure with its cure. Exit status 1 means that there is a failure.

Example:

    laneway doctor --config laneway.yaml`
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
		if _, err := fmt.Fprintln(env.stdout, line); err != nil {
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
	all := ok("a gateway may start with this configuration")
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
		return ok("%s does not exist yet; laneway serve makes it", data)
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
