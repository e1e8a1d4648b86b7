package teste2e

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// startLimit is how long the operator waits for the start of one message before it continues without it.
const startLimit = 20 * time.Second

// operate is the operator during a stage. It calls health every 20 ms, and sends a message to the idle agent every 100 ms once the previous
// one has started. The returned function waits for the end and returns the 99th percentile of the health calls, the longest start, and
// their numbers.
func (a *abuseLife) operate(stop <-chan struct{}) func() (health, start time.Duration, healths, messages int) {
	a.t.Helper()
	token := a.g.Token()
	starts := &starts{waiting: map[string]chan struct{}{}}
	looking, err := Dial(a.g.URL(), token, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	speaking, err := Dial(a.g.URL(), token, starts.event)
	if err != nil {
		a.t.Fatal(err)
	}
	var (
		took, began []time.Duration
		all         sync.WaitGroup
	)
	all.Go(func() {
		defer looking.Close()
		each(stop, 20*time.Millisecond, func(int) bool {
			at := time.Now()
			_, err := looking.Call("health", map[string]any{}, 30*time.Second)
			took = append(took, time.Since(at))
			if err != nil {
				a.t.Errorf("the operator's health: %v", err)
			}
			return err == nil
		})
	})
	all.Go(func() {
		defer speaking.Close()
		each(stop, 100*time.Millisecond, func(n int) bool {
			d, err := starts.send(speaking, fmt.Sprintf("operator-%d-%d", a.world.stage, n))
			began = append(began, d)
			if err != nil {
				a.t.Errorf("the operator's message: %v", err)
			}
			return err == nil
		})
	})
	return func() (time.Duration, time.Duration, int, int) {
		all.Wait()
		_, health, _ := quantiles(took)
		_, _, start := quantiles(began)
		return health, start, len(took), len(began)
	}
}

// each calls f at once and then after every pause, until stop is closed or f returns false.
func each(stop <-chan struct{}, distance time.Duration, f func(n int) bool) {
	tick := time.NewTicker(distance)
	defer tick.Stop()
	for n := 0; f(n); n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// starts records which messages wait for their start.
type starts struct {
	mu      sync.Mutex
	waiting map[string]chan struct{} // by run id
}

// event closes the channel of a run at its first event: the start of its life cycle.
func (s *starts) event(e Event) {
	if e.Name != "agent" {
		return
	}
	var p struct {
		RunID  string
		Stream string
		Data   struct{ Phase string }
	}
	if json.Unmarshal(e.Payload, &p) != nil || p.Stream != "lifecycle" || p.Data.Phase != "start" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.waiting[p.RunID]; ch != nil {
		close(ch)
		delete(s.waiting, p.RunID)
	}
}

// send sends a message to the idle agent and returns the time until the turn starts.
func (s *starts) send(c *Client, key string) (time.Duration, error) {
	started := make(chan struct{})
	s.mu.Lock()
	s.waiting[key] = started
	s.mu.Unlock()
	at := time.Now()
	if _, err := c.Call("chat.send", map[string]any{"sessionKey": "agent:idle:" + key, "message": "hello", "idempotencyKey": key}, 30*time.Second); err != nil {
		return time.Since(at), err
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-started:
	case <-limit.C:
	}
	return time.Since(at), nil
}
