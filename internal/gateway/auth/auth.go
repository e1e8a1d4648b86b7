// Package auth decides which clients may use the gateway, as which principal, and how many calls
// each principal may make.
//
// # Ideas
//
// One function identifies clients: [Authenticator.Identify], for sockets and for HTTP. It checks
// the address of a client before its secret, so that a locked address learns nothing about secrets.
// Secrets are compared by digest, with every credential and in constant time.
//
// Credentials come from the configuration and from sources that change. [Authenticator.Refresh]
// reads the sources. [Authenticator.InForce] then decides for an open connection whether its
// credential still has the same secret, scopes and visibility. A source that fails keeps its last
// list. An unknown secret may be newer than the list: the sources are read once more before it is
// refused, so that a new token works at once. All waiting unknown secrets share one reading, and
// two such readings are at least 100 ms apart.
//
// Allowances are counted by principal and class. [NewLimiter] counts in this process.
// [NewSharedLimiter] counts over all replicas, in parts that it takes from the store. When the
// store is unavailable, each replica counts by itself.
//
// [RequestPolicy] checks the headers of a browser before any credential: the host name (DNS
// rebinding), the origin of the page, and the client address from proxies.
//
// # Limits
//
// The table of locked addresses and the rows about refused secrets are limited. Buckets exist by
// principal, and principals are credentials. Two operations wait for the network:
// [NewSharedLimiter]'s limiter waits for the store for at most 50 ms, and a client with an unknown
// secret waits for the reading.
//
// # Goroutines and crash points
//
// New starts no goroutine. The owner runs [Authenticator.Run] on its own goroutine. It writes rows
// about refused secrets to the audit log until its context is done. A crash loses the rows that are
// not yet written; the metric has counted them.
//
// # What it does not do
//
// It has no methods and no sessions: the scope of a method is in the table of methods, and package
// chat decides which session a principal may use.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/inflight"
	"laneway/internal/metrics"
	"laneway/internal/wire"
)

// Config of an [Authenticator].
type Config struct {
	// Credentials are valid for the life of the process. Sources provide those that change.
	Credentials []Credential
	Sources     []Source
	// Limiter counts the calls of principals.
	Limiter Limiter
	// Metrics is where the authenticator registers its metrics; nil if nobody reads them.
	Metrics prometheus.Registerer
}

// Server is the HTTP server around the handlers of single paths.
type Server interface {
	// Bearer identifies the client of a request. It answers a client without a credential of that
	// scope itself, and ok is then false.
	Bearer(w http.ResponseWriter, r *http.Request, scope string) (cred Credential, ok bool)
	// Verified records whether the caller was authenticated in another way.
	Verified(r *http.Request, ok bool)
	// MayUse returns an error for a session that the principal may not write into.
	MayUse(ctx context.Context, cred Credential, key chat.SessionKey) error
	// Share returns the requests in flight of a principal; own: it sees only its own sessions.
	Share(principal string, own bool) *inflight.Share
	// Refusal returns why no work is accepted now, or nil.
	Refusal() *fault.Error
	// Explain converts an error to the form for clients, Count counts a request.
	Explain(ctx context.Context, method string, err error) *fault.Error
	Count(method string, err error, took time.Duration)
}

// AuditLog stores rows of the audit log.
type AuditLog interface {
	Audit(ctx context.Context, row chat.Audit) error
}

// Authenticator identifies clients and limits their calls. It is safe for concurrent use.
type Authenticator struct {
	keys     *keyring
	readings *readings
	limiter  Limiter
	locks    lockout
	refused  *refusals
	audit    AuditLog
	failures *prometheus.CounterVec
	log      *slog.Logger
	warnings rate.Sometimes // an attacker must not fill the disk with warnings
}

