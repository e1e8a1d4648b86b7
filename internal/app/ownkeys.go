package app

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/gateway/auth"
	"laneway/internal/secret"
	"laneway/internal/store"
)

// ownKeys provides the credentials of the configuration to the gateway: token, password, write and read token. Those that came from files
// are read again when their files change, so that a secret is replaced without a restart. One goroutine at a time calls it.
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

// Credentials returns the current credentials. An unusable file is logged once and changes nothing, so the error is always nil.
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

// rotated writes the replacement to the audit log. The row has no hashes, because that of a short password could be guessed. The new secret
// is in force even when the write fails.
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
