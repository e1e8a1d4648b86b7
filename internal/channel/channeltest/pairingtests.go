package channeltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"laneway/internal/channel"
)

// RunPairings holds the contract of [channel.Pairings]. open makes an empty store and a function that moves its clock forward.
func RunPairings(t *testing.T, open func(t *testing.T) (p channel.Pairings, forward func(time.Duration))) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(t *testing.T, p channel.Pairings, forward func(time.Duration))
	}{
		{"a code lets exactly its peer in", pairingLetsIn},
		{"a code works once and for an hour", pairingOnce},
		{"bounds per chat and bot", pairingBounds},
		{"many approvals at once let one through", pairingRace},
		{"dismissed and revoked", pairingTakenBack},
		{"codes are forgiving to read and hard to guess", pairingCodes},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, forward := open(t)
			c.test(t, p, forward)
		})
	}
}

func peer(bot string, n int64) channel.Peer { return channel.Peer{Channel: bot, UserID: n, ChatID: n} }

func create(t *testing.T, p channel.Pairings, who channel.Peer) channel.Pairing {
	t.Helper()
	made, err := p.Create(t.Context(), who, "Anna")
	if err != nil {
		t.Fatalf("making a code: %v", err)
	}
	return made
}

func wantAllowed(t *testing.T, p channel.Pairings, who channel.Peer, want bool) {
	t.Helper()
	got, err := p.Allowed(t.Context(), who)
	if err != nil || got != want {
		t.Errorf("allowed(%+v) = %v, %v; want %v", who, got, err, want)
	}
}

func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, channel.ErrPairingUnknown) {
		t.Errorf("got %v, want %v", err, channel.ErrPairingUnknown)
	}
}

func pairingLetsIn(t *testing.T, p channel.Pairings, _ func(time.Duration)) {
	t.Helper()
	anna := peer("telegram:1", 7)
	made := create(t, p, anna)
	create(t, p, anna) // a second open code of the same person
	wantAllowed(t, p, anna, false)
	got, err := p.Approve(t.Context(), made.Code, "operator")
	if err != nil || got.Peer != anna || got.Name != "Anna" {
		t.Fatalf("approved %+v, %v", got, err)
	}
	wantAllowed(t, p, anna, true)
	for _, other := range []channel.Peer{peer("telegram:2", 7), peer("telegram:1", 8), {Channel: "telegram:1", UserID: 7, ChatID: -100}, {Channel: "telegram:1", UserID: 8, ChatID: 7}} {
		wantAllowed(t, p, other, false)
	}
	if left, err := p.List(t.Context(), ""); err != nil || len(left) != 0 {
		t.Errorf("open after the approval: %v, %v; the other code of the same person must end too", left, err)
	}
}

func pairingOnce(t *testing.T, p channel.Pairings, forward func(time.Duration)) {
	t.Helper()
	first := create(t, p, peer("telegram:1", 7))
	if _, err := p.Approve(t.Context(), first.Code, "operator"); err != nil {
		t.Fatal(err)
	}
	_, err := p.Approve(t.Context(), first.Code, "operator")
	wantUnknown(t, err)

	late := create(t, p, peer("telegram:1", 8))
	forward(channel.PairingLife)
	_, err = p.Approve(t.Context(), late.Code, "operator")
	wantUnknown(t, err)
	wantAllowed(t, p, peer("telegram:1", 8), false)
}

func pairingBounds(t *testing.T, p channel.Pairings, forward func(time.Duration)) {
	t.Helper()
	for range channel.MaxPairingsPerChat {
		create(t, p, peer("telegram:1", 7))
	}
	if _, err := p.Create(t.Context(), peer("telegram:1", 7), ""); !errors.Is(err, channel.ErrPairingChatFull) {
		t.Errorf("one more code in the chat: %v", err)
	}
	made := channel.MaxPairingsPerChat
	for n := range int64(10_000) {
		if _, err := p.Create(t.Context(), peer("telegram:1", 1000+n), ""); err == nil {
			made++
		} else if !errors.Is(err, channel.ErrPairingBotFull) {
			t.Fatalf("code %d: %v", n, err)
		}
	}
	if made != channel.MaxPairingsPerBot {
		t.Errorf("%d codes are open, the bound is %d", made, channel.MaxPairingsPerBot)
	}
	create(t, p, peer("telegram:2", 7)) // another bot has its own bound
	forward(channel.PairingLife)
	create(t, p, peer("telegram:1", 7))
	if left, err := p.List(t.Context(), "telegram:1"); err != nil || len(left) != 1 {
		t.Errorf("after an hour %d codes are open (%v), want the new one", len(left), err)
	}
}

func pairingRace(t *testing.T, p channel.Pairings, _ func(time.Duration)) {
	t.Helper()
	made := create(t, p, peer("telegram:1", 7))
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		won int
	)
	for i := range 20 {
		wg.Go(func() {
			if _, err := p.Approve(context.WithoutCancel(t.Context()), made.Code, fmt.Sprintf("operator %d", i)); err == nil {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d of 20 approvals of one code went through", won)
	}
}

func pairingTakenBack(t *testing.T, p channel.Pairings, _ func(time.Duration)) {
	t.Helper()
	made := create(t, p, peer("telegram:1", 7))
	if err := p.Dismiss(t.Context(), made.Code, "operator"); err != nil {
		t.Fatal(err)
	}
	wantUnknown(t, p.Dismiss(t.Context(), made.Code, "operator"))
	_, err := p.Approve(t.Context(), made.Code, "operator")
	wantUnknown(t, err)
	wantAllowed(t, p, made.Peer, false)

	if _, err := p.Approve(t.Context(), create(t, p, made.Peer).Code, "operator"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if had, err := p.Revoke(t.Context(), made.Peer, "operator"); err != nil || had != want {
			t.Errorf("revoke = %v, %v; want %v", had, err, want)
		}
	}
	wantAllowed(t, p, made.Peer, false)
}

func pairingCodes(t *testing.T, p channel.Pairings, _ func(time.Duration)) {
	t.Helper()
	made := create(t, p, peer("telegram:1", 7))
	for range 1000 {
		if _, err := p.Approve(t.Context(), channel.NewPairingCode(), "somebody"); !errors.Is(err, channel.ErrPairingUnknown) {
			t.Fatalf("a guess: %v", err)
		}
	}
	spoken := " " + made.Code[:4] + "-" + made.Code[4:] + " "
	if len(made.Code) != 8 {
		t.Errorf("the code %q has not 8 characters", made.Code)
	}
	if _, err := p.Approve(t.Context(), spoken, "operator"); err != nil {
		t.Errorf("the code as people write it (%q): %v", spoken, err)
	}
}
