package storetest

import (
	"slices"
	"testing"
	"time"

	"laneway/internal/channel"
	"laneway/internal/channel/channeltest"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// RunRecords checks the part of a store that keeps the records of channels. Opened stores must have it, and support SQL.
func RunRecords(t *testing.T, open Opener) {
	t.Helper()
	channeltest.RunRecords(t, func(t *testing.T) (channel.Records, func(time.Duration)) {
		t.Helper()
		w := newWorld(t, open)
		return w.records(), w.clock.advance
	})
	for name, run := range map[string]func(w *world, r channel.Records){
		"OutlivesTheProcess":             recordsOutlive,
		"LogsWhoLetWhomIn":               pairingChangesAreLogged,
		"KeepsBoundsAgainstManyRequests": pairingsAreCountedTogether,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open)
			run(w, w.records())
		})
	}
}

func (w *world) records() channel.Records {
	w.Helper()
	r, ok := w.st.(channel.Records)
	if !ok {
		w.Fatalf("the store keeps nothing for channels")
	}
	return r
}

func recordsOutlive(w *world, r channel.Records) {
	anna := channel.Peer{Channel: "telegram:1", UserID: 7, ChatID: 7}
	made := try(r.CreatePairing(w.ctx, anna, "Änna \x00")).ok(w)
	w.ok(r.SetGroupActivation(w.ctx, "telegram:1", -5, "always"))
	w.ok(r.PutButtons(w.ctx, channel.ButtonSet{Peer: anna, Texts: map[string]string{"b": "/stop"}}))
	w.st = w.h.Reopen()
	r = w.records()
	open := try(r.OpenPairings(w.ctx, "")).ok(w)
	if len(open) != 1 || open[0].Code != made.Code || !open[0].ExpiresAt.Equal(w.clock.now().Add(channel.PairingLife)) {
		w.Errorf("open are %+v, made was %+v", open, made)
	}
	try(r.ApprovePairing(w.ctx, channel.PairingRef{Code: made.Code}, store.ChangedBy{Who: "gateway"})).ok(w)
	w.st = w.h.Reopen()
	r = w.records()
	paired := try(r.Paired(w.ctx, anna)).ok(w)
	choice := try(r.GroupActivation(w.ctx, "telegram:1", -5)).ok(w)
	text := try(r.TakeButton(w.ctx, "b", anna, 1)).ok(w)
	if !paired || choice != "always" || text != "/stop" {
		w.Errorf("after a restart: paired %v, activation %q, button %q", paired, choice, text)
	}
}

func pairingChangesAreLogged(w *world, r channel.Records) {
	anna := channel.Peer{Channel: "telegram:1", UserID: 7, ChatID: 7}
	by := store.ChangedBy{Who: "gateway", Peer: "192.0.2.1", RequestID: "q1"}
	ask := func() channel.PairingRef {
		made := try(r.CreatePairing(w.ctx, anna, "Anna")).ok(w)
		return channel.PairingRef{ID: made.ID}
	}
	try(r.DismissPairing(w.ctx, ask(), by)).ok(w)
	w.clock.advance(time.Second)
	ref := ask()
	try(r.ApprovePairing(w.ctx, ref, by)).ok(w)
	try(r.ApprovePairing(w.ctx, ref, by)).fails(w, channel.ErrPairingUnknown)
	w.clock.advance(time.Second)
	for range 2 { // the second one removes nothing
		try(r.RevokePairing(w.ctx, anna, by)).ok(w)
	}
	at := w.clock.now().UnixMilli()
	rows := w.h.Query(w.tb, `SELECT who, verb, object, before_hash, after_hash, peer, request_id, at FROM audit_log ORDER BY id`)
	asked, allowed := chat.StateHash("asked Anna"), chat.StateHash("approved by gateway Anna")
	want := [][]any{
		{"gateway", "pair.dismiss", "telegram:1/7/7", asked, "", "192.0.2.1", "q1", at - 2000},
		{"gateway", "pair.approve", "telegram:1/7/7", asked, allowed, "192.0.2.1", "q1", at - 1000},
		{"gateway", "pair.revoke", "telegram:1/7/7", allowed, "", "192.0.2.1", "q1", at},
	}
	if !slices.EqualFunc(rows, want, slices.Equal[[]any]) {
		w.Errorf("got %v\nwant %v", rows, want)
	}
}

// pairingsAreCountedTogether opens requests concurrently from two handles: the bounds hold for all nodes together.
func pairingsAreCountedTogether(w *world, r channel.Records) {
	other, ok := w.h.Open().(channel.Records)
	if !ok {
		w.Fatalf("the second handle keeps nothing for channels")
	}
	const tries = 40
	ended := make(chan error, tries)
	for i := range tries {
		from := []channel.Records{r, other}[i%2]
		go func() {
			_, err := from.CreatePairing(w.ctx, channel.Peer{Channel: "telegram:1", UserID: 7, ChatID: 7}, "")
			ended <- err
		}()
	}
	made := 0
	for range tries {
		if err := <-ended; err == nil {
			made++
		}
	}
	if made != channel.MaxPairingsPerChat {
		w.Errorf("%d codes are open in one chat", made)
	}
}
