package storetest

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"laneway/internal/channel"
	"laneway/internal/channel/channeltest"
	"laneway/internal/chat"
	"laneway/internal/store"
)

func tokenNamed(name string) store.Credential {
	return store.Credential{
		Name: name, Digest: sha256.Sum256([]byte("secret of " + name)), Scopes: []string{"operator.read", "operator.write"}, Visible: "own",
	}
}

// RunCredentials checks the part of a store that keeps named tokens. Opened stores must have it,
// and support SQL.
func RunCredentials(t *testing.T, open Opener) {
	t.Helper()
	for name, run := range map[string]func(w *world, c store.Admin){
		"ReadsWhatWasWritten":    credentialIsKept,
		"ListsByName":            credentialsAreListed,
		"RefusesATakenName":      credentialConflicts,
		"RevokesOnce":            credentialIsRevoked,
		"ReadsPastADamagedOne":   damagedCredentialOpensNothing,
		"LogsEveryChange":        credentialChangesAreLogged,
		"OutlivesTheProcess":     credentialOutlives,
		"FindsBrokenRulesAsText": violationsAreFound,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open)
			run(w, w.h.Open())
		})
	}
}

func (w *world) create(c store.Admin, list ...store.Credential) {
	w.Helper()
	for _, one := range list {
		if err := c.CreateCredential(w.ctx, one, store.ChangedBy{Who: "cli", Peer: "here", RequestID: "r1"}); err != nil {
			w.Fatalf("create %s: %v", one.Name, err)
		}
	}
}

func (w *world) tokens(c store.Admin) []store.Credential {
	w.Helper()
	list, err := c.Credentials(w.ctx)
	if err != nil {
		w.Fatalf("list: %v", err)
	}
	return list
}

func credentialIsKept(w *world, c store.Admin) {
	want := tokenNamed("anna")
	want.ExpiresAt = w.clock.now().Add(time.Hour)
	w.create(c, want)
	got := w.tokens(c)
	want.CreatedAt = w.clock.now()
	if len(got) != 1 || got[0].Name != want.Name || got[0].Digest != want.Digest || !slices.Equal(got[0].Scopes, want.Scopes) ||
		got[0].Visible != want.Visible || !got[0].CreatedAt.Equal(want.CreatedAt) || !got[0].ExpiresAt.Equal(want.ExpiresAt) {
		w.Errorf("got %+v, want %+v", got, want)
	}
	w.create(c, tokenNamed("otto"))
	if got := w.tokens(c); !got[1].ExpiresAt.IsZero() {
		w.Errorf("a token that never expires has %v", got[1].ExpiresAt)
	}
}

