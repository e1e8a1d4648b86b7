package dispatch_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
)

// mute is a store that commits some ends of waiting messages and loses the response.
type mute struct {
	cronStore

	ends, stops, starts atomic.Int64 // responses to lose
}

func (m *mute) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	s, err := m.cronStore.Start(ctx, p)
	if m.starts.Add(-1) >= 0 {
		return store.Started{}, chat.ErrStoreUnavailable
	}
	return s, err
}

func (m *mute) EndWaiting(ctx context.Context, p store.EndParams) ([]store.Waiting, error) {
	ended, err := m.cronStore.EndWaiting(ctx, p)
	if m.ends.Add(-1) >= 0 {
		return nil, chat.ErrStoreUnavailable
	}
	return ended, err
}

func (m *mute) Stop(ctx context.Context, p store.StopParams) (store.Stopped, error) {
	s, err := m.cronStore.Stop(ctx, p)
	if m.stops.Add(-1) >= 0 {
		return store.Stopped{}, chat.ErrStoreUnavailable
	}
	return s, err
}

// ends counts the final events of a message.
func (h *harness) ends(id string) int {
	n := 0
	for _, k := range h.kinds(id) {
		if slices.Contains([]string{string(chat.EventFinal), string(chat.EventAborted), string(chat.EventFailed)}, k) {
			n++
		}
	}
	return n
}

// Responses of the store are lost after the commits of ends. Subscribers still receive each end exactly once.
func TestAMessageWhoseEndWasNotAnsweredHasOneFinalEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command     string
		ends, stops int64
	}{
		"cleared, two answers lost": {"/queue clear", 2, 0},
		"stopped":                   {"/stopall", 0, 1},
		"both":                      {"/stopall", 1, 2},
	} {
		for _, kind := range []string{"memory", "sqlite"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					st := &mute{cronStore: newStore(t)}
					if kind == "sqlite" {
						db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "lost.db")})
						if err != nil {
							t.Fatal(err)
						}
						defer func() { _ = db.Close() }()
						st.cronStore = db
					}
					h := open(t, st)
					defer h.close()
					running := h.send("main", "sleep 10m")
					synctest.Wait()
					ids := []string{h.send("main", "one"), h.send("main", "two")}
					synctest.Wait()
					st.ends.Store(c.ends)
					st.stops.Store(c.stops)
					h.end(h.send("main", c.command))
					synctest.Wait()
					h.end(h.send("main", "/stop"))
					h.end(running)
					synctest.Wait()
					for _, id := range append(ids, running) {
						want(t, "final events of "+id, h.ends(id), 1)
					}
				})
			})
		}
	}
}

// The replies to the start are lost until the turn was stopped. It would stay running in the store without a turn in this process.
func TestStoppedTurnWhoseStartWasLostEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := &mute{cronStore: newStore(t)}
		h := open(t, st)
		defer h.close()
		st.starts.Store(5) // with the pauses between them, more than half a second
		id := h.send("main", "hello")
		time.Sleep(300 * time.Millisecond)
		h.end(h.send("main", "/stop"))
		h.end(id)
		synctest.Wait()
		want(t, "final events", h.ends(id), 1)
		if run, err := st.RunByID(t.Context(), id); err == nil && (run.State == store.RunRunning || run.State == store.RunStopping) {
			t.Errorf("the run is %s", run.State)
		}
		h.end(h.send("main", "the next"))
	})
}
