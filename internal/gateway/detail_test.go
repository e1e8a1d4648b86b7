package gateway_test

import (
	"strings"
	"testing"

	"laneway/internal/chat"
)

// The message of an agent's service is for administrators: not for a token with fewer permissions, a connection that did not request them,
// or an administrator of only its own sessions.
func TestOnlyAdministratorsReadWhatTheServiceWrote(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		token  string
		scopes []string
		reads  bool
	}{
		"administrator":      {adminToken, []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}, true},
		"with fewer scopes":  {adminToken, []string{chat.ScopeRead, chat.ScopeWrite}, false},
		"writer":             {writeToken, []string{chat.ScopeRead, chat.ScopeWrite}, false},
		"of its own, though": {annaToken, []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			s := b.dial()
			f := connectFrame(tc.token)
			f["params"].(params)["scopes"] = tc.scopes
			s.send(f)
			if f := s.read(); !f.OK {
				t.Fatalf("%+v", f.Error)
			}
			s.request("1", "agent", params{"message": "refused", "idempotencyKey": "k-1", "sessionKey": "agent:main:x"})
			check := func(where, text string) {
				if strings.Contains(text, "no such model") != tc.reads || !strings.HasPrefix(text, "the model service did not accept it") {
					t.Errorf("%s: %q", where, text)
				}
			}
			for ends := 0; ends < 3; {
				switch f := s.read(); {
				case f.Type == "res" && !f.OK:
					check("answer", f.Error.Message)
					ends++
				case f.Event == "chat":
					check("event", decode[struct{ ErrorMessage string }](t, f.Payload).ErrorMessage)
					ends++
				case f.Event == "agent" && strings.Contains(string(f.Payload), `"error"`):
					check("life cycle", decode[struct{ Data struct{ Error string } }](t, f.Payload).Data.Error)
					ends++
				}
			}
		})
	}
}
