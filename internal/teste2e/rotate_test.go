package teste2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// rotateTime limits the time until a new secret in a file is valid; it includes the delays of the race detector and busy machines.
const rotateTime = 5 * time.Second

// replaceFile replaces a file atomically, as an operator should.
func replaceFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	draft := path + ".next"
	if err := os.WriteFile(draft, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, path); err != nil {
		t.Fatal(err)
	}
}

// A new token in the file takes effect without a restart, on every replica that reads it: the old one is refused and its sockets are
// closed; other credentials are not affected.
func TestAnotherTokenInTheFileActsWithoutARestart(t *testing.T) {
	t.Parallel()
	const reader = "reader-token-Hg5Fd3Sa1Po9Iu7Yt"
	const second = "second-token-Zk7Qw3Rt9Yb2Nc5Vm8Xa"
	for store, replicas := range map[string]int{"sqlite": 1, "postgres": 2} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			database := ""
			if store == "postgres" {
				database = testpg.DB(t)
			}
			file := filepath.Join(t.TempDir(), "token")
			replaceFile(t, file, strongToken+"\n", 0o600)
			var all []*Gateway
			for range replicas {
				g := Install(t, database, manySockets+"token_file: "+file+"\nread_token: "+reader+"\n")
				g.Start()
				all = append(all, g)
			}
			n := 60
			var old, others []*bare
			for _, g := range all {
				old = append(old, openAll(t, g, strongToken, n)...)
				others = append(others, openAll(t, g, reader, 3)...)
			}
			replaceFile(t, file, second+"\n", 0o600)
			began := time.Now()
			var closing sync.WaitGroup
			var last atomic.Int64
			for i, b := range old {
				closing.Go(func() {
					if code := b.end(4 * rotateTime); code != 1008 {
						t.Errorf("socket %d was closed with %d, want 1008", i, code)
					}
					took := time.Since(began)
					for most := last.Load(); int64(took) > most && !last.CompareAndSwap(most, int64(took)); most = last.Load() {
					}
				})
			}
			closing.Wait()
			t.Logf("figure: %d sockets on %d replicas were closed %s after the exchange of their token", len(old), replicas, time.Duration(last.Load()).Round(time.Millisecond))
			if took := time.Duration(last.Load()); took > rotateTime {
				t.Errorf("the last socket was closed after %s, want %s", took, rotateTime)
			}
			for _, g := range all {
				if _, err := Dial(g.URL(), strongToken, nil); err == nil || !strings.Contains(err.Error(), "gateway token mismatch") {
					t.Errorf("the old token: %v, want a refusal", err)
				}
				connectWith(t, g, second)
			}
			for i, b := range others {
				if err := b.request("h", "health", map[string]any{}); err != nil {
					t.Fatal(err)
				}
				if _, err := b.answer("h"); err != nil {
					t.Errorf("socket %d of another credential: %v", i, err)
				}
			}
			rows := OpenOracle(t, all[0], database).Rows(`SELECT who, verb, object FROM audit_log WHERE verb = 'token.rotate'`)
			if len(rows) != replicas {
				t.Errorf("the log of changes has %v, want a row of each of %d replicas", rows, replicas)
			}
		})
	}
}

// A file that a start would refuse changes nothing, and the log gives the reason, without the secret.
func TestABadTokenFileLocksNoClientOut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	const open = "token-in-an-open-file-Zk7Qw3Rt9Yb2"
	g := Install(t, "", "")
	g.Start()
	token := g.Token()
	file := filepath.Join(g.Dir, "data", "token")
	c := connectWith(t, g, token)
	for _, tc := range []struct {
		text string
		mode os.FileMode
		says string
	}{
		{open, 0o644, "has mode 0644; run: chmod 600 " + file},
		{"\n", 0o600, "is empty; remove it or make it: openssl rand -hex 32"},
	} {
		replaceFile(t, file, tc.text, tc.mode)
		testrun.Eventually(t, "the log says "+tc.says, func() bool { return strings.Contains(g.Output(), tc.says) })
		if _, err := c.Call("health", nil, 20*time.Second); err != nil {
			t.Errorf("an open connection after %q: %v", tc.says, err)
		}
		connectWith(t, g, token)
	}
	if _, err := Dial(g.URL(), open, nil); err == nil {
		t.Error("a token in a file that all users can read was accepted")
	}
	replaceFile(t, file, token+"\n", 0o600)
	if strings.Contains(g.Output(), open) || strings.Contains(g.Output(), token) {
		t.Error("a token is in the log")
	}
}

// connectWith is a client with a token, closed with the test.
func connectWith(t *testing.T, g *Gateway, token string) *Client {
	t.Helper()
	c, err := Dial(g.URL(), token, nil)
	if err != nil {
		t.Fatal(fmt.Errorf("connecting: %w", err))
	}
	t.Cleanup(c.Close)
	return c
}
