package chat_test

import (
	"testing"

	"laneway/internal/chat"
)

func TestAKeySaysByItselfWhoseItIs(t *testing.T) {
	t.Parallel()
	const free, mine, made, none = chat.RightFree, chat.RightMine, chat.RightMade, chat.RightNone
	for _, tc := range []struct {
		rest, principal string
		want            chat.Right
	}{
		{"main", "ann", none},
		{"notes", "ann", free},
		{"web:direct:ann", "ann", free},
		{"hook", "ann", free},
		{"api", "ann", free},
		{"cron:nightly", "ann", made},
		{"mcp-ann", "ann", mine},
		{"mcp-ann", "an", none},
		{"mcp-ann", "telegram:7", none},
		{"mcp-ann-x", "ann", none},
		{"mcp-ann:x", "bob", free},
		{"mcp-", "ann", free},
		{"mcp", "ann", free},
		{"xmcp-ann", "bob", free},
		{"main:2", "ann", free},
		{"hooks:x", "ann", free},
		{"telegram:direct:7", "ann", none},
		{"telegram:group:-7:topic:3", "ann", none},
		{"telegram:direct:7", "telegram", none},
		{"telegram:direct:7", "telegram:7", mine},
		{"telegram:group:-7", "telegram:work:8", mine},
		{"box:direct:7", "ann", none},
		{"hook:deploy", "ann", none},
		{"hook:deploy", "hook:deploy", mine},
		{"hook:deploy", "hook:other", none},
		{"hook:deploy:x", "hook:deploy", none},
		{"api:ann:u", "ann", mine},
		{"api:ann:u", "an", none},
		{"api:ann", "ann", made},
		{"api:ann:u:v", "ann", mine},
		{"api::u", "ann", none},
		{"cron:j:manual-1", "ann", made},
	} {
		key := chat.SessionKey{Agent: "main", Rest: tc.rest}
		if got := key.RightOf(tc.principal); got != tc.want {
			t.Errorf("%s for %s: %d, want %d", key, tc.principal, got, tc.want)
		}
		usable := [3]bool{key.UsableBy(tc.principal, "", false), key.UsableBy(tc.principal, tc.principal, true), key.UsableBy(tc.principal, "otto", true)}
		want := map[chat.Right][3]bool{free: {true, true}, mine: {true, true}, made: {false, true}}[tc.want]
		if usable != want {
			t.Errorf("%s is usable by %s when absent, theirs, another's: %v, want %v", key, tc.principal, usable, want)
		}
	}
}