func credentialsAreListed(w *world, c store.Admin) {
	w.create(c, tokenNamed("b"), tokenNamed("c"), tokenNamed("a"))
	var names []string
	for _, one := range w.tokens(c) {
		names = append(names, one.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		w.Errorf("names %v", names)
	}
}

func credentialConflicts(w *world, c store.Admin) {
	w.create(c, tokenNamed("a"))
	again, stolen := tokenNamed("a"), tokenNamed("a")
	again.Digest[0]++
	stolen.Name = "b"
	for _, one := range []store.Credential{again, stolen} {
		if err := c.CreateCredential(w.ctx, one, store.ChangedBy{Who: "cli"}); !errors.Is(err, chat.ErrConflict) {
			w.Errorf("create %s: %v, want a conflict", one.Name, err)
		}
	}
	if got := w.tokens(c); len(got) != 1 || got[0].Digest != tokenNamed("a").Digest {
		w.Errorf("got %+v", got)
	}
	if rows := w.h.Query(w.tb, `SELECT verb FROM audit_log`); len(rows) != 1 {
		w.Errorf("a refused change was logged: %v", rows)
	}
}

func credentialIsRevoked(w *world, c store.Admin) {
	w.create(c, tokenNamed("a"), tokenNamed("b"))
	if err := c.RevokeCredential(w.ctx, "a", store.ChangedBy{Who: "cli"}); err != nil {
		w.Fatalf("%v", err)
	}
	if err := c.RevokeCredential(w.ctx, "a", store.ChangedBy{Who: "cli"}); !errors.Is(err, chat.ErrNotFound) {
		w.Errorf("again: %v", err)
	}
	if got := w.tokens(c); len(got) != 1 || got[0].Name != "b" {
		w.Errorf("left %+v", got)
	}
	w.create(c, tokenNamed("a"))
}

func damagedCredentialOpensNothing(w *world, c store.Admin) {
	w.create(c, tokenNamed("a"), tokenNamed("b"))
	w.h.Exec(w.tb, `UPDATE credentials SET digest = 'zz' WHERE name = 'a'`)
	if got := w.tokens(c); len(got) != 2 || got[0].Digest != [sha256.Size]byte{} || got[1].Digest != tokenNamed("b").Digest {
		w.Errorf("got %+v", got)
	}
	if err := c.RevokeCredential(w.ctx, "a", store.ChangedBy{Who: "cli"}); err != nil {
		w.Errorf("revoke: %v", err)
	}
}

func credentialChangesAreLogged(w *world, c store.Admin) {
	token := tokenNamed("a")
	w.create(c, token)
	w.clock.advance(time.Minute)
	if err := c.RevokeCredential(w.ctx, "a", store.ChangedBy{Who: "gateway", Peer: "10.0.0.1"}); err != nil {
		w.Fatalf("%v", err)
	}
	rows := w.h.Query(w.tb, `SELECT who, verb, object, before_hash, after_hash, peer, request_id, at FROM audit_log ORDER BY id`)
	at := w.clock.now().UnixMilli()
	want := [][]any{
		{"cli", "token.create", "a", "", token.Hash(), "here", "r1", at - time.Minute.Milliseconds()},
		{"gateway", "token.revoke", "a", token.Hash(), "", "10.0.0.1", "", at},
	}
	if len(rows) != 2 || !slices.Equal(rows[0], want[0]) || !slices.Equal(rows[1], want[1]) {
		w.Errorf("got %v\nwant %v", rows, want)
	}
}

func credentialOutlives(w *world, c store.Admin) {
	w.create(c, tokenNamed("a"))
	w.st = w.h.Reopen()
	if len(w.tokens(w.st)) != 1 {
		w.Errorf("the token is gone")
	}
}

func violationsAreFound(w *world, c store.Admin) {
	values := map[string]any{"secret": canary}
	for name, text := range w.values() {
		if _, taken := values[name]; !taken {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				w.Fatalf("%s: %v", name, err)
			}
			values[name] = n
		}
	}
	for _, rule := range store.Invariants() {
		if rows, err := c.Violations(w.ctx, rule, values, 20); err != nil || len(rows) > 0 {
			w.Errorf("%s: %v, %v", rule.ID, rows, err)
		}
	}
	for _, key := range []string{"agent:main:a", "agent:main:b", "agent:main:c"} {
		w.h.Exec(w.tb, `INSERT INTO sessions (key, last_seq, taken_seq, done_seq) VALUES ('`+key+`', 1, 1, 5)`)
	}
	broken := func(rule store.Invariant) bool { return rule.ID == "I8.seq" }
	rule := store.Invariants()[slices.IndexFunc(store.Invariants(), broken)]
	rows, err := c.Violations(w.ctx, rule, values, 2)
	w.h.Exec(w.tb, `DELETE FROM sessions`)
	if err != nil || len(rows) != 2 || rows[0][0] != "I8.seq" || rows[0][2] != "5" {
		w.Errorf("got %v, %v, want two rows", rows, err)
	}
}

// RunRecords checks the part of a store that keeps the records of channels. Opened stores must have
// it, and support SQL.
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

// pairingsAreCountedTogether opens requests concurrently from two handles: the bounds hold for all
// nodes together.
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
			_, err := from.CreatePairing(w.ctx, channel.Peer{Channel: "telegram:1", UserID: int64(i), ChatID: 7}, "")
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
