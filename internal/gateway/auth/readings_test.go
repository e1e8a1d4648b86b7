package auth

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
)

// slowSource is a slow source that counts its readings.
type slowSource struct {
	mu    sync.Mutex
	list  []Credential
	reads atomic.Int64
	took  time.Duration
}

func (s *slowSource) Credentials(ctx context.Context) ([]Credential, error) {
	s.reads.Add(1)
	s.mu.Lock()
	list := s.list // as it is when the reading starts
	s.mu.Unlock()
	select {
	case <-time.After(s.took):
		return list, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *slowSource) put(name, secret string, scopes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(slices.Clip(s.list), Credential{Name: name, Digest: sha256.Sum256([]byte(secret)), Scopes: scopes})
}

func withSource(t *testing.T, src Source) *Authenticator {
	t.Helper()
	a, err := New(Config{Sources: []Source{src}, Limiter: NewLimiter(Limits{})}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// local is never locked out.
func local() netip.Addr { return netip.MustParseAddr("127.0.0.1") }

// Before, a token was refused for up to two seconds after it was made.
func TestNewTokenWorksAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &slowSource{took: 5 * time.Millisecond}
		a := withSource(t, src)
		for i := range 3 {
			began, secret := time.Now(), "secret-"+strconv.Itoa(i)
			src.put("t"+strconv.Itoa(i), secret, chat.ScopeRead)
			if _, e := a.Identify(t.Context(), Secret{Token: secret}, local()); e != nil {
				t.Errorf("token %d: %v", i, e)
			}
			if took := time.Since(began); took > readPause+src.took {
				t.Errorf("token %d took %s", i, took)
			}
		}
	})
}

// A token that is made during a reading is not in the list that this reading returns.
func TestTokenThatAReadingHasMissedIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &slowSource{took: 50 * time.Millisecond}
		a := withSource(t, src)
		var others sync.WaitGroup
		others.Go(func() { a.Identify(t.Context(), Secret{Token: "wrong"}, local()) })
		time.Sleep(10 * time.Millisecond)
		src.put("late", "late", chat.ScopeRead)
		if _, e := a.Identify(t.Context(), Secret{Token: "late"}, local()); e != nil || src.reads.Load() != 2 {
			t.Errorf("%v after %d readings, want a success after 2", e, src.reads.Load())
		}
		others.Wait()
	})
}

// Clients that guess secrets cause at most ten readings a second, whatever their number. A missing
// or a known secret causes none.
func TestUnknownSecretsShareTheirReadings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &slowSource{took: time.Millisecond}
		src.put("known", "known", chat.ScopeRead)
		a := withSource(t, src)
		a.Refresh(t.Context())
		for range 100 {
			a.Identify(t.Context(), Secret{}, local())
			if _, e := a.Identify(t.Context(), Secret{Token: "known"}, local()); e != nil {
				t.Fatal(e)
			}
		}
		if n := src.reads.Load(); n != 1 {
			t.Errorf("%d readings without an unknown secret, want 1", n)
		}
		over, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var all sync.WaitGroup
		var refused atomic.Int64
		for i := range 200 {
			all.Go(func() {
				for n := 0; over.Err() == nil; n++ {
					if _, e := a.Identify(over, Secret{Token: "guess-" + strconv.Itoa(i) + "-" + strconv.Itoa(n)}, local()); e != nil {
						refused.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := src.reads.Load(); n < 20 || n > 52 {
			t.Errorf("%d readings in 5 s for %d guesses, want at most 10 a second", n, refused.Load())
		}
	})
}

// A caller that leaves does not wait for the reading, and the reading continues for the callers
// that wait.
func TestReadingOutlivesTheCallerThatRunsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &slowSource{took: 50 * time.Millisecond}
		a := withSource(t, src)
		src.put("new", "new", chat.ScopeRead)
		gone, cancel := context.WithCancel(t.Context())
		var leader sync.WaitGroup
		leader.Go(func() { a.Identify(gone, Secret{Token: "guess"}, local()) })
		time.AfterFunc(10*time.Millisecond, cancel)
		synctest.Wait()
		if _, e := a.Identify(t.Context(), Secret{Token: "new"}, local()); e != nil {
			t.Error(e)
		}
		leader.Wait()
		cancel()
		began := time.Now()
		if _, e := a.Identify(gone, Secret{Token: "guess"}, local()); e == nil || time.Since(began) != 0 {
			t.Errorf("a caller that is gone: %v after %s", e, time.Since(began))
		}
	})
}

// The error for a missing scope names the scopes of the token, and a command that makes one with
// the scope.
func TestMissingScopeNamesTheCommandThatGivesIt(t *testing.T) {
	t.Parallel()
	src := &slowSource{}
	src.put("reader", "reader", chat.ScopeRead)
	a := withSource(t, src)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/v1/chat/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer reader")
	_, e := a.Bearer(r, local(), chat.ScopeWrite)
	if e == nil || !strings.HasPrefix(e.Message, "missing scope: operator.write") || !strings.Contains(e.Message, "laneway token create NAME --scope write") ||
		!strings.Contains(e.Message, "has operator.read") {
		t.Errorf("%v", e)
	}
}

// The gateway reads no credentials while no client is connected.
func TestARevokedSecretIsRefusedAfterAnIdleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &slowSource{}
		src.put("ci", "ci-secret", chat.ScopeRead)
		a := withSource(t, src)
		a.Refresh(t.Context())
		ask := func() bool {
			_, refused := a.Identify(t.Context(), Secret{Token: "ci-secret"}, netip.Addr{})
			return refused == nil
		}
		src.list = nil
		if !ask() || src.reads.Load() != 1 {
			t.Errorf("a known secret was read %d times, want 1: the list is young", src.reads.Load())
		}
		time.Sleep(listAge + time.Millisecond)
		if ask() {
			t.Error("a revoked secret was let in by an old list")
		}
	})
}
