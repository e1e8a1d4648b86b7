package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/gateway/auth"
	"laneway/internal/secret"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
)

// Token is one named token, without its secret.
type Token struct {
	Name                 string
	Scopes               []string
	Visible              string
	CreatedAt, ExpiresAt time.Time // ExpiresAt zero = never
}

// TokenRequest describes a new token.
type TokenRequest struct {
	Name string
	// Scopes are read, write and admin, or their full names; each includes the lower ones.
	Scopes []string
	// Visible is all (also when empty) or own.
	Visible string
	// ExpiresIn is the time until it expires; 0 = never.
	ExpiresIn time.Duration
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CreateToken creates a named token in the configured store and returns it with its secret, which
// is not stored. A running gateway accepts the token from its first use.
func CreateToken(ctx context.Context, cfg config.Config, r TokenRequest, by string) (Token, secret.Secret, error) {
	scopes, err := r.check()
	if err != nil {
		return Token{}, secret.Secret{}, err
	}
	token := secret.Generate()
	var made Token
	err = withTokens(ctx, cfg, func(s store.Admin) error {
		now, err := s.Now(ctx)
		if err != nil {
			return err
		}
		c := store.Credential{Name: r.Name, Digest: sha256.Sum256([]byte(token.Reveal())), Scopes: scopes, Visible: r.visible()}
		if r.ExpiresIn > 0 {
			c.ExpiresAt = now.Add(r.ExpiresIn).Truncate(time.Millisecond)
		}
		made = tokenOf(c)
		made.CreatedAt = now
		return s.CreateCredential(ctx, c, store.ChangedBy{Who: "cli", Peer: by})
	})
	if err != nil {
		return Token{}, secret.Secret{}, err
	}
	return made, token, nil
}

// ListTokens lists the named tokens of the configured store.
func ListTokens(ctx context.Context, cfg config.Config) ([]Token, error) {
	list := []Token{}
	err := withTokens(ctx, cfg, func(s store.Admin) error {
		all, err := s.Credentials(ctx)
		for _, c := range all {
			list = append(list, tokenOf(c))
		}
		return err
	})
	return list, err
}

// RevokeToken removes a named token. Its connections end within five seconds.
func RevokeToken(ctx context.Context, cfg config.Config, name, by string) error {
	return withTokens(ctx, cfg, func(s store.Admin) error {
		return s.RevokeCredential(ctx, name, store.ChangedBy{Who: "cli", Peer: by})
	})
}

func tokenOf(c store.Credential) Token {
	return Token{Name: c.Name, Scopes: c.Scopes, Visible: c.Visible, CreatedAt: c.CreatedAt, ExpiresAt: c.ExpiresAt}
}

func (r TokenRequest) visible() string {
	return cmp.Or(r.Visible, auth.VisibleAll)
}

// check returns the scopes by their full names, lowest first.
func (r TokenRequest) check() ([]string, error) {
	switch {
	case !tokenName.MatchString(r.Name):
		return nil, chat.Errorf(chat.CodeInvalid, "a token is named by letters, digits, dots, dashes and underscores, at most 64")
	case slices.Contains([]string{"gateway", "password", "write", "read", "cli", "system"}, r.Name):
		return nil, chat.Errorf(chat.CodeInvalid, "the name %s belongs to the gateway; choose another", r.Name)
	case r.visible() != auth.VisibleAll && r.visible() != auth.VisibleOwn:
		return nil, chat.Errorf(chat.CodeInvalid, "visibility is all or own, not %q", r.Visible)
	case r.ExpiresIn < 0:
		return nil, chat.Errorf(chat.CodeInvalid, "a token cannot expire in the past")
	case len(r.Scopes) == 0:
		return nil, chat.Errorf(chat.CodeInvalid, "a token needs a scope: read, write or admin")
	}
	all := []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}
	most := -1
	for _, s := range r.Scopes {
		at := slices.IndexFunc(all, func(full string) bool { return s == full || "operator."+s == full })
		if at < 0 {
			return nil, chat.Errorf(chat.CodeInvalid, "there is no scope %q: read, write or admin", s)
		}
		most = max(most, at)
	}
	return all[:most+1], nil
}

