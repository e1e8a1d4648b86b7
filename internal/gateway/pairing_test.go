package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

const (
	family, work = "telegram:123456789", "telegram:555"
	annasNumber  = int64(7)
)

// lobby is a core with two bots, whose pairings are in a store.
type lobby struct {
	*core
	st *awayStore
}

// awayStore is a store that, when away, takes no messages to people.
type awayStore struct {
	*sqlite.Store
	away atomic.Bool
}

func (s *awayStore) Enqueue(ctx context.Context, list []store.Outgoing) error {
	if s.away.Load() {
		return chat.ErrStoreUnavailable
	}
	return s.Store.Enqueue(ctx, list)
}

func openLobby(t *testing.T, change ...func(*gateway.Config)) (*lobby, *bench) {
	t.Helper()
	l := &lobby{core: newCore(t), st: &awayStore{Store: sqlitetest.Open(t, sqlite.Config{})}}
	l.channels = []chat.ChannelStatus{
		{Name: family, ID: "telegram", AccountID: "family", Label: "Telegram", Configured: true, Running: true},
		{Name: work, ID: "telegram", AccountID: "work", Label: "Telegram", Configured: true, Running: true},
	}
	return l, serve(t, l.core, l.core, append(change, func(c *gateway.Config) {
		c.Pairings = dispatch.NewPairings(l.st, func() {}, slog.New(slog.DiscardHandler))
	})...)
}

