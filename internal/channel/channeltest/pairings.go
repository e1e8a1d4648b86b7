package channeltest

import (
	"context"
	"slices"
	"sync"
	"time"

	"laneway/internal/channel"
)

// Pairings is [channel.Pairings] in memory, for tests. It is safe for concurrent use.
type Pairings struct {
	now func() time.Time

	mu      sync.Mutex
	open    []channel.Pairing // oldest first
	allowed map[channel.Peer]bool
	failure error
}

var _ channel.Pairings = (*Pairings)(nil)

// NewPairings makes an empty one; now nil = time.Now.
func NewPairings(now func() time.Time) *Pairings {
	if now == nil {
		now = time.Now
	}
	return &Pairings{now: now, allowed: map[channel.Peer]bool{}}
}

// Fail makes every operation return an error until it is called with nil.
func (p *Pairings) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err
}

// expire drops what is over and says whether the store works at all. The mutex is held.
func (p *Pairings) expire() error {
	now := p.now()
	p.open = slices.DeleteFunc(p.open, func(o channel.Pairing) bool { return !now.Before(o.ExpiresAt) })
	return p.failure
}

// Allowed implements [channel.Pairings].
func (p *Pairings) Allowed(_ context.Context, who channel.Peer) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure == nil && p.allowed[who], p.failure
}

// Create implements [channel.Pairings].
func (p *Pairings) Create(_ context.Context, who channel.Peer, name string) (channel.Pairing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(); err != nil {
		return channel.Pairing{}, err
	}
	inBot, inChat := 0, 0
	for _, o := range p.open {
		if o.Channel == who.Channel {
			inBot++
			if o.ChatID == who.ChatID {
				inChat++
			}
		}
	}
	switch {
	case inChat >= channel.MaxPairingsPerChat:
		return channel.Pairing{}, channel.ErrPairingChatFull
	case inBot >= channel.MaxPairingsPerBot:
		return channel.Pairing{}, channel.ErrPairingBotFull
	}
	now := p.now()
	o := channel.Pairing{Peer: who, Code: channel.NewPairingCode(), Name: name, CreatedAt: now, ExpiresAt: now.Add(channel.PairingLife)}
	p.open = append(p.open, o)
	return o, nil
}

// List implements [channel.Pairings].
func (p *Pairings) List(_ context.Context, of string) ([]channel.Pairing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.expire(); err != nil {
		return nil, err
	}
	var out []channel.Pairing
	for _, o := range p.open {
		if of == "" || o.Channel == of {
			out = append(out, o)
		}
	}
	return out, nil
}

// take removes an open request. The mutex is held.
func (p *Pairings) take(code string) (channel.Pairing, error) {
	if err := p.expire(); err != nil {
		return channel.Pairing{}, err
	}
	code = channel.CleanPairingCode(code)
	i := slices.IndexFunc(p.open, func(o channel.Pairing) bool { return o.Code == code })
	if i < 0 {
		return channel.Pairing{}, channel.ErrPairingUnknown
	}
	o := p.open[i]
	p.open = slices.Delete(p.open, i, i+1)
	return o, nil
}

// Approve implements [channel.Pairings].
func (p *Pairings) Approve(_ context.Context, code, _ string) (channel.Pairing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, err := p.take(code)
	if err != nil {
		return o, err
	}
	p.allowed[o.Peer] = true
	p.open = slices.DeleteFunc(p.open, func(other channel.Pairing) bool { return other.Peer == o.Peer })
	return o, nil
}

// Dismiss implements [channel.Pairings].
func (p *Pairings) Dismiss(_ context.Context, code, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.take(code)
	return err
}

// Revoke implements [channel.Pairings].
func (p *Pairings) Revoke(_ context.Context, who channel.Peer, _ string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.allowed[who]
	delete(p.allowed, who)
	return had, p.failure
}
