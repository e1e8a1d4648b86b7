package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"laneway/internal/app"
	"laneway/internal/retry"
	"laneway/internal/wire"
)

type statusCmd struct {
	clientFlags
	Watch bool          `help:"Refresh until Ctrl-C." xor:"how"`
	Every time.Duration `help:"With --watch: how often to refresh." default:"2s"`
	JSON  bool          `help:"Print JSON." xor:"how"`
}

// Run reads status, lanes, channels and health over one connection.
func (c *statusCmd) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	if !c.Watch {
		return c.once(ctx, env, conn)
	}
	if c.Every < 100*time.Millisecond {
		return usageError("--every must be 100ms or more")
	}
	for first := true; first || retry.Sleep(ctx, c.Every) == nil; first = false { // until the user ends it
		switch {
		case env.toTerminal:
			if _, err := io.WriteString(env.stdout, clearScreen); err != nil {
				return err
			}
		case !first:
			if err := env.printLine(); err != nil {
				return err
			}
		}
		if err := c.once(ctx, env, conn); err != nil {
			return err
		}
	}
	return nil
}

// statusRuns is how many runs are shown.
const statusRuns = 20

// clearScreen moves to the first line of a terminal and clears it.
const clearScreen = "\x1b[H\x1b[2J"

// once reads and prints the status.
func (c *statusCmd) once(ctx context.Context, env *environment, conn gatewayConn) error {
	raw := map[string]json.RawMessage{}
	calls := []struct {
		name, method string
		params       map[string]any
	}{
		{"status", "status", map[string]any{}}, // first: it takes the picture that health returns
		{"health", "health", map[string]any{"extended": true}},
		{"lanes", "lanes.status", map[string]any{}},
		{"channels", "channels.status", map[string]any{}},
		{"needs", "needs.list", map[string]any{}},
		{"runs", "runs.list", map[string]any{"limit": statusRuns}},
	}
	for _, one := range calls {
		var reply json.RawMessage
		if one.name == "runs" && !storeAnswers(raw["health"]) {
			raw[one.name] = json.RawMessage(`{"ts":0,"runs":[]}`) // the needs name the fault
			continue
		}
		err := conn.Call(ctx, one.method, one.params, &reply)
		if err != nil {
			return err
		}
		raw[one.name] = reply
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	return c.print(env, raw)
}

// storeAnswers reports whether health shows that the store answers.
func storeAnswers(health json.RawMessage) bool {
	h := wire.HealthResult{HealthExtra: &wire.HealthExtra{}}
	return json.Unmarshal(health, &h) == nil && h.Database.OK
}

func (c *statusCmd) print(env *environment, raw map[string]json.RawMessage) error {
	var status wire.StatusResult
	var lanes wire.LanesStatusResult
	health := wire.HealthResult{HealthExtra: &wire.HealthExtra{}} // a gateway without the extended view leaves it empty
	var channels wire.ChannelsStatusResult
	var needs wire.NeedsListResult
	var runs wire.RunsListResult
	for name, target := range map[string]any{"status": &status, "lanes": &lanes, "channels": &channels, "health": &health, "needs": &needs, "runs": &runs} {
		if err := json.Unmarshal(raw[name], target); err != nil {
			return fmt.Errorf("the gateway's %s cannot be read; are both of the same version? %w", name, err)
		}
	}
	if err := env.table(overview(env.now(), status, health, pressing(needs))); err != nil {
		return err
	}
	for _, rows := range [][][]string{needRows(env.now(), needs), laneRows(lanes), runRows(env, runs.Runs), programRows(status), channelRows(channels), nodeRows(status)} {
		if len(rows) < 2 {
			continue
		}
		if err := env.printLine(); err != nil {
			return err
		}
		if err := env.table(rows); err != nil {
			return err
		}
	}
	return nil
}

// pressing counts the needs other than hints, which are next steps.
func pressing(needs wire.NeedsListResult) (n int) {
	for _, need := range needs.Needs {
		if need.Level != "hint" {
			n++
		}
	}
	return n
}

func overview(now time.Time, s wire.StatusResult, h wire.HealthResult, needs int) [][]string {
	state := "healthy"
	switch {
	case s.Draining:
		state = "draining"
	case !s.OK:
		state = "not healthy"
	}
	switch {
	case needs == 1:
		state += ", 1 needs you"
	case needs > 1:
		state += fmt.Sprintf(", %d need you", needs)
	}
	return [][]string{
		{"gateway", fmt.Sprintf("%s, %s, version %s, up %s", cell(s.NodeID, 40), state, cell(s.Version, 20), short(time.Duration(s.UptimeMs)*time.Millisecond))},
		{"sessions", fmt.Sprintf("%s known, %d running, %d waiting", counted(s.Sessions.Known, s.Sessions.KnownIsLowerBound), s.Sessions.Running, s.Sessions.Waiting)},
		{"cron", cronLine(now, s)},
		{"database", databaseLine(h)},
		{"clients", strconv.Itoa(s.Clients)},
	}
}

// needRows returns a line for each condition that needs a person, and what to do.
func needRows(now time.Time, n wire.NeedsListResult) [][]string {
	heading := "NEEDS YOU"
	if pressing(n) == 0 {
		heading = "HINT"
	}
	rows := [][]string{{heading, "SINCE", "WHAT", "NEXT"}}
	for i := range n.Needs {
		need := &n.Needs[i]
		rows = append(rows, []string{need.Level, ago(now, need.SinceMs), cell(need.Text, 200), cell(strings.TrimSpace(need.Next+" "+need.Command), 200)})
	}
	return rows
}

func cronLine(now time.Time, s wire.StatusResult) string {
	line := fmt.Sprintf("%s, %d running, backlog %d", count(s.Cron.Jobs, "job"), s.Cron.Running, s.Cron.Backlog)
	if !s.Cron.Enabled {
		line += ", switched off"
	}
	if s.Cron.OldestDueMs != nil {
		line += ", oldest due for " + short(time.Duration(*s.Cron.OldestDueMs)*time.Millisecond)
	}
	if s.Cron.NextWakeAtMs != nil {
		line += ", next in " + short(time.UnixMilli(*s.Cron.NextWakeAtMs).Sub(now))
	}
	return line
}

func databaseLine(h wire.HealthResult) string {
	name := cell(h.Sessions.Path, 20)
	if !h.Database.OK {
		return name + ", does not answer"
	}
	return fmt.Sprintf("%s, answers in %d ms", name, h.Database.LatencyMs)
}

func laneRows(l wire.LanesStatusResult) [][]string {
	rows := [][]string{{"LANE", "RUNNING", "YIELDED", "LIMIT", "WAITING", "OLDEST", "STARTED", "FAILED"}}
	for _, lane := range l.Lanes {
		rows = append(rows, []string{
			cell(lane.Name, 20), strconv.Itoa(lane.Active), strconv.Itoa(lane.Yielded), strconv.Itoa(lane.Capacity), strconv.Itoa(lane.Waiting),
			short(time.Duration(lane.OldestWaitMs) * time.Millisecond), strconv.FormatInt(lane.Started, 10), strconv.FormatInt(lane.Failed, 10),
		})
	}
	return rows
}

// programRows returns a line for each agent that keeps processes.
func programRows(s wire.StatusResult) [][]string {
	rows := [][]string{{"AGENT", "PROCESSES", "LIMIT", "MEMORY", "EVICTED"}}
	for _, p := range s.Programs {
		memory := "-"
		if p.Memory > 0 {
			memory = size(p.Memory)
		}
		rows = append(rows, []string{cell(p.Agent, 30), strconv.Itoa(p.Processes), strconv.Itoa(p.Limit), memory, strconv.FormatInt(p.Evicted, 10)})
	}
	return rows
}

// idle reports whether an account has nothing to send, gave nothing up and has no error.
func idle(a wire.ChannelAccount) bool {
	return a.OutboxWaiting == 0 && a.OutboxFailed == 0 && a.LastError == nil
}

// channelRows returns a line for each account of a network. The gateway's own sockets are counted
// as clients. Its webhooks have a line only when a message waits or failed, because every gateway
// has them.
func channelRows(c wire.ChannelsStatusResult) [][]string {
	rows := [][]string{{"CHANNEL", "ACCOUNT", "STATE", "LAST POLL", "TO SEND", "GIVEN UP", "LAST ERROR"}}
	for _, name := range c.Order {
		if name == "web" {
			continue
		}
		for _, account := range c.Accounts[name] {
			if !account.Configured || name == "webhook" && idle(account) {
				continue
			}
			polled, last := "-", "-"
			if account.LastPollAgeMs != nil {
				polled = short(time.Duration(*account.LastPollAgeMs)*time.Millisecond) + " ago"
			}
			if account.LastError != nil {
				last = cell(*account.LastError, 80)
			}
			rows = append(rows, []string{
				cell(name, 30), cell(account.AccountID, 30), accountState(account), polled, strconv.Itoa(account.OutboxWaiting), strconv.Itoa(account.OutboxFailed), last,
			})
		}
	}
	return rows
}

// accountState returns the gateway's word for the state of an account, or a description.
func accountState(a wire.ChannelAccount) string {
	switch {
	case a.State != "":
		return cell(a.State, 20)
	case a.Connected:
		return "connected"
	case a.Running:
		return "not connected"
	}
	return "not running"
}

func nodeRows(s wire.StatusResult) [][]string {
	rows := [][]string{{"REPLICA", "VERSION", "LEASE", "STATE"}}
	for _, node := range s.Nodes {
		state := "serving"
		if node.Draining {
			state = "draining"
		}
		rows = append(rows, []string{cell(node.Name, 40), cell(node.Version, 20), short(time.Duration(node.LeaseMs) * time.Millisecond), state})
	}
	return rows
}

type healthCmd struct {
	URL     string        `help:"Address of the gateway; default LANEWAY_URL, else from the configuration." placeholder:"URL"`
	Config  string        `help:"Configuration file of the gateway on this host; default as for laneway serve." placeholder:"FILE" type:"path"`
	Ready   bool          `help:"Check that it can take work, database included, instead of only that it is alive."`
	Timeout time.Duration `help:"How long to wait for the answer." default:"3s"`
	JSON    bool          `help:"Print the answer as JSON."`
}

// Run requests /healthz or /readyz.
func (c *healthCmd) Run(ctx context.Context, env *environment) error {
	if c.Timeout <= 0 {
		return usageError("--timeout must be longer than 0")
	}
	addresses, err := clientFlags{URL: oneURL(c.URL), Config: c.Config}.addresses(env)
	if err != nil {
		return err
	}
	base := addresses[0]
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	body, status, err := probe(ctx, base, c.path())
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(env.stdout, json.RawMessage(body)); err != nil {
			return err
		}
	}
	switch {
	case status == http.StatusOK && c.JSON:
		return nil
	case status == http.StatusOK:
		return env.printLine("ok")
	case c.JSON:
		return errQuiet
	default:
		return fmt.Errorf("the gateway is not well: %s", oneLine(string(body)))
	}
}

