package chat_test

import (
	"testing"

	"laneway/internal/chat"
)

func TestARunIsShownByTheKeyThatNamedIt(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, principal := range []string{"gateway", "write", "anna", "otto", "schedule"} {
		for _, key := range []string{"k", "0b6c1f7e-90a1-4c55-8a0e-1f2d3c4b5a69", "gateway"} {
			id := chat.RunIDOf(principal, key)
			if shown := chat.ShownRunID(id); shown != key || seen[id] {
				t.Errorf("%s of %s is %s, which is shown as %s", key, principal, id, shown)
			}
			seen[id] = true
		}
		if id := chat.RunIDOf(principal, ""); id != "" {
			t.Errorf("no key of %s is %q", principal, id)
		}
	}
	for _, id := range []string{"", "0b6c1f7e", "schedule:job:1803974400000", "manual:a:1", ":::"} {
		if shown := chat.ShownRunID(id); shown != id {
			t.Errorf("%q is shown as %q", id, shown)
		}
	}
}
