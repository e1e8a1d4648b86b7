package config

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"laneway/internal/secret"
)

// secretRef is a secret with the names of the settings that locate it.
type secretRef struct {
	path   string
	secret *secret.Secret
	env    string // name of a variable; "" = not given
	file   string // name of a file; "" = not given
}

// resolve reads secrets from the named variables and files. A secret that is given directly takes
// precedence.
func (l *Loaded) resolve(in *layers, cfg *Config) {
	for _, ref := range secretRefs(cfg) {
		l.resolveOne(in, ref)
	}
	resolveAgents(l, in, cfg)
	for _, name := range sortedNames(cfg.Channels.Telegram.Accounts) {
		bot := cfg.Channels.Telegram.Accounts[name]
		for _, ref := range botSecrets("channels.telegram.accounts."+name, &bot) {
			l.resolveOne(in, ref)
		}
		cfg.Channels.Telegram.Accounts[name] = bot
	}
	for _, name := range sortedNames(cfg.Hooks) {
		h := cfg.Hooks[name]
		l.resolveOne(in, secretRef{"hooks." + name + ".secret", &h.Secret, h.SecretEnv, h.SecretFile})
		cfg.Hooks[name] = h
	}
	for _, name := range sortedNames(cfg.MCP.Servers) {
		m := cfg.MCP.Servers[name]
		l.resolveOne(in, secretRef{"mcp.servers." + name + ".token", &m.Token, m.TokenEnv, m.TokenFile})
		cfg.MCP.Servers[name] = m
	}
}

func secretRefs(cfg *Config) []secretRef {
	return append([]secretRef{
		{"token", &cfg.Token, "", cfg.TokenFile},
		{"password", &cfg.Password, "", cfg.PasswordFile},
		{"write_token", &cfg.WriteToken, "", cfg.WriteTokenFile},
		{"read_token", &cfg.ReadToken, "", cfg.ReadTokenFile},
		{"cron.webhook_secret", &cfg.Cron.WebhookSecret, cfg.Cron.WebhookSecretEnv, cfg.Cron.WebhookSecretFile},
		{"cron.webhook_token", &cfg.Cron.WebhookToken, cfg.Cron.WebhookTokenEnv, cfg.Cron.WebhookTokenFile},
	}, botSecrets("channels.telegram", &cfg.Channels.Telegram)...)
}

func botSecrets(path string, bot *Telegram) []secretRef {
	return []secretRef{
		{path + ".token", &bot.Token, bot.TokenEnv, bot.TokenFile},
		{path + ".webhook_secret", &bot.WebhookSecret, bot.WebhookSecretEnv, bot.WebhookSecretFile},
	}
}

func resolveAgents(l *Loaded, in *layers, cfg *Config) {
	for _, id := range sortedNames(cfg.Agents) {
		a := cfg.Agents[id]
		path := "agents." + id
		l.resolveOne(in, secretRef{path + ".api_key", &a.APIKey, a.APIKeyEnv, a.APIKeyFile})
		l.resolveOne(in, secretRef{path + ".secret", &a.Secret, a.SecretEnv, a.SecretFile})
		cfg.Agents[id] = a
	}
}

func sortedNames[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}

func (l *Loaded) resolveOne(in *layers, ref secretRef) {
	switch {
	case ref.secret.IsSet():
	case ref.env != "":
		l.fromVariable(in, ref)
	case ref.file != "":
		l.fromFile(in, ref)
	}
}

func (l *Loaded) fromVariable(in *layers, ref secretRef) {
	value, found := l.env(ref.env)
	if !found {
		in.faults = append(in.faults, Fault{Path: ref.path, Message: "is to come from the variable " + ref.env + ", which is not set"})
		return
	}
	l.accept(in, ref, []byte(value), Source{SourceEnv, ref.env})
}

func (l *Loaded) fromFile(in *layers, ref secretRef) {
	text, err := readSecretFile(ref.file, noun(ref.path), l.as)
	if err != nil {
		if faults, ok := errors.AsType[FaultsError](err); ok {
			in.faults = append(in.faults, faults...)
		}
		return
	}
	l.secretFile[ref.path] = ref.file
	l.accept(in, ref, text, Source{SourceFile, ref.file})
}

func (l *Loaded) accept(in *layers, ref secretRef, text []byte, source Source) {
	if err := ref.secret.UnmarshalText(text); err != nil {
		in.faults = append(in.faults, Fault{Path: ref.path, Source: source, Message: err.Error()})
		return
	}
	l.sources[ref.path] = source
}

