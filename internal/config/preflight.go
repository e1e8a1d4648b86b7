package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"laneway/internal/secret"
)

// Plan describes a start that is allowed.
type Plan struct {
	// Warnings are sentences for the operator that do not prevent the start.
	Warnings []string
	// TokenFile is the token file of the data directory when the token comes from it, otherwise "".
	TokenFile string
	// CreatesToken is true when TokenFile does not exist yet.
	CreatesToken bool

	cfg        Config
	token      secret.Secret
	secretFile map[string]string            // as in [Loaded]
	as         identity                     // as in [Loaded]
	creds      *atomic.Pointer[Credentials] // the current credentials; written by Prepare and Reread
	otherData  string                       // how to get another data directory
}

// Credentials are the secrets that callers may present. A missing one is not set; at least Token or
// Password is set.
type Credentials struct {
	Token, Password, WriteToken, ReadToken secret.Secret
}

// Preflight checks whether this configuration may start on this machine. It checks addresses,
// secrets and the modes of files, and changes nothing. The error is [FaultsError] with one complete
// sentence for each reason to refuse.
func Preflight(l *Loaded) (*Plan, error) {
	p := &preflight{loaded: l, cfg: l.Config, plan: &Plan{cfg: l.Config, secretFile: l.secretFile, as: l.as, creds: &atomic.Pointer[Credentials]{}, otherData: l.otherData()}}
	p.proxies()
	p.origins()
	if p.cfg.HasRole(RoleGateway) {
		p.credentials()
		p.listeners()
	}
	p.metrics()
	p.channels()
	p.hooks()
	p.agents()
	p.database()
	p.files()
	return p.plan, p.faults.err()
}

// PreflightStore checks whether a command, which is not a gateway, may change the configured store.
// The error is [FaultsError], or names the user who should run the command: files that root creates
// in the data directory of another user could not be opened by that user's gateway.
func PreflightStore(l *Loaded) error {
	p := &preflight{loaded: l, cfg: l.Config, plan: &Plan{}}
	p.database()
	if l.Config.Database.IsPostgres() {
		return p.faults.err()
	}
	p.dataDirectory()
	if err := p.faults.err(); err != nil {
		return err
	}
	if l.as.uid != os.Geteuid() {
		name, _, _ := strings.Cut(userName(l.as.uid), " ")
		return fmt.Errorf("the data directory %s belongs to user %s; run the command as that user: runuser -u %s -- laneway …", l.Config.Data, userName(l.as.uid), name)
	}
	return nil
}

type preflight struct {
	loaded *Loaded
	cfg    Config
	plan   *Plan
	faults FaultsError
	own    bool // the token comes from the data directory
}

func (p *preflight) refuse(format string, args ...any) {
	p.faults = append(p.faults, Fault{Message: fmt.Sprintf(format, args...), Whole: true})
}

func (p *preflight) warn(format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, args...))
}

// label returns the name of a setting in sentences: the variable that set it, or the variable that
// could set it.
func (p *preflight) label(path string) string {
	if s := p.loaded.Source(path); s.Kind == SourceEnv {
		return s.Place
	}
	return Aliases(path)[0]
}

func (p *preflight) proxies() {
	var all []netip.Prefix
	trustsAll := false
	for _, entry := range p.cfg.TrustedProxies {
		prefix, err := parsePrefix(entry)
		switch {
		case err != nil:
			p.refuse("%s: %q is no address and no network", p.label("trusted_proxies"), entry)
		case prefix.Bits() == 0:
			p.refuse("%s %s trusts everybody", p.label("trusted_proxies"), entry)
			trustsAll = true
		default:
			all = append(all, prefix)
		}
	}
	if together := everyPublicAddress(all); together != nil && !trustsAll {
		p.refuse("%s %s trusts everybody: together they are every public address", p.label("trusted_proxies"), joined(together))
	}
}

// joined lists the first ten networks.
func joined(list []netip.Prefix) string {
	var texts []string
	for _, prefix := range list[:min(len(list), 10)] {
		texts = append(texts, prefix.String())
	}
	if len(list) > len(texts) {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ",")
}

func (p *preflight) origins() {
	for _, origin := range p.cfg.AllowedOrigins {
		if !exactOrigin(origin) {
			p.refuse("%s: %q is not an exact origin", p.label("allowed_origins"), origin)
		}
	}
}

