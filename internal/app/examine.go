package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/channel/telegram"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/cron/schedule"
	"laneway/internal/ownership"
	"laneway/internal/secret"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
	"laneway/internal/tool/external"
)

// Weight is the severity of a finding.
type Weight string

// The weights.
const (
	Fine    Weight = "ok"
	Warning Weight = "warning"
	Failure Weight = "failure"
)

// Finding is one sentence about one subject, with what to do about it if anything.
type Finding struct {
	Weight     Weight
	Text, Cure string
}

const (
	rowsPerRule   = 20
	clockWarning  = 2 * time.Second // from this difference on, certificates, signatures and logs disagree
	textsRead     = 1_000_000       // rows that are searched for secrets
	shortSecret   = 6               // characters; a shorter secret would match too often
	ruleMargin    = 5 * time.Second
	drainMargin   = 2 * time.Second
	forgottenDead = 24 * time.Hour
	rollbackShown = 7 * 24 * time.Hour
)

// ExamineStore checks whether the configured database can be used: that it answers, that its schema
// fits this program, its clock, the permissions of its role, the invariants of its tables, and that
// they contain none of the secrets, and that it takes a message, which is rolled back. It changes
// nothing and may run beside a gateway.
func ExamineStore(ctx context.Context, cfg config.Config, secrets []secret.Secret, clock func() time.Time) []Finding {
	s, err := openCommandStore(ctx, cfg)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Finding{{Weight: Fine, Text: "there is no database yet; laneway serve creates it"}}
	case errors.Is(err, sqlite.ErrOldSchema):
		return []Finding{{Failure, "the schema is older than this program", "run: laneway migrate up"}}
	case errors.Is(err, store.ErrSchema), errors.Is(err, ErrUnreleased), errors.Is(err, chat.ErrStoreUnavailable): // the error says what to do
		return []Finding{{Failure, err.Error(), ""}}
	case err != nil:
		return []Finding{{Failure, err.Error(), "check the address of the database and whether it runs"}}
	}
	found := []Finding{{Weight: Fine, Text: s.Kind() + " answers, and its schema matches this program"}}
	if err := s.Rehearse(ctx); err != nil {
		found = append(found, Finding{Failure, "the database takes no message: " + err.Error(), ""})
	}
	found = append(found, examineRole(ctx, s)...)
	switch h, err := s.Hold(ctx); {
	case err != nil:
		found = append(found, Finding{Failure, "the hold cannot be read: " + err.Error(), ""})
	case h != nil:
		found = append(found, Finding{Warning, "the gateway is " + h.Sentence(), "run: laneway release"})
	}
	now, err := s.Now(ctx)
	if err != nil {
		found = append(found, Finding{Failure, "the clock of the database cannot be read: " + err.Error(), ""})
	} else {
		found = append(found, examineClock(now, clock()), examineZones())
		found = append(found, examineRules(ctx, s, ruleValues(cfg, now))...)
		found = append(found, examineSecrets(ctx, s, secrets))
		found = append(found, examineRollbacks(ctx, s, now)...)
		found = append(found, examineAgentless(ctx, s, ruleValues(cfg, now))...)
	}
	if err := s.Close(); err != nil {
		found = append(found, Finding{Warning, err.Error(), ""})
	}
	return found
}

// examineZones names the release of the time zone rules: those of ZONEINFO may be older than those
// of the program.
func examineZones() Finding {
	release, embedded := schedule.ZoneRelease(), schedule.EmbeddedRelease()
	if err := schedule.CheckZones(); err != nil {
		return Finding{Failure, "the time zone rules cannot be read: " + err.Error(), "correct ZONEINFO, or unset it to use the rules of the program"}
	}
	switch {
	case release == schedule.UnknownRelease:
		return Finding{Warning, "the time zone rules that ZONEINFO names have no release", "add their file tzdata.zi, or unset ZONEINFO to use those of the program"}
	case release < embedded:
		return Finding{Warning, "the time zone rules that ZONEINFO names are those of " + release + ", and the program has those of " + embedded, "unset ZONEINFO, or name newer rules; replicas with the older ones fire jobs at other moments where a country has changed its clocks"}
	}
	return Finding{Weight: Fine, Text: "the time zone rules are those of " + release}
}

