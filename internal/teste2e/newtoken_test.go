package teste2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestANewTokenWorksAtOnce makes tokens beside a running gateway. Each is in force for its first request, over HTTP and over a socket; before, both were
// refused for as long as two seconds.
func TestANewTokenWorksAtOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\n")
		g.Start()
		for i, use := range []func(token string) error{
			func(token string) error {
				a := g.post("/v1/chat/completions", []byte(`{"model":"laneway","messages":[{"role":"user","content":"hi"}]}`), map[string]string{"Authorization": "Bearer " + token})
				if a.Status != http.StatusOK {
					return fmt.Errorf("%d %s %w", a.Status, a.Body, a.Err)
				}
				return nil
			},
			func(token string) error {
				c, err := Dial(g.URL(), token, nil)
				if err == nil {
					c.Close()
				}
				return err
			},
		} {
			out, errs, code := g.CLI(t.Context(), "", "token", "create", fmt.Sprintf("new%d", i), "--scope", "write")
			if code != 0 {
				t.Fatalf("%d %s %s", code, out, errs)
			}
			words := strings.Fields(out)
			at := slices.IndexFunc(words, func(w string) bool { return len(w) == 43 })
			if at < 0 {
				t.Fatalf("no secret in %q", out)
			}
			began := time.Now()
			if err := use(words[at]); err != nil {
				t.Errorf("the first use of token %d: %v", i, err)
			}
			t.Logf("the first use took %s", time.Since(began).Round(time.Millisecond))
		}
	})
}