// New checks the credentials and reports every fault at once. It starts no goroutine; see
// [Authenticator.Run].
func New(cfg Config, audit AuditLog, log *slog.Logger) (*Authenticator, error) {
	var faults []error
	if len(cfg.Credentials) == 0 && len(cfg.Sources) == 0 {
		faults = append(faults, errors.New("there is no credential; no client could connect"))
	}
	for _, c := range cfg.Credentials {
		faults = append(faults, c.check())
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Authenticator{
		keys: newKeyring(cfg.Credentials, cfg.Sources), readings: &readings{turn: make(chan struct{}, 1)}, limiter: cfg.Limiter, refused: newRefusals(), audit: audit, failures: newFailures(cfg.Metrics),
		log: log, warnings: rate.Sometimes{First: 10, Interval: time.Second},
	}, nil
}

// newFailures registers the metric of refused credentials.
func newFailures(r prometheus.Registerer) *prometheus.CounterVec {
	failures := metrics.In(r).Counters("auth_failures_total", "Failed logins, by reason.", "reason")
	for _, reason := range []string{"mismatch", "missing", "locked", "hook"} {
		failures.WithLabelValues(reason)
	}
	return failures
}

// HookRefused counts a call of a hook without a valid signature.
func (a *Authenticator) HookRefused() { a.failures.WithLabelValues("hook").Inc() }

// Secret is what a client sends to authenticate. Token takes precedence over Password.
type Secret struct{ Token, Password string }

// fault returns the protocol's error for a failed authentication. Over HTTP its status is 401. Only
// a client with the expired token learns that it has expired.
func (s Secret) fault(expired bool) (reason string, e *fault.Error) {
	code, reason, message := wire.DetailTokenMissing, "token_missing", "unauthorized: gateway token missing"
	switch {
	case s.Token != "" && expired:
		code, reason, message = wire.DetailTokenMismatch, "token_expired", "unauthorized: gateway token has expired"
	case s.Token != "":
		code, reason, message = wire.DetailTokenMismatch, "token_mismatch", "unauthorized: gateway token mismatch"
	case s.Password != "":
		code, reason, message = wire.DetailPasswordMismatch, "password_mismatch", "unauthorized: gateway password mismatch"
	}
	e = fault.Invalid(message).WithStatus(http.StatusUnauthorized)
	e.Details = map[string]any{
		"code": code, "authReason": reason, "canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_credentials",
	}
	return reason, e
}

func lockedOut(left time.Duration) *fault.Error {
	e := fault.Unavailable(wire.DetailAuthRateLimited, "too many failed authentication attempts", left)
	e.Details["recommendedNextStep"] = "wait_then_retry"
	return e
}

// Identify returns the principal of a client. A locked address is refused even with a valid secret.
// While the list of credentials is younger than [listAge], a known secret needs no database and
// does not block. Otherwise the sources are read again, because an unknown secret may be new and a
// known one may be revoked. That takes [readPause] and one reading, and ends early when ctx is
// done.
func (a *Authenticator) Identify(ctx context.Context, s Secret, addr netip.Addr) (Credential, *fault.Error) {
	now := time.Now()
	if left := a.locks.lockedFor(addr, now); left > 0 {
		a.failures.WithLabelValues("locked").Inc()
		return Credential{}, lockedOut(left)
	}
	text := cmp.Or(s.Token, s.Password)
	if cred, ok := a.verify(ctx, text, now); ok {
		return cred, nil
	}
	known, found := a.keys.find(text)
	reason, refused := s.fault(found && known.Expired(now))
	label := "mismatch"
	if text == "" { // not a guess: any page can make the operator's browser send it, so it must not lock an address
		label = "missing"
	} else {
		a.locks.fail(addr, now)
		a.refused.note(addr, refused.Label(), now)
	}
	a.failures.WithLabelValues(label).Inc()
	a.warnings.Do(func() {
		a.log.WarnContext(ctx, "authentication failed", slog.String("addr", addr.String()), slog.String("reason", reason))
	})
	return Credential{}, refused
}

// verify finds the credential of a secret, in the current list or in one that was read after the
// client sent the secret.
func (a *Authenticator) verify(ctx context.Context, secret string, now time.Time) (Credential, bool) {
	cred, ok := a.keys.verify(secret, now)
	if ok && !a.readings.old(now) || secret == "" || !a.keys.changes() {
		return cred, ok
	}
	a.readings.since(ctx, a.read)
	return a.keys.verify(secret, time.Now())
}

// Bearer identifies the client of an HTTP request, and refuses a credential without the scope.
func (a *Authenticator) Bearer(r *http.Request, addr netip.Addr, scope string) (Credential, *fault.Error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		token = ""
	}
	cred, refused := a.Identify(r.Context(), Secret{Token: strings.TrimSpace(token)}, addr)
	if refused != nil {
		return cred, refused
	}
	if Level(cred.Scopes) < chat.ScopeLevel(scope) {
		return cred, missingScope(scope, cred)
	}
	return cred, nil
}

