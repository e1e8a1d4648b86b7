package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/app"
	"laneway/internal/config"
	"laneway/internal/process"
)

// service is the process of `serve`. It blocks until ctx is done and everything has ended, or until
// it fails.
type service interface {
	Serve(ctx context.Context, s serveInput) error
}

// serveInput has all inputs of the process.
type serveInput struct {
	Loaded *config.Loaded
	// Hold starts the gateway held.
	Hold        bool
	Credentials config.Credentials
	Version     versionReport
	Logger      *slog.Logger
	// Signals.Now ends the process at once, Reload and Restart are requests while it runs; the end
	// of ctx requests the drain.
	Signals Signals
	// Reread reads file, environment and flags again, with all checks.
	Reread func() (*config.Loaded, error)
	// RereadCredentials reads the files of the credentials again. The credentials that it returns
	// are valid even when it returns an error.
	RereadCredentials func() (config.Credentials, error)
	// Ready is called once when the listeners are open, with their addresses.
	Ready func(addresses []string)
}

// configFlags are settings on the command line. A flag that is given takes effect, even when it is
// empty.
type configFlags struct {
	Config   string  `help:"Configuration file; default LANEWAY_CONFIG, ~/.config/laneway/config.yaml or /etc/laneway/config.yaml, whichever exists first." placeholder:"FILE" type:"path"`
	Data     *string `help:"Data directory; default $$XDG_DATA_HOME/laneway." placeholder:"DIR" type:"path"`
	Database *string `help:"postgres://… or sqlite:PATH; default SQLite in the data directory. Put a password into LANEWAY_DATABASE_URL instead." placeholder:"URL"`
}

func (f configFlags) settings() []config.Setting {
	return given(flagValue{"data", "--data", f.Data}, flagValue{"database", "--database", f.Database})
}

type flagValue struct {
	path, flag string
	value      *string
}

func given(values ...flagValue) []config.Setting {
	var all []config.Setting
	for _, v := range values {
		if v.value != nil {
			all = append(all, config.Setting{Path: v.path, Flag: v.flag, Values: []string{*v.value}})
		}
	}
	return all
}

func (f configFlags) load(env *environment, more ...config.Setting) (*config.Loaded, error) {
	return config.Load(f.options(env, more...))
}

// loadBeside is load for a command that is not a gateway and that root may run beside one.
func (f configFlags) loadBeside(env *environment) (*config.Loaded, error) {
	o := f.options(env)
	o.BesideGateway = true
	return config.Load(o)
}

func (f configFlags) options(env *environment, more ...config.Setting) config.Options {
	return config.Options{File: f.Config, LookupEnv: env.lookupEnv, SystemFile: env.systemConfig, Flags: append(f.settings(), more...)}
}

type serveCmd struct {
	configFlags
	Listen        []string `help:"Where to listen; may be repeated. Default 127.0.0.1:18790." placeholder:"HOST:PORT"`
	MetricsListen *string  `help:"Where to serve metrics: a loopback address, main (the main listener), or off." placeholder:"HOST:PORT"`
	Agent         *string  `help:"The agent to use: claude, codex, gemini, opencode, qwen, copilot, openclaw, echo, command:PROGRAM ARG…, acp:PROGRAM ARG…, openai:MODEL@BASE_URL, anthropic:MODEL, ollama: or NAME:MODEL of another endpoint." placeholder:"AGENT"`
	Roles         []string `help:"What this process does: gateway,channels,cron,worker. Default all." placeholder:"ROLE" complete:"gateway,channels,cron,worker"`
	LogLevel      *string  `help:"debug, info, warn or error." placeholder:"LEVEL" complete:"debug,info,warn,error"`
	LogFormat     *string  `help:"text or json." placeholder:"FORMAT" complete:"text,json"`
	DrainTimeout  *string  `help:"How long running turns may finish after a stop. Default 30s." placeholder:"DURATION"`
	Hold          bool     `help:"Start paused: send nothing, receive nothing from chats and start no jobs until laneway release."`
	PrintConfig   bool     `help:"Print the effective configuration and where each value comes from, and exit."`
	JSON          bool     `help:"With --print-config: print JSON."`
}

