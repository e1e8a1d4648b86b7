package teste2e

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"laneway/internal/testpg"
)

// With one connection for everything but the turns, each change of a job still comes to its end, also many at once: nothing waits for a second connection
// while it holds the one. (SQLite has one writer, always.)
func TestChangesOfJobsNeedOneConnection(t *testing.T) {
	t.Parallel()
	for store, database := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "" }, "postgres": testpg.DB} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			g := Install(t, database(t), "limits: {chat: 0, cron_writes: 0, requests: 0}\n")
			g.env = append(g.env, "LANEWAY_DATABASE_CONNS=2")
			g.Start()
			c := dialWhenKnown(t, g, g.named(t, "alice"), nil)
			defer c.Close()
			const limit = 10 * time.Second
			hourly := map[string]any{"kind": "every", "everyMs": 3_600_000}
			call := func(method string, params map[string]any) error {
				_, err := c.Call(method, params, limit)
				if wire := (*WireError)(nil); errors.As(err, &wire) && wire.Details["code"] == "CRON_JOB_CHANGED" {
					return nil // others were faster each time: an answer as good as any other
				}
				if err != nil {
					return fmt.Errorf("%s: %w", method, err)
				}
				return nil
			}
			var job struct{ ID string }
			params := map[string]any{
				"name": "n", "schedule": hourly, "sessionTarget": "session:agent:main:alice", "payload": map[string]any{"kind": "agentTurn", "message": "hi"},
				"delivery": map[string]any{"mode": "none"},
			}
			if err := c.Into(&job, "cron.add", params); err != nil {
				t.Fatal(err)
			}
			var calling sync.WaitGroup
			for i := range 8 {
				calling.Go(func() {
					for _, err := range []error{
						call("cron.add", params),
						call("cron.update", map[string]any{"id": job.ID, "patch": map[string]any{"description": fmt.Sprint("d", i)}}),
						call("cron.pause", map[string]any{"id": job.ID, "note": "quiet"}),
						call("cron.resume", map[string]any{"id": job.ID}),
						call("cron.run", map[string]any{"id": job.ID}),
					} {
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			calling.Wait()
			if err := call("cron.remove", map[string]any{"id": job.ID}); err != nil {
				t.Error(err)
			}
		})
	}
}