func (c *healthCmd) path() string {
	if c.Ready {
		return "/readyz"
	}
	return "/healthz"
}

// maxProbe limits the response in bytes: the server may not be a gateway.
const maxProbe = 64 << 10

// probe requests a path of the gateway that needs no credential. Its error is a sentence without
// the address of a proxy or a resolver.
func probe(ctx context.Context, base, path string) (body []byte, status int, err error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, 0, usageError("the address of the gateway cannot be read")
	}
	u.Scheme = map[string]string{"ws": "http", "wss": "https"}[u.Scheme]
	u.Path = path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, 0, usageError("the address of the gateway cannot be read")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return nil, 0, unreachable(u.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxProbe))
	if err != nil {
		return nil, 0, unreachable(u.Host, err)
	}
	if !json.Valid(body) {
		return nil, 0, fmt.Errorf("what listens on %s is not a laneway gateway", u.Host)
	}
	return body, response.StatusCode, nil
}

func unreachable(host string, err error) error {
	var network net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no program listens on %s; start a gateway with laneway serve, or name another with --url", host)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("the gateway on %s did not answer in time", host)
	default:
		return fmt.Errorf("the gateway on %s cannot be reached: %w", host, rootCause(err))
	}
}

// rootCause returns the innermost error: the outer ones of net/http repeat the address.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

