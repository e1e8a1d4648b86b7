package dispatch_test

import (
	"testing"
	"testing/synctest"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// The messages have the form of chat.send with deliver and of hooks: the key of a session names its chat, but not the account.
func TestAReplyToTheChatOfASessionNamesTheAccount(t *testing.T) {
	deliver := func(t *testing.T, h *harness, session string) (chat.Message, error) {
		m := h.msg(session, "hello")
		m.Content.Options.ReplyTo = m.Session.Target()
		_, err := h.d.ReceiveFrom(t.Context(), m, chat.Caller{Principal: "operator", Scopes: []string{chat.ScopeAdmin}})
		return m, err
	}
	account := func(t *testing.T, st dispatch.Store, id string) string {
		t.Helper()
		m, err := st.MessageByID(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return m.Content.Options.ReplyTo.Channel
	}
	lease := func(t *testing.T, st dispatch.Store, names ...string) {
		t.Helper()
		if err := st.Register(t.Context(), store.Node{ID: "other"}); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if _, _, err := st.AcquireLease(t.Context(), name, "other"); err != nil {
				t.Fatal(err)
			}
		}
	}
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		lease(t, st, "telegram:666")
		h := open(t, st)
		defer h.close()
		m, err := deliver(t, h, "agent:main:telegram:direct:7")
		want(t, "error", err, nil)
		want(t, "the only account", account(t, st, m.ID), "telegram:666")
		m, err = deliver(t, h, "agent:main:box:direct:7")
		want(t, "error", err, nil)
		want(t, "a channel without accounts", account(t, st, m.ID), "box")
		m, err = deliver(t, h, "agent:main:main")
		want(t, "error", err, nil)
		want(t, "a session without a chat", account(t, st, m.ID), "")
	})
	synctest.Test(t, func(t *testing.T) {
		st := newStore(t)
		lease(t, st, "telegram:666", "telegram:777")
		h := open(t, st)
		defer h.close()
		h.end(h.send("agent:main:telegram:direct:7", "from the chat", func(m *chat.Message) { m.Principal, m.Channel = "telegram:777:7", "telegram:777" }))
		m, err := deliver(t, h, "agent:main:telegram:direct:7")
		want(t, "error", err, nil)
		want(t, "the account of the owner of the session", account(t, st, m.ID), "telegram:777")
		if _, err = deliver(t, h, "agent:main:telegram:direct:8"); err == nil {
			t.Error("an address of two accounts was taken")
		} else {
			want(t, "refusal", err.Error(), "there are several accounts of telegram (telegram:666, telegram:777); name one of them")
		}
	})
}