func examineClock(theirs, ours time.Time) Finding {
	apart := theirs.Sub(ours).Abs().Round(100 * time.Millisecond)
	if apart > clockWarning {
		return Finding{Warning, fmt.Sprintf("the clocks of the database and of this host are %s apart", apart), "set both by NTP; jobs follow the database's"}
	}
	return Finding{Weight: Fine, Text: "the clocks of the database and of this host agree"}
}

// ruleValues returns the parameters of the rules. It has no value for the secret that must not be
// found: that value would be written to the database's statement log.
func ruleValues(cfg config.Config, now time.Time) map[string]any {
	before := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	values := map[string]any{
		"now": before(0), "gone": before(time.Duration(cfg.Cluster.Lease) + ruleMargin),
		"drain": before(time.Duration(cfg.DrainTimeout) + drainMargin), "since": before(forgottenDead), "cap": int64(longestQueue(cfg)),
	}
	for lane, limit := range cfg.Lanes.Map() {
		values[lane] = int64(limit)
	}
	return values
}

// longestQueue is the largest limit of a session's queue for any agent on any channel.
func longestQueue(cfg config.Config) int {
	longest := cfg.Queue.Cap
	for id := range cfg.Agents {
		for _, channel := range []string{"", "web", "telegram"} {
			longest = max(longest, cfg.QueueFor(id, channel).Cap)
		}
	}
	return longest
}

func examineRules(ctx context.Context, look store.Admin, values map[string]any) []Finding {
	var found []Finding
	checked, skipped := 0, 0
	for _, rule := range store.Invariants() {
		if slices.ContainsFunc(rule.Params, func(name string) bool { return values[name] == nil }) {
			skipped++
			continue
		}
		checked++
		rows, err := look.Violations(ctx, rule, values, rowsPerRule)
		switch {
		case err != nil:
			found = append(found, Finding{Failure, fmt.Sprintf("rule %s could not be checked: %v", rule.ID, err), ""})
		case len(rows) > 0:
			found = append(found, broken(rule, rows))
		}
	}
	if len(found) > 0 {
		return found
	}
	return []Finding{{Weight: Fine, Text: fmt.Sprintf("%d consistency checks passed, %d need the running gateway", checked, skipped)}}
}

// examineSecrets searches the tables for the secrets of the configuration. It compares in this
// process, so no secret is sent to the database.
func examineSecrets(ctx context.Context, look store.Admin, secrets []secret.Secret) Finding {
	rule := store.RevealingTexts()
	rows, err := look.Violations(ctx, rule, nil, textsRead)
	if err != nil {
		return Finding{Failure, fmt.Sprintf("rule %s could not be checked: %v", rule.ID, err), ""}
	}
	var places []string
	for _, row := range rows {
		if holdsSecret(row[len(row)-1], secrets) {
			places = append(places, row[0]+" "+row[1])
		}
	}
	if len(places) > 0 {
		shown := places[:min(len(places), rowsPerRule)]
		return Finding{
			Failure, fmt.Sprintf("rule %s is broken in %s: %s (%s)", rule.ID, count(len(places)), rule.Rule, strings.Join(shown, "; ")),
			"change the secret, then remove these texts",
		}
	}
	return Finding{Weight: Fine, Text: fmt.Sprintf("no stored error or address contains a secret (checked: %d)", len(secrets))}
}

// examineAgentless reports work that waits for an agent that no running gateway has.
func examineAgentless(ctx context.Context, look store.Admin, values map[string]any) []Finding {
	rows, err := look.Violations(ctx, store.Agentless(), values, rowsPerRule)
	if err != nil {
		return []Finding{{Failure, fmt.Sprintf("whether work waits for an agent that is missing could not be read: %v", err), ""}}
	}
	var found []Finding
	for _, row := range rows {
		messages, errMessages := strconv.Atoi(row[2])
		jobs, errJobs := strconv.Atoi(row[3])
		if err := errors.Join(errMessages, errJobs); err != nil {
			return []Finding{{Failure, fmt.Sprintf("whether work waits for an agent that is missing could not be read: %v", err), ""}}
		}
		found = append(found, Finding{Warning, store.Unowned{Messages: messages, Jobs: jobs}.Sentence(row[1]), store.UnownedCure})
	}
	return found
}