func (c *serveCmd) settings() []config.Setting {
	all := given(
		flagValue{"metrics_listen", "--metrics-listen", c.MetricsListen},
		flagValue{"agent", "--agent", c.Agent},
		flagValue{"log.level", "--log-level", c.LogLevel},
		flagValue{"log.format", "--log-format", c.LogFormat},
		flagValue{"drain_timeout", "--drain-timeout", c.DrainTimeout},
	)
	if c.Listen != nil {
		all = append(all, config.Setting{Path: "listen", Flag: "--listen", Values: c.Listen})
	}
	if c.Roles != nil {
		all = append(all, config.Setting{Path: "roles", Flag: "--roles", Values: c.Roles})
	}
	return all
}

// Run checks everything before it creates the data directory and the token, and runs the process.
func (c *serveCmd) Run(ctx context.Context, env *environment) error {
	env.serving = true
	if c.JSON && !c.PrintConfig {
		return usageError("--json goes with --print-config; see laneway serve --help")
	}
	loaded, err := c.load(env, c.settings()...)
	if err != nil {
		return err
	}
	switch {
	case c.PrintConfig && c.JSON:
		return printJSON(env.stdout, loaded.Values())
	case c.PrintConfig:
		return loaded.Print(env.stdout)
	}
	plan, err := config.Preflight(loaded)
	if err != nil {
		return err
	}
	for _, warning := range slices.Concat(plan.Warnings, loaded.UnknownVariables(env.variableNames())) {
		env.note("warning: " + warning)
	}
	for _, f := range app.ExamineHomes(loaded.Config, env.lookupEnv, app.HiddenHere(env.lookupEnv)) {
		env.note("warning: " + f.Text + "; " + f.Cure)
	}
	if err := env.checkPreset(loaded.Config); err != nil {
		return err
	}
	creds, err := plan.Prepare()
	if err != nil {
		return err
	}
	out, closeLog, err := env.openLog(loaded)
	if err != nil {
		return err
	}
	defer closeLog()
	log, known := newLogger(out, loaded, creds)
	c.greet(env)
	return env.service.Serve(ctx, serveInput{
		Loaded: loaded, Hold: c.Hold, Credentials: creds, Version: env.version, Signals: env.signals, Logger: log,
		Reread: func() (*config.Loaded, error) { return c.reread(env) },
		RereadCredentials: func() (config.Credentials, error) {
			now, err := plan.Reread()
			known.add(callerSecrets(now))
			return now, err
		},
		Ready: func(addresses []string) { c.banner(env, loaded, plan, addresses) },
	})
}

// checkPreset refuses a start if the first agent is not installed and cannot be.
func (env *environment) checkPreset(cfg config.Config) error {
	preset, ok := config.PresetNamed(cfg.Agents[cfg.DefaultAgent].Preset)
	if !ok {
		return nil
	}
	_, installs, err := preset.Find(env.lookupEnv)
	if installs {
		env.note(preset.Title + " is run by npx: the first start installs " + preset.Package + ", which may take a minute")
	}
	return err
}

