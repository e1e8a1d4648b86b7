package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"laneway/internal/secret"
)

// secretRef is a secret with the names of the settings that locate it.
type secretRef struct {
	path   string
	secret *secret.Secret
	env    string // name of a variable; "" = not given
	file   string // name of a file; "" = not given
}

// resolve reads secrets from the named variables and files. A secret that is given directly takes precedence.
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
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
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

// readSecretFile reads a secret that the user may have, see checkSecretMode. Its error is [FaultsError] with one complete sentence. The
// checks and the content come from one open file, so that it cannot be replaced in between.
func readSecretFile(path, noun string, as identity) ([]byte, error) {
	if info, err := os.Stat(path); err == nil { // before it is opened: opening a device may have an effect
		if err := checkRegular(path, noun, info); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the operator names it
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
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}), bytes.HasPrefix(text, []byte{0xfe, 0xff}), bytes.IndexByte(text[:n], 0) >= 0:
		return nil, refuse("%s %s is in UTF-16; save it in UTF-8", noun, path)
	}
	return text[:n], nil
}
