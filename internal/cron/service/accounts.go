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

// accountsEvery is the maximum age of the cached accounts.
const accountsEvery = 15 * time.Second

// accounts caches the accounts of channels in the store's leases, of all processes: a process without the channel may claim a run. It is safe for concurrent
// use.
type accounts struct {
	store  Store
	known  atomic.Pointer[[]string] // sorted
	readAt atomic.Int64             // Unix nanoseconds
}

// read reads the accounts unless they were read recently.
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

// of are the accounts of a kind of channel.
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

// unnamed is why nothing can be sent to an address without a known account; "" when it can be.
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

// addresses are the targets of the answers and alerts of a job.
func (d *Delivery) addresses(j cron.Job) []chat.Target {
	failures, _ := j.Delivery.Failure()
	return []chat.Target{d.target(j.Agent, j.Delivery), d.target(j.Agent, j.Alert.Delivery), d.target(j.Agent, failures)}
}

// Address is a target with the account of its channel, in the form of a job's target. It refuses an address that matches several accounts.
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

// several refuses an address that matches several accounts. A channel without known accounts is accepted.
func (p *parts) several(to chat.Target) error {
	if p.named(to) || len(p.accounts.of(to.Channel)) < 2 {
		return nil
	}
	return chat.Errorf(chat.CodeInvalid, "%s", p.unnamed(to)).With("code", "CRON_UNKNOWN_ACCOUNT").With("channel", to.Channel)
}

// mayDeliver refuses a job with a new address that matches several accounts.
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