func (env *environment) variableNames() []string {
	var names []string
	for _, pair := range env.environ() {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	return names
}

// reread checks a configuration as a start would, but creates nothing.
func (c *serveCmd) reread(env *environment) (*config.Loaded, error) {
	loaded, err := c.load(env, c.settings()...)
	if err != nil {
		return nil, err
	}
	if _, err := config.Preflight(loaded); err != nil {
		return nil, err
	}
	return loaded, nil
}

// greet prints on a terminal, before the log of the start, where to go next. With an address of its
// own, only the banner knows how to reach the gateway.
func (c *serveCmd) greet(env *environment) {
	if env.quiet || !env.toTerminal {
		return
	}
	line := "laneway " + env.version.Version + " starts"
	if c.Listen == nil {
		line += "; then write to it from a second terminal: " + c.chatCommand()
	}
	_, _ = fmt.Fprintln(env.stdout, oneLine(line))
}

// banner prints in at most ten lines the addresses of the gateway, the agent, and how to use it.
func (c *serveCmd) banner(env *environment, loaded *config.Loaded, plan *config.Plan, addresses []string) {
	if env.quiet {
		return
	}
	cfg := loaded.Config
	if cfg.Log.Format == "json" {
		env.bannerJSON(loaded, plan, addresses)
		return
	}
	lines := []string{"laneway " + env.version.Version + " is running; stop it with Ctrl-C"}
	if len(addresses) > 0 {
		lines = append(lines, "listening on "+strings.Join(addresses, ", ")+reach(addresses))
	}
	lines = append(lines, "agent "+cfg.DefaultAgent+" answers: "+agentName(cfg))
	if len(addresses) > 0 {
		lines = append(lines, "talk to it: "+c.howToTalk(loaded.Config, plan, addresses))
	}
	if loaded.File != "" {
		lines = append(lines, "configuration: "+loaded.File)
	}
	lines = append(lines, "store: "+storeName(cfg))
	lines = append(lines, loaded.Notes...)
	for _, line := range lines[:min(len(lines), maxBanner)] {
		_, _ = fmt.Fprintln(env.stdout, oneLine(line))
	}
}

// reach describes who can connect to the addresses.
func reach(addresses []string) string {
	if slices.ContainsFunc(addresses, config.Public) {
		return ""
	}
	return " (this machine only)"
}

// howToTalk returns the command that reaches this gateway, with the flags of serve that a client of
// this host also needs, and the page.
func (c *serveCmd) howToTalk(cfg config.Config, plan *config.Plan, addresses []string) string {
	how, local := c.chatCommand(), localAddress(addresses)
	if c.Listen != nil {
		how += " --url http://" + local
	}
	if cfg.Dashboard {
		how += ", or http://" + local + "/dashboard"
	}
	if plan.TokenFile != "" {
		how += "; the token is in " + plan.TokenFile
	}
	return how
}

// chatCommand is laneway chat with the flags of serve that name the gateway's files.
func (c *serveCmd) chatCommand() string {
	command := "laneway chat"
	if c.Config != "" {
		command += " --config " + c.Config
	}
	if c.Data != nil {
		command += " --data " + *c.Data
	}
	return command
}

const maxBanner = 10

// bannerJSON prints the banner as one JSON log record.
func (env *environment) bannerJSON(loaded *config.Loaded, plan *config.Plan, addresses []string) {
	cfg := loaded.Config
	slog.New(slog.NewJSONHandler(env.stdout, nil)).Info("laneway is running", "version", env.version.Version, "listen", addresses,
		"configuration", loaded.File, "store", storeName(cfg), "agent", agentName(cfg), "notes", loaded.Notes, "token_file", plan.TokenFile, "dashboard", cfg.Dashboard)
}

func storeName(cfg config.Config) string {
	if !cfg.Database.IsSet() {
		return "SQLite in " + cfg.Data
	}
	return cfg.Database.String()
}

func agentName(cfg config.Config) string {
	agent := cfg.Agents[cfg.DefaultAgent]
	switch {
	case agent.Preset != "":
		return agent.Preset
	case agent.Model != "":
		return agent.Runner + ", model " + agent.Model + " at " + agent.BaseURL
	case len(agent.Command) > 0:
		return agent.Runner + ", " + agent.Command[0]
	case agent.URL != "":
		return agent.Runner + ", " + agent.URL
	default:
		return agent.Runner + ", a demo that repeats what you type"
	}
}

// ownGateway is the service of this program.
type ownGateway struct{ o Options }

// Serve runs the process that package app wires.
func (g ownGateway) Serve(ctx context.Context, in serveInput) error {
	var reaper *process.Reaper
	if g.o.Adopt {
		var err error
		if reaper, err = process.NewReaper(in.Logger); err != nil {
			in.Logger.WarnContext(ctx, "programs of agents that leave their process group outlive their turn; run the gateway in a container to bound them", "err", err)
		}
	}
	return app.Run(ctx, app.Options{
		Loaded: in.Loaded, Hold: in.Hold, Credentials: in.Credentials, Version: in.Version.Version, Commit: in.Version.Commit, Log: in.Logger, Ready: in.Ready,
		LookupEnv: g.o.LookupEnv, Environ: g.o.Environ(), Hurry: in.Signals.Now, Reload: in.Signals.Reload, Restart: in.Signals.Restart, Reread: in.Reread,
		RereadCredentials: in.RereadCredentials, Program: g.o.Program, Reaper: reaper,
	})
}

type schema struct{}

// Migrate changes the schema of the configured store.
func (schema) Migrate(ctx context.Context, cfg config.Config, action string, force bool) ([]migration, error) {
	steps, err := app.Migrate(ctx, cfg, action, force)
	if err != nil {
		return nil, err
	}
	list := make([]migration, 0, len(steps))
	for _, s := range steps {
		m := migration{Version: s.Version, Name: s.Name, Applied: s.Applied}
		if !s.AppliedAt.IsZero() {
			m.AppliedAtMs = s.AppliedAt.UnixMilli()
		}
		list = append(list, m)
	}
	return list, nil
}

// migrator changes the schema of the configured database.
type migrator interface {
	// Migrate executes action (up, down by one step, status) and returns the resulting state of
	// every migration, oldest first. Down returns a *app.LiveNodesError while gateways use the
	// database, unless force is set.
	Migrate(ctx context.Context, cfg config.Config, action string, force bool) ([]migration, error)
}

// migration is one step of the schema.
type migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
	// AppliedAtMs is 0 when it is not applied.
	AppliedAtMs int64 `json:"appliedAtMs,omitempty"`
}