// withTokens opens the configured store beside a gateway that may use it.
func withTokens(ctx context.Context, cfg config.Config, do func(store.Admin) error) error {
	s, err := openCommandStore(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// openCommandStore opens the configured store for a command that may run beside a gateway. It does
// not lock the data directory and applies no migration. The caller closes the store.
func openCommandStore(ctx context.Context, cfg config.Config) (store.Admin, error) {
	if !cfg.Database.IsPostgres() {
		return sqlite.Visit(ctx, sqlite.Config{Path: sqlitePath(cfg)})
	}
	return postgres.Open(ctx, postgres.Config{URL: cfg.Database.Reveal(), MaxConns: 2, WarmConns: -1})
}

// namedTokens provides the tokens of the store to the gateway, and caches which of them see only
// their own data.
type namedTokens struct {
	store store.Admin
	own   atomic.Pointer[map[string]bool]
}

// seesOwn reports whether the principal is a token that sees only its own data, according to the
// last read.
func (n *namedTokens) seesOwn(principal string) bool {
	own := n.own.Load()
	return own != nil && (*own)[principal]
}

// Credentials lists the tokens. The gateway calls it every two seconds and for unknown secrets, one
// call at a time.
func (n *namedTokens) Credentials(ctx context.Context) ([]auth.Credential, error) {
	list, err := n.store.Credentials(ctx)
	if err != nil {
		return nil, err
	}
	out, own := make([]auth.Credential, 0, len(list)), map[string]bool{}
	for _, c := range list {
		if c.Visible == auth.VisibleOwn {
			own[c.Name] = true
		}
		out = append(out, auth.Credential{Name: c.Name, Digest: c.Digest, Scopes: c.Scopes, Visible: c.Visible, ExpiresAt: c.ExpiresAt})
	}
	n.own.Store(&own)
	return out, nil
}

// ownKeys provides the credentials of the configuration to the gateway: token, password, write and
// read token. Those that came from files are read again when their files change, so that a secret
// is replaced without a restart. One goroutine at a time calls it.
type ownKeys struct {
	read  func() (config.Credentials, error)
	store store.Store
	log   *slog.Logger
	last  []auth.Credential
	fault string // the last error that was logged
}

func (p *Process) ownKeys() *ownKeys {
	k := &ownKeys{read: p.opts.RereadCredentials, store: p.store, log: p.log, last: credentials(p.opts.Credentials)}
	if k.read == nil {
		k.read = func() (config.Credentials, error) { return p.opts.Credentials, nil }
	}
	return k
}

// Credentials returns the current credentials. An unusable file is logged once and changes nothing,
// so the error is always nil.
func (k *ownKeys) Credentials(ctx context.Context) ([]auth.Credential, error) {
	now, err := k.read()
	k.complain(ctx, err)
	list := credentials(now)
	for _, c := range list {
		if old := slices.IndexFunc(k.last, func(o auth.Credential) bool { return o.Name == c.Name }); old >= 0 && k.last[old].Digest != c.Digest {
			k.rotated(ctx, c.Name)
		}
	}
	k.last = list
	return list, nil
}

func (k *ownKeys) complain(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.fault {
		k.log.WarnContext(ctx, "a secret was not read again; the last one remains valid", "err", text)
	}
	k.fault = text
}

// rotated writes the replacement to the audit log. The row has no hashes, because that of a short
// password could be guessed. The new secret is in force even when the write fails.
func (k *ownKeys) rotated(ctx context.Context, name string) {
	k.log.InfoContext(ctx, "a secret was replaced; connections with the old one are closed", "credential", name)
	if err := k.store.Audit(ctx, chat.Audit{Who: "host", Verb: store.VerbTokenRotate, Object: name}); err != nil {
		k.log.WarnContext(ctx, "the replacement is not in the audit log", "err", err)
	}
}

func credentials(c config.Credentials) []auth.Credential {
	all := []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}
	var list []auth.Credential
	for _, e := range []struct {
		name   string
		secret secret.Secret
		scopes []string
	}{
		{"gateway", c.Token, all},
		{"password", c.Password, all},
		{"write", c.WriteToken, all[:2]},
		{"read", c.ReadToken, all[:1]},
	} {
		if e.secret.IsSet() {
			list = append(list, auth.Credential{Name: e.name, Digest: sha256.Sum256([]byte(e.secret.Reveal())), Scopes: e.scopes})
		}
	}
	return list
}