// examineRollbacks reports whether the database was found to have lost commits.
func examineRollbacks(ctx context.Context, look store.Admin, now time.Time) []Finding {
	rows, err := look.Violations(ctx, store.Rollbacks(), map[string]any{"since": now.Add(-rollbackShown).UnixMilli()}, rowsPerRule)
	if err != nil {
		return []Finding{{Failure, fmt.Sprintf("whether the database lost commits could not be read: %v", err), ""}}
	}
	var found []Finding
	for _, row := range rows {
		at, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			return []Finding{{Failure, fmt.Sprintf("whether the database lost commits could not be read: %v", err), ""}}
		}
		text := "the database lost commits before " + time.UnixMilli(at).UTC().Format(time.DateTime) + " UTC"
		if row[2] == string(ownership.SignHistory) {
			text += fmt.Sprintf(" (from %s to %s)", row[3], row[4])
		}
		found = append(found, Finding{
			Warning, text + "; messages acknowledged shortly before may be missing", "ask for them again; with synchronous replication a failover loses nothing",
		})
	}
	return found
}

func holdsSecret(text string, secrets []secret.Secret) bool {
	return slices.ContainsFunc(secrets, func(s secret.Secret) bool {
		return len(s.Reveal()) >= shortSecret && strings.Contains(text, s.Reveal())
	})
}

// broken reports the violations of a rule. Rows that a dead process left are not violations: the
// next gateway takes them over.
func broken(rule store.Invariant, rows [][]string) Finding {
	places := make([]string, 0, len(rows))
	for _, row := range rows {
		places = append(places, strings.Join(row[min(1, len(row)):], " "))
	}
	f := Finding{Weight: Failure, Text: fmt.Sprintf("rule %s is broken in %s: %s (%s)", rule.ID, count(len(rows)), rule.Rule, strings.Join(places, "; "))}
	if slices.Contains([]string{"I5.stranded", "I7.left", "I7.drain", "I10.nodes"}, rule.ID) {
		f.Weight, f.Cure = Warning, "start a gateway that has the agents of these; it takes over what a dead one left"
		return f
	}
	f.Cure = "keep a copy of the database and report this with the log of the gateway"
	return f
}

func count(n int) string {
	switch {
	case n == 1:
		return "1 place"
	case n >= rowsPerRule:
		return fmt.Sprintf("%d places or more", n)
	default:
		return fmt.Sprintf("%d places", n)
	}
}

// examineRole checks whether the role of the database has the permissions of a gateway, and whether
// it could rewrite the audit log. SQLite has no roles.
func examineRole(ctx context.Context, s store.Admin) []Finding {
	db, ok := s.(*postgres.Store)
	if !ok {
		return nil
	}
	r, err := db.Rights(ctx)
	if err != nil {
		return []Finding{{Failure, "the rights of the database role cannot be read: " + err.Error(), ""}}
	}
	found := roleFindings(r)
	l, err := db.ConnLimit(ctx)
	if err != nil {
		return append(found, Finding{Failure, "the limit of connections of the database role cannot be read: " + err.Error(), ""})
	}
	if l.Limit > 0 && l.Limit < l.Wanted {
		found = append(found, Finding{Warning, l.Sentence(l.Wanted), "see docs/postgres-and-replicas.md"})
	}
	return found
}

// roleFindings compares the permissions with those that a gateway needs. A missing one breaks a
// function; an extra one lets an attacker hide changes.
func roleFindings(r postgres.Rights) []Finding {
	const cure = "give the gateway a role of its own; see docs/postgres-and-replicas.md"
	var found []Finding
	if len(r.Lacks) > 0 {
		found = append(found, Finding{
			Failure, "the database role " + r.Role + " lacks " + strings.Join(r.Lacks[:min(len(r.Lacks), rowsPerRule)], ", "),
			"grant it with the role that owns the tables; see docs/postgres-and-replicas.md",
		})
	}
	switch {
	case r.Superuser:
		return append(found, Finding{Warning, "the database role " + r.Role + " is a superuser", cure})
	case r.OwnsLog:
		return append(found, Finding{Warning, "the database role " + r.Role + " owns audit_log and can rewrite it", cure})
	case r.ChangesLog:
		return append(found, Finding{Warning, "the database role " + r.Role + " may change and remove rows of audit_log", "run: REVOKE UPDATE, DELETE, TRUNCATE ON audit_log FROM " + r.Role})
	case len(found) > 0:
		return found
	default:
		return []Finding{{Weight: Fine, Text: "the database role " + r.Role + " may add to audit_log and change nothing in it"}}
	}
}