// noun returns the name of a secret's file in sentences.
func noun(path string) string {
	switch {
	case strings.HasSuffix(path, "password"):
		return "password file"
	case strings.HasSuffix(path, "secret"):
		return "secret file"
	case strings.HasSuffix(path, "api_key"):
		return fromProvider
	case strings.HasPrefix(path, "channels.telegram."):
		return fromBotFather
	default:
		return "token file"
	}
}

// Files whose content another program provides.
const (
	fromProvider  = "key file"
	fromBotFather = "bot token file"
)

// cure returns the advice for a file that is missing or empty.
func cure(noun string) string {
	switch noun {
	case fromBotFather:
		return "put the token into it that @BotFather gave you"
	case fromProvider:
		return "put the key of the provider into it"
	default:
		return "make it: openssl rand -hex 32"
	}
}

// maxSecretFile limits the read of a file that was named by mistake.
const maxSecretFile = 64 << 10

// readSecretFile reads a secret that the user may have, see checkSecretMode. Its error is
// [FaultsError] with one complete sentence. The checks and the content come from one open file, so
// that it cannot be replaced in between.
func readSecretFile(path, noun string, as identity) ([]byte, error) {
	if info, err := os.Stat(path); err == nil { // before it is opened: opening a device may have an effect
		if err := checkRegular(path, noun, info); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // the operator names it
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse("%s %s does not exist; %s", noun, path, cure(noun))
	case errors.Is(err, fs.ErrPermission):
		return nil, as.unreadable(noun, path, cause(err))
	case err != nil:
		return nil, refuse("%s %s cannot be read: %s", noun, path, cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, refuse("%s %s cannot be read: %s", noun, path, cause(err))
	}
	if err := checkSecretMode(path, noun, info, as); err != nil {
		return nil, err
	}
	if !as.mayRead(path, info) {
		return nil, as.unreadable(noun, path, "user "+userName(as.uid)+" has no right")
	}
	text := make([]byte, maxSecretFile)
	n, err := readAll(f, text)
	switch {
	case err != nil:
		return nil, refuse("%s %s cannot be read: %s", noun, path, cause(err))
	case strings.TrimSpace(string(text[:n])) == "":
		return nil, refuse("%s %s is empty; remove it or %s", noun, path, cure(noun))
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}), bytes.HasPrefix(text, []byte{0xfe, 0xff}), 3*bytes.Count(text[:n], []byte{0}) >= n:
		return nil, refuse("%s %s is in UTF-16; save it in UTF-8", noun, path)
	}
	return text[:n], nil
}

// Reread reads again the files of callers' secrets: those that were named, and the data directory's
// own. A file that is missing, empty, accessible to others, or whose secret is too weak for a
// public address changes nothing: the current secret is kept, and the error ([FaultsError]) has a
// sentence for it. The returned credentials are valid in either case. Call it after Prepare, from
// one goroutine at a time.
func (p *Plan) Reread() (Credentials, error) {
	var faults FaultsError
	creds := *p.creds.Load()
	for _, f := range p.callerFiles(&creds) {
		read, err := p.rereadOne(f)
		if refused, ok := errors.AsType[FaultsError](err); ok {
			faults = append(faults, refused...)
			continue
		}
		*f.secret = read
	}
	p.creds.Store(&creds)
	return creds, faults.err()
}

// callerFile is a file with a secret that callers present.
type callerFile struct {
	name, path string
	secret     *secret.Secret
}

func (p *Plan) callerFiles(creds *Credentials) []callerFile {
	files := []callerFile{
		{"token", p.secretFile["token"], &creds.Token},
		{"password", p.secretFile["password"], &creds.Password},
		{"write token", p.secretFile["write_token"], &creds.WriteToken},
		{"read token", p.secretFile["read_token"], &creds.ReadToken},
	}
	if p.TokenFile != "" {
		files[0].path = p.TokenFile
	}
	given := files[:0]
	for _, f := range files {
		if f.path != "" {
			given = append(given, f)
		}
	}
	return given
}

func (p *Plan) rereadOne(f callerFile) (secret.Secret, error) {
	read, err := readToken(f.path, p.as)
	if err != nil {
		return secret.Secret{}, err
	}
	if public := p.cfg.PublicListen(); public != "" && !Strong(read) {
		return secret.Secret{}, refuse("the %s in %s is too weak for %s; use 32 or more random characters", f.name, f.path, public)
	}
	return read, nil
}