// exactOrigin accepts the form that a browser sends: only scheme, host and port.
func exactOrigin(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || strings.Contains(s, "*") {
		return false
	}
	return (u.Scheme == "http" || u.Scheme == "https") && s == u.Scheme+"://"+u.Host
}

// credentials finds the token: given directly, in a file, or in the data directory. [Load] has
// already refused one that is blank or in a file that other users can read.
func (p *preflight) credentials() {
	p.plan.token = p.cfg.Token
	if p.cfg.TokenFile != "" && p.loaded.secretFile["token"] == "" && p.cfg.Token.IsSet() {
		p.warn("%s is set, so the token file %s is not read; unset one of them", p.label("token"), p.cfg.TokenFile)
	}
	if p.cfg.Token.IsSet() || p.cfg.Password.IsSet() {
		return
	}
	p.own = true
	p.plan.TokenFile = TokenPath(p.cfg.Data)
	if _, err := os.Lstat(p.plan.TokenFile); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		p.plan.CreatesToken = true
		return
	}
	token, err := readToken(p.plan.TokenFile, p.loaded.as)
	if faults, ok := errors.AsType[FaultsError](err); ok {
		p.faults = append(p.faults, faults...)
	}
	p.plan.token = token
}

func (p *preflight) listeners() {
	public := p.cfg.PublicListen()
	for _, c := range p.secrets() {
		switch {
		case !c.secret.IsSet() || Strong(c.secret):
		case public != "":
			p.refuse("the %s is too weak for %s; use 32 or more random characters", c.name, public)
		default:
			p.warn("%s is weak: good enough on loopback only", c.label)
		}
	}
	switch {
	case public == "":
	case !p.cfg.BehindTLSProxy:
		p.refuse("tokens would cross the network in clear; put a TLS proxy in front and set LANEWAY_BEHIND_TLS_PROXY=true")
	default:
		p.behindProxy()
	}
}

func (p *preflight) behindProxy() {
	if p.own {
		p.warn("this token is known to this data directory only; replicas need LANEWAY_TOKEN_FILE")
	}
	if len(p.cfg.TrustedProxies) == 0 {
		p.warn("forwarded addresses are ignored: LANEWAY_TRUSTED_PROXIES is empty")
	}
}

type namedSecret struct {
	name, label string
	secret      secret.Secret
}

func (p *preflight) secrets() []namedSecret {
	token := namedSecret{"token", p.label("token"), p.plan.token}
	if p.own {
		token.label = "token file " + p.plan.TokenFile
	}
	return []namedSecret{
		token,
		{"password", p.label("password"), p.cfg.Password},
		{"write token", p.label("write_token"), p.cfg.WriteToken},
		{"read token", p.label("read_token"), p.cfg.ReadToken},
	}
}

func (p *preflight) metrics() {
	switch p.cfg.MetricsListen {
	case "off", "main":
	default:
		if Public(p.cfg.MetricsListen) {
			p.refuse("metrics are served on loopback only; use the value main")
		}
	}
}

// botToken is what @BotFather gives: the id of the bot and a secret.
var botToken = regexp.MustCompile(`^[0-9]{1,19}:[A-Za-z0-9_-]{8,}$`)

func (p *preflight) channels() {
	tg := p.cfg.Channels.Telegram
	p.bot("channels.telegram", tg)
	for _, name := range sortedNames(tg.Accounts) {
		p.bot("channels.telegram.accounts."+name, tg.Accounts[name])
	}
}

func (p *preflight) bot(path string, tg Telegram) {
	if !tg.Enabled {
		return
	}
	if tg.Mode == "webhook" && utf8.RuneCountInString(tg.WebhookSecret.Reveal()) < minSecret {
		p.refuse("%s", needsSecret(path+".webhook_secret"))
	}
	if tg.Configured() && !botToken.MatchString(tg.Token.Reveal()) {
		from := path + ".token"
		switch source := p.loaded.sources[path+".token"]; {
		case p.loaded.secretFile[path+".token"] != "":
			from = fromBotFather + " " + source.Place
		case source.Kind == SourceEnv:
			from = "variable " + source.Place
		}
		p.refuse("%s: the bot token must look like 123456:ABC…; @BotFather shows it", from)
	}
	if tg.Configured() && tg.Access == "open" {
		p.warn("everybody may talk to this bot")
	}
}

