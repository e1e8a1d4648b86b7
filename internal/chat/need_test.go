package chat_test

import (
	"testing"

	"laneway/internal/chat"
)

func TestANeedPassesWhoHasItOrMayOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		need   chat.Need
		passes map[string]bool
	}{
		{chat.Need{}, nil},
		{chat.Need{Owner: true}, nil},
		{chat.Need{Scope: "operator.root", Owner: true}, nil},
		{chat.Need{Scope: chat.ScopeRead, Owner: true}, map[string]bool{chat.ScopeRead: true, chat.ScopeWrite: true, chat.ScopeAdmin: true}},
		{chat.Need{Scope: chat.ScopeWrite}, map[string]bool{chat.ScopeWrite: true, chat.ScopeAdmin: true}},
		{chat.Need{Scope: chat.ScopeAdmin}, map[string]bool{chat.ScopeAdmin: true}},
		{chat.Need{Scope: chat.ScopeAdmin, Owner: true}, map[string]bool{chat.ScopeWrite: true, chat.ScopeAdmin: true}},
	} {
		for _, scope := range []string{"", "admin", "operator.root", chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin} {
			if got := c.need.Passes(scope); got != c.passes[scope] {
				t.Errorf("%+v passes %q: %t", c.need, scope, got)
			}
		}
	}
}

func TestASessionIsChangedByItsOwnerOrAnAdministrator(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		principal, scope, key, owner string
		absent, may                  bool
	}{
		{principal: "gateway", scope: chat.ScopeAdmin, key: "agent:main:main", owner: "write", may: true},
		{principal: "telegram:7", scope: chat.ScopeAdmin, key: "agent:main:telegram:group:-5", owner: "telegram:8", may: true},
		{principal: "write", scope: chat.ScopeWrite, key: "agent:main:main", owner: "write", may: true},
		{principal: "write", scope: chat.ScopeWrite, key: "agent:main:main", owner: "gateway"},
		{principal: "write", scope: chat.ScopeRead, key: "agent:main:main", owner: "write"},
		{principal: "write", scope: "", key: "agent:main:main", owner: "write"},
		{principal: "write", scope: chat.ScopeWrite, key: "agent:main:new", absent: true, may: true},
		{principal: "telegram:7", scope: chat.ScopeWrite, key: "agent:main:telegram:direct:7", owner: "telegram:7", may: true},
		{principal: "telegram:7", scope: chat.ScopeWrite, key: "agent:main:telegram:direct:7", absent: true, may: true},
		{principal: "telegram:7", scope: chat.ScopeWrite, key: "agent:main:telegram:group:-5", owner: "telegram:7"},
		{principal: "telegram:7", scope: chat.ScopeWrite, key: "agent:main:main", owner: "telegram:7"},
		{principal: "hook:ci", scope: chat.ScopeWrite, key: "agent:main:hook:ci", owner: "hook:ci"},
	} {
		key, err := chat.ParseSessionKey(c.key, "main")
		if err != nil {
			t.Fatal(err)
		}
		by := chat.Caller{Principal: c.principal, Scopes: []string{c.scope}}
		if got := by.MayChange(key, c.owner, !c.absent); got != c.may {
			t.Errorf("%s with %q on %s of %q: %t", c.principal, c.scope, c.key, c.owner, got)
		}
	}
}
