package dispatch_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
)

// The test holds a gateway that has a message to send, and releases it.
func TestAHeldGatewayIsForAdministrators(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "laneway.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		by := store.ChangedBy{Who: "cli"}
		if err := db.SetHold(t.Context(), &store.Hold{Who: "ann", Reason: "a test"}, by); err != nil {
			t.Fatal(err)
		}
		if err := db.Enqueue(t.Context(), []store.Outgoing{{Kind: store.KindNotice, Text: "old", Count: 1, Target: chat.Target{Channel: "box", ChatID: "7"}}}); err != nil {
			t.Fatal(err)
		}
		h := open(t, db)
		defer h.close()
		lease := func() bool {
			ok, err := h.d.Lease(t.Context(), "telegram:1")
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		time.Sleep(time.Minute)
		want(t, "a channel may poll", lease(), false)
		want(t, "sent", len(h.box.texts("7")), 0)
		_, err = h.d.Receive(t.Context(), h.msg("agent:main:box:direct:7", "hello"))
		want(t, "a message of a channel is refused", errors.Is(err, chat.ErrStoreUnavailable), true)
		_, err = h.d.ReceiveFrom(t.Context(), h.msg("main", "hello"), chat.Caller{Principal: "ci", Scopes: []string{chat.ScopeWrite}})
		want(t, "a message of a client is refused", errors.Is(err, chat.ErrStoreUnavailable), true)
		m := h.msg("main", "hello")
		if _, err := h.d.ReceiveFrom(t.Context(), m, chat.Caller{Principal: "gateway", Scopes: []string{chat.ScopeAdmin}}); err != nil {
			t.Fatal(err)
		}
		want(t, "an administrator gets an answer", h.end(m.ID).Outcome, chat.OutcomeAnswered)
		want(t, "the status says it", h.d.Status(t.Context()).Held != "", true)
		if err := db.SetHold(t.Context(), nil, by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "a channel may poll after the release", lease(), true)
		wantList(t, "sent after the release", h.box.texts("7"), []string{"old"})
		want(t, "the status after the release", h.d.Status(t.Context()).Held, "")
	})
}