func (p *preflight) hooks() {
	for _, name := range sortedNames(p.cfg.Hooks) {
		if utf8.RuneCountInString(p.cfg.Hooks[name].Secret.Reveal()) < minSecret {
			p.refuse("%s", needsSecret("hooks."+name+".secret"))
		}
	}
}

// agents refuses an HTTP agent that could not authenticate its caller.
func (p *preflight) agents() {
	for _, id := range sortedNames(p.cfg.Agents) {
		if a := p.cfg.Agents[id]; a.Runner == RunnerHTTP && utf8.RuneCountInString(a.Secret.Reveal()) < minSecret {
			p.refuse("%s", needsSecret("agents."+id+".secret"))
		}
	}
}

func (p *preflight) files() {
	p.dataDirectory()
	p.rootsFile()
	if !p.loaded.holdsSecrets() {
		return
	}
	// The group may read it: a service's file usually belongs to root and the service's group.
	if info, err := os.Stat(p.loaded.File); err == nil && modeOf(info)&0o027 != 0 {
		p.refuse("%s has mode %04o; run: chmod 600 %s", p.loaded.File, modeOf(info), p.loaded.File)
	}
}

// dataDirectory refuses a directory that other users can change: by its mode, or because they own
// it. A directory of root with the process's group is a mounted volume; its group may write.
func (p *preflight) dataDirectory() {
	info, err := os.Stat(p.cfg.Data)
	if err != nil {
		return
	}
	loose := os.FileMode(0o022)
	owner, group, known := ownerOf(info)
	volume := known && owner == 0 && p.loaded.as.inGroup(group)
	if volume {
		loose = 0o002
	}
	switch {
	case !info.IsDir():
		p.refuse("data directory %s is a file; name another with --data", p.cfg.Data)
	case modeOf(info)&loose != 0:
		p.refuse("%s has mode %04o; run: chmod 700 %s", p.cfg.Data, modeOf(info), p.cfg.Data)
	case known && owner != p.loaded.as.uid && !volume:
		p.refuse("data directory %s belongs to user %s, and this is user %s; start the gateway as its owner, or %s",
			p.cfg.Data, userName(owner), userName(p.loaded.as.uid), p.loaded.otherData())
	}
}

// holdsSecrets reports whether the configuration file itself contains a secret.
func (l *Loaded) holdsSecrets() bool {
	if l.File == "" {
		return false
	}
	inFile := filepath.Base(l.File) + ":"
	for _, s := range l.values() {
		if !s.secret {
			continue
		}
		for path, source := range l.sources { // each variable of an agent has its own source
			if (path == s.Path || strings.HasPrefix(path, s.Path+".")) && source.Kind == SourceFile && strings.HasPrefix(source.Place, inFile) {
				return true
			}
		}
	}
	return false
}

// Prepare is the first step that writes: the data directory (0700) and, if needed, the token file
// (0600, created exclusively). It returns the secrets that callers may present. It may be called
// again.
func (p *Plan) Prepare() (Credentials, error) {
	if err := os.MkdirAll(p.cfg.Data, 0o700); err != nil {
		return Credentials{}, refuse("data directory %s cannot be made: %s; %s", p.cfg.Data, cause(err), p.otherData)
	}
	creds := Credentials{Token: p.token, Password: p.cfg.Password, WriteToken: p.cfg.WriteToken, ReadToken: p.cfg.ReadToken}
	if p.CreatesToken {
		token, err := createToken(p.TokenFile)
		if errors.Is(err, fs.ErrExist) { // another process created it first
			token, err = readToken(p.TokenFile, p.as)
		}
		if err != nil {
			return Credentials{}, fmt.Errorf("making the token file %s: %w", p.TokenFile, err)
		}
		creds.Token = token
	}
	p.creds.Store(&creds)
	return creds, nil
}

// database requires a verified certificate when PostgreSQL is reached over a public network.
func (p *preflight) database() {
	if p.loaded.Source("database").Kind == SourceFlag && p.cfg.Database.HasPassword() {
		p.warn("arguments are visible to all users; use LANEWAY_DATABASE_URL or PGPASSFILE")
	}
	u, err := p.cfg.Database.parse()
	if err != nil {
		return
	}
	if by := p.serviceBy(u); by != "" {
		p.refuse("database: %s would take host and sslmode from a service file, which is not read here; name the host in the URL", by)
		return
	}
	if p.sslMode(u) == "verify-full" {
		return
	}
	for _, host := range p.databaseHosts(u) {
		switch hostReach(host) {
		case reachPublic:
			p.refuse("database: sslmode=verify-full is needed for %s", host)
		case reachPrivate:
			p.warn("database: the server %s is not verified; use sslmode=verify-full", host)
		case reachLocal:
		}
	}
}