// ExamineChannels checks whether the configured bots can work: that Telegram accepts their tokens,
// and that it delivers to the configured address. It changes nothing and may run beside a gateway.
func ExamineChannels(ctx context.Context, cfg config.Config) []Finding {
	var found []Finding
	for _, bot := range cfg.Channels.Telegram.Bots() {
		s, err := telegram.Examine(ctx, telegram.Config{Token: bot.Token.Reveal(), APIURL: bot.APIURL}, telegram.Deps{Proxy: proxyOf})
		f := examineBot(bot, s)
		switch {
		case errors.Is(err, telegram.ErrToken):
			f = Finding{Failure, "Telegram refuses the token of this bot", "get the token from @BotFather and put it in"}
		case err != nil:
			f = Finding{Warning, "Telegram cannot be asked: " + err.Error(), "check the network, and api_url if it is set"}
		}
		f.Text = "telegram " + bot.Account + ": " + f.Text
		found = append(found, f)
	}
	return found
}

func examineBot(bot config.Telegram, s telegram.Standing) Finding {
	name := "@" + s.Name
	switch {
	case bot.Mode != "webhook":
		return Finding{Weight: Fine, Text: name + " is known to Telegram and polled"}
	case bot.APIURL == telegram.DefaultAPIURL && !strings.HasPrefix(bot.WebhookURL, "https://"):
		return Finding{Failure, "Telegram delivers over https only, and webhook_url is not", "put a TLS proxy in front and give its address in webhook_url"}
	case s.Webhook == "":
		return Finding{Warning, name + " has no webhook yet", "start the gateway, which sets it"}
	case s.Webhook != bot.WebhookURL:
		return Finding{Warning, "Telegram delivers for " + name + " to another address than webhook_url", "restart the gateway, which sets it; see that no other program uses this bot"}
	case s.Problem != "":
		return Finding{Warning, "Telegram could not deliver for " + name + ": " + s.Problem, "see that webhook_url leads to the gateway from outside"}
	default:
		return Finding{Weight: Fine, Text: "Telegram delivers for " + name + " to webhook_url"}
	}
}

// ExamineServers checks whether the configured MCP servers can be used: that agents name them, that
// programs exist, and their states in the running gateway. states is nil when there is no gateway
// or it has no servers. It starts no program and sends nothing to an address.
func ExamineServers(cfg config.Config, states []chat.ToolServer, lookup func(string) (string, bool)) []Finding {
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(cfg.MCP.Servers)) {
		f := examineServer(cfg, name, states, lookup)
		f.Text = "MCP server " + name + ": " + f.Text
		found = append(found, f)
	}
	return found
}

func examineServer(cfg config.Config, name string, states []chat.ToolServer, lookup func(string) (string, bool)) Finding {
	s := cfg.MCP.Servers[name]
	if !usedServer(cfg, name) {
		return Finding{Warning, "no agent has it, so it is not connected", "name it in agents.ID.mcp, or remove it"}
	}
	at := slices.IndexFunc(states, func(state chat.ToolServer) bool { return state.Name == name })
	switch {
	case at >= 0:
		return examineState(states[at])
	case states != nil:
		return Finding{Warning, "the running gateway does not have it", "restart the gateway, or give doctor the configuration that it runs with"}
	case s.URL != "":
		return Finding{Weight: Fine, Text: "not checked: no gateway answers"}
	default:
		return examineProgram(s.Command[0], lookup)
	}
}

func examineState(state chat.ToolServer) Finding {
	why := ""
	if state.LastError != "" {
		why = ": " + state.LastError
	}
	switch state.State {
	case external.StateConnecting:
		return Finding{Warning, "it is being connected" + why, "look again in a moment"}
	case external.StateFailed:
		return Finding{Warning, "it is not connected" + why, "see the log of the gateway; agents work without its tools"}
	case external.StateSuspended:
		return Finding{Warning, "it has failed several times and receives no calls for a while", "see the log of the gateway"}
	}
	if len(state.LeftOut) > 0 {
		out := make([]string, 0, len(state.LeftOut))
		for _, one := range state.LeftOut {
			out = append(out, one.Name+" ("+one.Why+")")
		}
		return Finding{Warning, "it is connected; agents do not have " + strings.Join(out, ", "), "fix the list mcp.servers." + state.Name + ".tools, or the server"}
	}
	return Finding{Weight: Fine, Text: fmt.Sprintf("it is connected, with %d tools", len(state.Tools))}
}

// usedServer reports whether an agent names a server.
func usedServer(cfg config.Config, name string) bool {
	for _, a := range cfg.Agents {
		if slices.Contains(a.MCP, name) {
			return true
		}
	}
	return false
}