type holdCmd struct {
	configFlags
	Reason string `help:"The reason, which laneway status shows." placeholder:"TEXT"`
}

type releaseCmd struct {
	configFlags
	Yes bool `help:"Don't ask."`
}

// Run holds the gateway.
func (c *holdCmd) Run(ctx context.Context, env *environment) error {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	if err := app.SetHold(ctx, loaded.Config, c.Reason, here()); err != nil {
		return fmt.Errorf("holding the gateway: %w", err)
	}
	return env.printLine("the gateway is held; release it with: laneway release")
}

// Run shows the waiting work, asks, and releases the gateway.
func (c *releaseCmd) Run(ctx context.Context, env *environment) error {
	if !c.Yes && env.terminal == nil {
		return usageError("laneway release asks a question, and this is not a terminal; add --yes")
	}
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	waits, err := app.WhatIsHeld(ctx, loaded.Config)
	if err != nil {
		return fmt.Errorf("reading what is held: %w", err)
	}
	if waits.Hold == nil {
		return env.printLine("the gateway is not held")
	}
	if err := env.printLine("with the release " + waits.Sentence()); err != nil {
		return err
	}
	if !c.Yes {
		if err := env.confirm("Release the gateway?", "nothing was changed"); err != nil {
			return err
		}
	}
	if err := app.ReleaseHold(ctx, loaded.Config, here()); err != nil {
		return fmt.Errorf("releasing the gateway: %w", err)
	}
	return env.printLine("the gateway is released")
}