// serviceBy returns the source of a connection service name, or "". Host and sslmode then come from
// the service file, which this package does not read.
func (p *preflight) serviceBy(u *url.URL) string {
	if service := u.Query().Get("service"); service != "" {
		return "service=" + service
	}
	if service, _ := p.loaded.env("PGSERVICE"); service != "" {
		return "PGSERVICE"
	}
	return ""
}

func (p *preflight) sslMode(u *url.URL) string {
	if mode := u.Query().Get("sslmode"); mode != "" {
		return mode
	}
	mode, _ := p.loaded.env("PGSSLMODE")
	return mode
}

// databaseHosts returns the hosts of the address. There may be several, separated by commas, in the
// query or in PGHOST.
func (p *preflight) databaseHosts(u *url.URL) []string {
	list := u.Host
	if query := u.Query().Get("host"); query != "" {
		list = query
	}
	if list == "" {
		list, _ = p.loaded.env("PGHOST")
	}
	var hosts []string
	for entry := range strings.SplitSeq(list, ",") {
		if host, _, err := net.SplitHostPort(entry); err == nil {
			entry = host
		}
		hosts = append(hosts, strings.Trim(entry, "[]"))
	}
	return hosts
}

// rootsFile refuses, for root, a configuration file that another user can change or replace: the
// file names the programs that the gateway starts, see ADR 0043. A gateway that does not run as
// root can grant only the permissions of its own user.
func (p *preflight) rootsFile() {
	if p.loaded.File == "" || p.loaded.as.uid != 0 {
		return
	}
	paths := []string{p.loaded.File}
	if target, err := filepath.EvalSymlinks(p.loaded.File); err == nil && target != filepath.Clean(p.loaded.File) {
		paths = append(paths, target) // the link can be replaced, and so can its target
	}
	for _, path := range paths {
		file, err := os.Lstat(path)
		if err != nil {
			continue // the file was read; if it is missing now, another check reports it
		}
		dir, err := os.Stat(filepath.Dir(path))
		if err != nil {
			continue
		}
		if why := changeable(path, ownershipOf(file), ownershipOf(dir)); why != "" {
			p.refuse("configuration file %s %s", path, why)
			return
		}
	}
}

// ownership is the ownership and mode of a file or directory, which decide who can change it.
type ownership struct {
	uid, gid int
	known    bool
	mode     fs.FileMode
}

func ownershipOf(info fs.FileInfo) ownership {
	uid, gid, known := ownerOf(info)
	return ownership{uid, gid, known, info.Mode()}
}

// loose reports whether the mode lets a user other than root write. The group root does not count.
func (h ownership) loose() bool {
	return h.mode.Perm()&0o002 != 0 || h.mode.Perm()&0o020 != 0 && h.gid != 0
}

// changeable describes how a user other than root can change or replace a file of root, and the
// fix; "" when none can. In a directory with the sticky bit, only the owner of a file and the owner
// of the directory can replace it.
func changeable(path string, file, dir ownership) string {
	at := filepath.Dir(path)
	switch {
	case !file.known || !dir.known:
		return ""
	case file.uid != 0:
		return fmt.Sprintf("belongs to user %s, who could choose what root runs; run: chown root %s, or start the gateway as that user", userName(file.uid), path)
	case file.mode&fs.ModeSymlink == 0 && file.loose(): // the mode of a link has no effect
		return fmt.Sprintf("has mode %04o, so others could choose what root runs; run: chmod go-w %s", file.mode.Perm(), path)
	case dir.uid != 0:
		return fmt.Sprintf("is in %s, which belongs to user %s, who could replace it; move it, or start the gateway as that user", at, userName(dir.uid))
	case dir.loose() && dir.mode&fs.ModeSticky == 0:
		return fmt.Sprintf("is in %s with mode %04o, so others could replace it; run: chmod go-w %s", at, dir.mode.Perm(), at)
	}
	return ""
}