type migrateCmd struct {
	Up     migrateUp     `cmd:"" help:"Apply all missing migrations."`
	Down   migrateDown   `cmd:"" help:"Undo the newest migration, before you install an older version."`
	Status migrateStatus `cmd:"" help:"List migrations, and which are applied."`
}

type migrateFlags struct {
	configFlags
	JSON bool `help:"Print JSON."`
}

type (
	migrateUp   struct{ migrateFlags }
	migrateDown struct {
		migrateFlags
		Force bool `help:"Undo it although gateways use the database; messages fail until you stop them."`
		Yes   bool `help:"With --force: don't ask. Required without a terminal."`
	}
	migrateStatus struct{ migrateFlags }
)

// Run applies missing migrations.
func (c *migrateUp) Run(ctx context.Context, env *environment) error {
	return c.run(ctx, env, "up", false)
}

// Run takes one step back. While gateways run, it asks first.
func (c *migrateDown) Run(ctx context.Context, env *environment) error {
	if c.Force && !c.Yes && env.terminal == nil {
		return usageError("--force asks a question, and this is not a terminal; add --yes")
	}
	err := c.run(ctx, env, "down", false)
	var live *app.LiveNodesError
	if !errors.As(err, &live) {
		return err
	}
	if !c.Force {
		return fmt.Errorf("%w; nothing was changed (--force takes the step nevertheless)", err)
	}
	if !c.Yes {
		if err := env.confirm(live.Error()+". Take the step back nevertheless?", "nothing was changed"); err != nil {
			return err
		}
	}
	return c.run(ctx, env, "down", true)
}

// Run shows the steps.
func (c *migrateStatus) Run(ctx context.Context, env *environment) error {
	return c.run(ctx, env, "status", false)
}

func (c *migrateFlags) run(ctx context.Context, env *environment, action string, force bool) error {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	if action != "status" { // which changes nothing
		if err := config.PreflightStore(loaded); err != nil {
			return err
		}
	}
	steps, err := env.migrate.Migrate(ctx, loaded.Config, action, force)
	if err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"migrations": steps})
	}
	rows := [][]string{{"VERSION", "NAME", "STATE"}}
	for _, s := range steps {
		state := "missing"
		if s.Applied {
			state = "applied " + ago(env.now(), s.AppliedAtMs)
		}
		rows = append(rows, []string{strconv.FormatInt(s.Version, 10), s.Name, state})
	}
	return env.table(rows)
}
