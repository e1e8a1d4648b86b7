package sqlstore

import (
	"testing"

	"laneway/internal/chat"
)

func TestKeysReadBack(t *testing.T) {
	t.Parallel()
	for _, key := range []chat.SessionKey{
		chat.MainKey("main"), chat.PeerKey("a-b", "telegram:7", "group", "-100", "5"), {Agent: "x", Rest: "api:://:"},
	} {
		if got := parseKey(key.String()); got != key {
			t.Errorf("got %+v, want %+v", got, key)
		}
	}
}
