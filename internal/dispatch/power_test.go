package dispatch_test

import (
	"context"
	"sync/atomic"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/usage"
)

// power is a store that several processes share. When a harness is disconnected, all its operations fail, as after kill -9.
type power struct {
	cronStore

	off *atomic.Bool
}

// cord returns the store for one harness.
func cord(st cronStore) (cronStore, *atomic.Bool) {
	off := &atomic.Bool{}
	return &power{cronStore: st, off: off}, off
}

func (p *power) dead(ctx context.Context) error {
	if p.off.Load() {
		<-ctx.Done()
		return chat.ErrStoreUnavailable
	}
	return nil
}

func (p *power) Heartbeat(ctx context.Context, id string, draining bool) (store.Beat, error) {
	if err := p.dead(ctx); err != nil {
		return store.Beat{}, err
	}
	return p.cronStore.Heartbeat(ctx, id, draining)
}

func (p *power) Finish(ctx context.Context, f store.FinishParams) (store.Finished, error) {
	if err := p.dead(ctx); err != nil {
		return store.Finished{}, err
	}
	return p.cronStore.Finish(ctx, f)
}

func (p *power) AddUsage(ctx context.Context, b usage.Batch, day string, read []usage.Scope) (map[usage.Scope]usage.Spent, error) {
	if err := p.dead(ctx); err != nil {
		return nil, err
	}
	return p.cronStore.AddUsage(ctx, b, day, read)
}

func (p *power) Register(ctx context.Context, n store.Node) error {
	if err := p.dead(ctx); err != nil {
		return err
	}
	return p.cronStore.Register(ctx, n)
}

func (p *power) Sweep(ctx context.Context, sp store.SweepParams) ([]store.Taken, error) {
	if err := p.dead(ctx); err != nil {
		return nil, err
	}
	return p.cronStore.Sweep(ctx, sp)
}

func (p *power) ClaimOutgoing(ctx context.Context, c store.ClaimOutgoingParams) ([]store.Outgoing, error) {
	if err := p.dead(ctx); err != nil {
		return nil, err
	}
	return p.cronStore.ClaimOutgoing(ctx, c)
}

func (p *power) Undelivered(ctx context.Context, u store.UndeliveredParams) (store.Gone, error) {
	if err := p.dead(ctx); err != nil {
		return store.Gone{}, err
	}
	return p.cronStore.Undelivered(ctx, u)
}

func (p *power) Unregister(ctx context.Context, n string) error {
	if err := p.dead(ctx); err != nil {
		return err
	}
	return p.cronStore.Unregister(ctx, n)
}
