package app

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/config"
)

// Before, the log of a reload always named lanes and queue.
func TestAReloadNamesWhatChanged(t *testing.T) {
	t.Parallel()
	old := config.Default()
	next := old
	if got := settingChanges("lanes", old.Lanes, next.Lanes); len(got) > 0 {
		t.Errorf("nothing has changed, got %q", got)
	}
	next.Lanes.Main, next.Queue.Mode, next.Queue.Cap = 3, "collect", 20
	if got, want := settingChanges("lanes", old.Lanes, next.Lanes), []string{"lanes.main: 30 → 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := settingChanges("queue", old.Queue, next.Queue), []string{"queue.mode: queue → collect", "queue.cap: 10 → 20"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A watchdog that is fed while nothing moves would keep a stuck process alive.
func TestTheWatchdogStarvesWhileWorkIsStalled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	m := &serviceManager{address: path}
	asked := make(chan struct{})
	var moves atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	m.follow(func() bool {
		select {
		case asked <- struct{}{}:
		case <-ctx.Done():
		}
		return !moves.Load()
	})
	ended := make(chan struct{})
	go func() { defer close(ended); m.feed(ctx, time.Millisecond) }()
	for range 3 {
		<-asked
	}
	if err := m.tell(ctx, "three times asked"); err != nil {
		t.Fatal(err)
	}
	moves.Store(true)
	<-asked
	<-asked
	for _, want := range []string{"three times asked", "WATCHDOG=1"} {
		state := make([]byte, 100)
		if n, err := socket.Read(state); err != nil || string(state[:n]) != want {
			t.Errorf("told %q, %v, want %q", state[:n], err, want)
		}
	}
	cancel()
	<-ended
	for env, want := range map[string]time.Duration{"WATCHDOG_USEC=60000000": time.Minute, "WATCHDOG_USEC=x": 0, "": 0, "WATCHDOG_USEC=60000000 WATCHDOG_PID=1": 0} {
		lookup := func(name string) (string, bool) {
			for _, v := range strings.Fields(env) {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value, true
				}
			}
			return "", false
		}
		if got := watchdogOf(lookup); got != want {
			t.Errorf("%q: %v, want %v", env, got, want)
		}
	}
}
