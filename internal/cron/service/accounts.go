package service

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// accountsEvery is how old the known accounts may be.
const accountsEvery = 15 * time.Second

// accounts are the accounts of channels that the store knows by their leases, whichever process has them: a run may be claimed by a process without the
// channel. It is safe for concurrent use.
type accounts struct {
	store  Store
	known  atomic.Pointer[[]string] // sorted
	readAt atomic.Int64             // Unix nanoseconds
}

// read reads the accounts unless they were read a short time ago.
func (a *accounts) read(ctx context.Context) error {
	if a.known.Load() != nil && time.Since(time.Unix(0, a.readAt.Load())) < accountsEvery {
		return nil
	}
	cluster, err := a.store.Cluster(ctx)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(cluster.Leases))
	a.known.Store(&names)
	a.readAt.Store(time.Now().UnixNano())
	return nil
}

// of are the known accounts of a kind of channel.
func (a *accounts) of(kind string) []string {
	known := a.known.Load()
	if known == nil {
		return nil
	}
	var of []string
	for _, name := range *known {
		if name != kind && chat.ChannelKind(name) == kind {
			of = append(of, name)
		}
	}
	return of
}

// named reports whether an address names its account, or needs none.
func (p *parts) named(to chat.Target) bool {
	return to.IsZero() || strings.Contains(to.Channel, ":") || slices.Contains(p.channels, to.Channel)
}

// unnamed is why nothing can be sent to an address of which no account is known; "" = it can be.
func (p *parts) unnamed(to chat.Target) string {
	switch {
	case p.named(to):
		return ""
	case len(p.accounts.of(to.Channel)) > 1:
		return "there are several accounts of " + to.Channel + " (" + strings.Join(p.accounts.of(to.Channel), ", ") + "); name one of them"
	default:
		return "no account of " + to.Channel + " is known; start a gateway that has one"
	}
}

// addresses are where the answers and alerts of a job go.
func (d *Delivery) addresses(j cron.Job) []chat.Target {
	failures, _ := j.Delivery.Failure()
	return []chat.Target{d.target(j.Agent, j.Delivery), d.target(j.Agent, j.Alert.Delivery), d.target(j.Agent, failures)}
}

// Address is a target with the account of its channel, as the target of a job has it. An address that could be that of several accounts is refused.
func (s *Service) Address(ctx context.Context, to chat.Target) (chat.Target, error) {
	if s.named(to) {
		return to, nil
	}
	if err := s.accounts.read(ctx); err != nil {
		return to, err
	}
	to = s.Delivery.target("", cron.Delivery{Mode: cron.DeliverAnnounce, Channel: to.Channel, To: to.ChatID, Thread: to.Thread})
	return to, s.several(to)
}

// several refuses an address that could be that of several accounts. A channel of which no account is known yet may be named.
func (p *parts) several(to chat.Target) error {
	if p.named(to) || len(p.accounts.of(to.Channel)) < 2 {
		return nil
	}
	return chat.Errorf(chat.CodeInvalid, "%s", p.unnamed(to)).With("code", "CRON_UNKNOWN_ACCOUNT").With("channel", to.Channel)
}

// mayDeliver refuses a job with a new address that could be that of several accounts.
func (ed *Editor) mayDeliver(ctx context.Context, old, next cron.Job) error {
	if err := ed.accounts.read(ctx); err != nil {
		return err
	}
	before := ed.delivery.addresses(old)
	for _, to := range ed.delivery.addresses(next) {
		if slices.Contains(before, to) {
			continue
		}
		if err := ed.several(to); err != nil {
			return err
		}
	}
	return nil
}