// missingScope names the scopes of the credential, and the command that makes one with more: over
// HTTP its reader is a person.
func missingScope(scope string, cred Credential) *fault.Error {
	has := cmp.Or(strings.Join(cred.Scopes, ", "), "no scope")
	e := fault.MissingScope(scope)
	e.Message += fmt.Sprintf(" (this token has %s); the operator makes a token that has it with: laneway token create NAME --scope %s",
		has, strings.TrimPrefix(scope, "operator."))
	return e
}

// Spend takes one call of a class from the allowance of a principal; name is its name in the error.
func (a *Authenticator) Spend(ctx context.Context, principal, name string, class LimitClass) *fault.Error {
	if ok, after, limit := a.limiter.Allow(ctx, principal, class, 1); !ok {
		return fault.RateLimited(name, limit, after)
	}
	return nil
}

// SpendBytes takes the bytes of a call that will be stored.
func (a *Authenticator) SpendBytes(ctx context.Context, principal, name string, n int) *fault.Error {
	ok, after, limit := a.limiter.Allow(ctx, principal, LimitBytes, n)
	if ok {
		return nil
	}
	e := fault.RateLimited(name, limit, after)
	e.Details["allowance"] = string(LimitBytes)
	return e
}

// Refresh reads the sources again, after a reading that is in progress. On an error, which it also
// logs, the last list of that source stays valid. It returns early when ctx is done.
func (a *Authenticator) Refresh(ctx context.Context) { a.readings.now(ctx, a.read) }

func (a *Authenticator) read(ctx context.Context) {
	if err := a.keys.refresh(ctx); err != nil {
		a.log.WarnContext(ctx, "credentials were not read; the last ones remain valid", slog.Any("err", err))
	}
}

// InForce reports whether a credential is still valid and unchanged.
func (a *Authenticator) InForce(c Credential, now time.Time) bool { return a.keys.inForce(c, now) }

// PasswordOnly reports whether a password is the only credential.
func (a *Authenticator) PasswordOnly() bool { return a.keys.passwordOnly() }

// Run writes rows about refused secrets to the audit log until ctx is done.
func (a *Authenticator) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case row := <-a.refused.rows:
			a.writeRefused(ctx, row)
		}
	}
}

func (a *Authenticator) writeRefused(ctx context.Context, row chat.Audit) {
	ctx, cancel := context.WithTimeout(ctx, refusedTimeout)
	defer cancel()
	if err := a.audit.Audit(ctx, row); err != nil {
		a.warnings.Do(func() {
			a.log.WarnContext(ctx, "a refused credential is not in the audit log", slog.String("addr", row.Peer), slog.Any("err", err))
		})
	}
}

const (
	// verbRefused is the row about a secret that is no credential.
	verbRefused = "credential.refused"
	// refusedPerMinute limits the rows of one minute: an attacker with many addresses must not fill
	// the disk. The metric counts all refusals.
	refusedPerMinute = 256
	// refusedTimeout limits the writing of one row.
	refusedTimeout = 5 * time.Second
)

// refusals collects rows about refused secrets: one per address and minute. No client waits for the
// audit log: rows go through a queue that [Authenticator.Run] empties. When the queue is full, a
// row is dropped; the metric has counted it.
type refusals struct {
	rows chan chat.Audit

	mu     sync.Mutex
	minute int64
	seen   map[netip.Addr]bool
}

func newRefusals() *refusals {
	return &refusals{rows: make(chan chat.Audit, refusedPerMinute)}
}

// note adds a row unless the address already has one in this minute.
func (r *refusals) note(addr netip.Addr, code string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Unix() / 60; minute != r.minute || r.seen == nil {
		r.minute, r.seen = minute, map[netip.Addr]bool{}
	}
	key := Network(addr)
	if r.seen[key] || len(r.seen) >= refusedPerMinute {
		return
	}
	r.seen[key] = true
	select {
	case r.rows <- chat.Audit{Who: "nobody", Verb: verbRefused, Object: code, Peer: addr.String()}:
	default:
	}
}