// asks opens a request of a person to talk to a bot.
func (l *lobby) asks(t *testing.T, bot string, user int64, name string) channel.Pairing {
	t.Helper()
	p, err := l.st.CreatePairing(t.Context(), channel.Peer{Channel: bot, UserID: user, ChatID: user}, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (l *lobby) talks(t *testing.T, bot string, user int64) bool {
	t.Helper()
	ok, err := l.st.Paired(t.Context(), channel.Peer{Channel: bot, UserID: user, ChatID: user})
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// objects returns the entries of a list in an answer.
func objects(t *testing.T, answer map[string]any, name string) []map[string]any {
	t.Helper()
	list, ok := answer[name].([]any)
	if !ok {
		t.Fatalf("%s is %v", name, answer[name])
	}
	out := make([]map[string]any, 0, len(list))
	for _, v := range list {
		o, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%s has the entry %v", name, v)
		}
		out = append(out, o)
	}
	return out
}

// The list shows requests and grants, by account, and never the code: the permission to read the
// list does not include approval.
func TestPairingListNamesPeopleAndNoCodes(t *testing.T) {
	t.Parallel()
	l, b := openLobby(t)
	anna, bob := l.asks(t, family, annasNumber, "Anna"), l.asks(t, work, 8, "")
	gone := l.asks(t, "telegram:999", 9, "Carl") // of an account that is no longer configured
	s := b.login(adminToken)
	f := s.call("channels.pairing.list", nil)
	for _, p := range []channel.Pairing{anna, bob, gone} {
		if strings.Contains(string(f.Payload), p.Code) {
			t.Errorf("the list shows the code of %s: %s", p.Peer, f.Payload)
		}
	}
	all := decode[map[string]any](t, f.Payload)
	var got []string
	for _, r := range objects(t, all, "requests") {
		got = append(got, fmt.Sprint(r["requestId"], r["channel"], r["accountId"], r["senderId"], r["senderLabel"]))
	}
	want := []string{
		fmt.Sprint(anna.ID, "telegram", "family", "7", "Anna"), fmt.Sprint(bob.ID, "telegram", "work", "8", "8"), fmt.Sprint(gone.ID, "telegram", "999", "9", "Carl"),
	}
	if strings.Join(got, ";") != strings.Join(want, ";") {
		t.Errorf("requests %q, want %q", got, want)
	}
	if n := len(objects(t, all, "accounts")); n != 2 || all["granted"] != nil {
		t.Errorf("%d accounts, granted %v", n, all["granted"])
	}
	one := s.must("channels.pairing.list", params{"channel": "telegram", "accountId": "work", "extended": true})
	if requests := objects(t, one, "requests"); len(requests) != 1 || requests[0]["senderId"] != "8" || len(objects(t, one, "granted")) != 0 || len(objects(t, one, "accounts")) != 1 {
		t.Errorf("of one account: %v", one)
	}
	if none := s.must("channels.pairing.list", params{"channel": "signal"}); len(objects(t, none, "requests")) != 0 {
		t.Errorf("of another channel: %v", none)
	}
}

func TestPairingIsApprovedOnceByIDOrCode(t *testing.T) {
	t.Parallel()
	l, b := openLobby(t)
	s := b.login(adminToken)
	byCode, byID, quiet := l.asks(t, family, annasNumber, "Anna"), l.asks(t, work, 8, "Bob"), l.asks(t, work, 9, "Carl")

	copied := strings.ToLower(byCode.Code[:4]) + "-" + byCode.Code[4:] // as people copy it
	if got := s.must("channels.pairing.approve", params{"code": copied}); got["senderId"] != "7" || got["notification"] != "sent" || got["requestId"] != byCode.ID {
		t.Errorf("by code: %v", got)
	}
	if !l.talks(t, family, annasNumber) || l.talks(t, work, annasNumber) {
		t.Error("anna may talk to the one bot that she asked, and to no other")
	}
	l.st.away.Store(true)
	if got := s.must("channels.pairing.approve", params{"requestId": byID.ID}); got["senderId"] != "8" || got["notification"] != "failed" {
		t.Errorf("by id, with no channel that could send the notice: %v", got)
	}
	if got := s.must("channels.pairing.approve", params{"requestId": quiet.ID, "notify": false}); got["notification"] != "not-requested" {
		t.Errorf("without telling: %v", got)
	}
	granted := objects(t, s.must("channels.pairing.list", params{"extended": true}), "granted")
	if len(granted) != 3 || granted[0]["approvedBy"] != "gateway" || granted[0]["senderLabel"] != "Anna" {
		t.Errorf("granted %v", granted)
	}
	for what, p := range map[string]params{
		"used code": {"code": byCode.Code}, "used id": {"requestId": byID.ID}, "an id as code": {"code": quiet.ID}, "a code as id": {"requestId": byCode.Code},
		"a code that never was": {"code": "AAAAAAAA"},
	} {
		if f := s.call("channels.pairing.approve", p); f.OK || f.Error.Code != "INVALID_REQUEST" && f.Error.Code != "NOT_FOUND" {
			t.Errorf("%s: %s %+v", what, f.Payload, f.Error)
		}
	}
	for what, p := range map[string]params{
		"neither": {}, "both": {"code": "AAAAAAAA", "requestId": "x"}, "empty": {"code": ""}, "no text": {"code": 5}, "too long": {"code": strings.Repeat("A", 65)}, "unknown member": {"code": "AAAAAAAA", "force": true},
	} {
		if f := s.call("channels.pairing.approve", p); f.OK || f.Error.Code != "INVALID_REQUEST" {
			t.Errorf("%s: %s %+v", what, f.Payload, f.Error)
		}
	}
}

func TestAPairingIsDismissedAndRevoked(t *testing.T) {
	t.Parallel()
	l, b := openLobby(t)
	s := b.login(adminToken)
	p := l.asks(t, family, annasNumber, "Anna")
	dismiss := params{"channel": "telegram", "accountId": "family", "requestId": p.ID}
	if f := s.call("channels.pairing.dismiss", params{"requestId": p.ID}); f.OK {
		t.Errorf("without the account: %s", f.Payload)
	}
	if got := s.must("channels.pairing.dismiss", dismiss); got["senderId"] != "7" {
		t.Errorf("dismissed %v", got)
	}
	if l.talks(t, family, annasNumber) {
		t.Error("dismissing let her in")
	}
	for _, f := range []frame{s.call("channels.pairing.dismiss", dismiss), s.call("channels.pairing.approve", params{"code": p.Code})} {
		if f.OK {
			t.Errorf("a dismissed request lives on: %s", f.Payload)
		}
	}

	for _, bot := range []string{family, work} {
		s.must("channels.pairing.approve", params{"code": l.asks(t, bot, annasNumber, "Anna").Code})
	}
	if got := s.must("channels.pairing.revoke", params{"senderId": "7", "accountId": "work"}); got["revoked"] != float64(1) || l.talks(t, work, annasNumber) || !l.talks(t, family, annasNumber) {
		t.Errorf("revoked in one account: %v", got)
	}
	if got := s.must("channels.pairing.revoke", params{"senderId": "7"}); got["revoked"] != float64(1) || l.talks(t, family, annasNumber) {
		t.Errorf("revoked everywhere: %v", got)
	}
	for what, sender := range map[string]string{"unknown": "7", "no number": "@anna", "too large": "99999999999999999999"} {
		if f := s.call("channels.pairing.revoke", params{"senderId": sender}); f.OK {
			t.Errorf("%s: %s", what, f.Payload)
		}
	}
}

// Only an administrator may approve: a caller that may only read or write is refused, and nothing
// changes.
func TestPairingNeedsTheScopeOfAdministrators(t *testing.T) {
	t.Parallel()
	l, b := openLobby(t)
	p := l.asks(t, family, annasNumber, "Anna")
	in := l.asks(t, family, 8, "Bob")
	if _, err := l.st.ApprovePairing(t.Context(), channel.PairingRef{ID: in.ID}, chat.ChangedBy{Who: "test"}); err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{"read": readToken, "write": writeToken} {
		s := b.login(token)
		for method, with := range map[string]params{
			"channels.pairing.list": {}, "channels.pairing.approve": {"code": p.Code}, "channels.pairing.revoke": {"senderId": "8"},
			"channels.pairing.dismiss": {"channel": "telegram", "accountId": "family", "requestId": p.ID},
		} {
			if f := s.call(method, with); !refusedFor(f, chat.ScopeAdmin) {
				t.Errorf("%s with the token %s: %s %+v", method, name, f.Payload, f.Error)
			}
		}
	}
	if open, err := l.st.OpenPairings(t.Context(), ""); err != nil || len(open) != 1 || l.talks(t, family, annasNumber) || !l.talks(t, family, 8) {
		t.Errorf("a refused call changed something: %v, %v", open, err)
	}
}

func TestAGatewayWithoutChannelsSaysSo(t *testing.T) {
	t.Parallel()
	s := start(t).login(adminToken)
	if f := s.call("channels.pairing.list", nil); f.OK || !strings.Contains(f.Error.Message, "no channels") {
		t.Errorf("%s %+v", f.Payload, f.Error)
	}
}