// Rereads reports whether the setting is a caller's secret from a file, which a running process
// reads again.
func (l *Loaded) Rereads(path string) bool {
	switch path {
	case "token", "password", "write_token", "read_token":
		return l.secretFile[path] != ""
	default:
		return false
	}
}

// ownPrefixes are the prefixes of the gateway's own variables, which are never passed to a program.
func ownPrefixes() []string { return []string{"LANEWAY_", "GOCLAW_"} }

// validatePass checks a variable or a pattern of env_pass.
func validatePass(at at, pattern string) {
	name := strings.TrimSuffix(pattern, "*")
	bad := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	switch {
	case name == "" || strings.ContainsFunc(name, bad):
		at.addf("must be the name of a variable, or a prefix of names followed by *, is %q", pattern)
	case name == telegramToken || slices.ContainsFunc(ownPrefixes(), func(own string) bool { return strings.HasPrefix(name, own) }):
		at.addf("must not name a variable of the gateway itself, is %q", pattern)
	}
}

// Passed returns the variables of the gateway that are passed to the program of an agent: those of
// its preset and of env_pass. environ is the environment as NAME=value. It never returns secrets of
// the gateway: its own variables and those that the configuration names for bots, hooks and MCP
// servers. A variable with the key of a model is passed only by its full name, not by a pattern of
// env_pass.
func (c Config) Passed(a Agent, environ []string) map[string]string {
	own, keys := c.secretVariables()
	patterns, passed := slices.Clone(a.EnvPass), map[string]string{}
	if p, ok := PresetNamed(a.Preset); ok {
		patterns = append(patterns, append(p.Keys, p.Pass...)...)
		for _, name := range p.Keys {
			delete(keys, name) // the preset needs its key
		}
		maps.Copy(passed, p.Env)
	}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if own[name] || slices.ContainsFunc(ownPrefixes(), func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			prefix, wide := strings.CutSuffix(pattern, "*")
			return name == pattern || (wide && strings.HasPrefix(name, prefix) && !keys[name])
		}) {
			passed[name] = value
		}
	}
	return passed
}

// secretVariables returns the variables with the gateway's own secrets, and those with keys of
// models.
func (c Config) secretVariables() (own, keys map[string]bool) {
	own, keys = map[string]bool{telegramToken: true}, map[string]bool{}
	bots := append(slices.Collect(maps.Values(c.Channels.Telegram.Accounts)), c.Channels.Telegram)
	for _, bot := range bots {
		own[bot.TokenEnv], own[bot.WebhookSecretEnv] = true, true
	}
	for _, h := range c.Hooks {
		own[h.SecretEnv] = true
	}
	for _, m := range c.MCP.Servers {
		own[m.TokenEnv] = true
	}
	for _, a := range c.Agents {
		own[a.SecretEnv] = true
		keys[a.APIKeyEnv] = true
	}
	return own, keys
}

const (
	// minSecret is the minimum length in characters of a secret on a public address.
	minSecret = 32
	// minDistinct different characters exclude `aaaa…` and repeated words.
	minDistinct = 12
)

// placeholders are values that documentation uses instead of a secret, with letters and digits
// only.
func placeholders() []string {
	return []string{"changeme", "replaceme", "yourtoken", "yoursecret", "yourpassword", "placeholder", "examplesecret", "0123456789abcdef0123456789abcdef"}
}

// Strong reports whether a secret may be used on a public address: 32 or more characters, 12 or
// more different ones, and no known placeholder. A generated token is strong.
func Strong(s secret.Secret) bool {
	text := s.Reveal()
	if utf8.RuneCountInString(text) < minSecret {
		return false
	}
	distinct := map[rune]struct{}{}
	for _, r := range text {
		distinct[r] = struct{}{}
	}
	if len(distinct) < minDistinct {
		return false
	}
	plain := strings.Map(lettersAndDigits, text)
	return !slices.ContainsFunc(placeholders(), func(p string) bool { return strings.Contains(plain, p) })
}

func lettersAndDigits(r rune) rune {
	switch {
	case r >= 'A' && r <= 'Z':
		return r + ('a' - 'A')
	case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
		return r
	default:
		return -1
	}
}
