package teste2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// One turn never ends, one ends a second into the drain, and five wait. A client that waits for an
// answer receives it, or the error that the gateway stops. Interrupted and waiting work continues
// in the next process.
func TestADrainEndsInTimeAndAnswersEveryCaller(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "lanes: {main: 2}\nagents: {main: {runner: echo, script: true}}\nlimits: {chat: 0, requests: 0}\ndrain_timeout: 2s\n").AtOnce()
		g.Start()
		e := newEndings()
		c := mustDial(t, g, e.take)
		o := OpenOracle(t, g, database)
		texts := []string{"hang", "sleep 1500ms", "a", "b", "c", "d", "e"}
		answers := make([]Answer, len(texts))
		var callers sync.WaitGroup
		for i, text := range texts {
			callers.Go(func() { answers[i] = g.Complete(fmt.Sprint("agent:main:caller", i), text) })
			if i == 1 {
				testrun.Eventually(t, "both turns run", func() bool { return o.Count("SELECT count(*) FROM runs WHERE state = 'running'") == 2 })
			}
		}
		say(t, c, "main", "also", "over the socket")
		testrun.Eventually(t, "all are accepted", func() bool { return o.Count("SELECT count(*) FROM inbox") == len(texts)+1 })
		g.Signal(syscall.SIGTERM)
		testrun.Eventually(t, "it says that it drains", func() bool { code, _ := g.Get("/readyz"); return code == http.StatusServiceUnavailable })
		_, err := c.Call("chat.send", map[string]any{"sessionKey": "main", "message": "late", "idempotencyKey": "late"}, 10*time.Second)
		if refusal, ok := errors.AsType[*WireError](err); !ok || refusal.Details["code"] != "GATEWAY_DRAINING" || !refusal.Retryable {
			t.Errorf("a message during the drain got %v, want GATEWAY_DRAINING", err)
		}
		took, code := g.WaitExit(15 * time.Second)
		t.Logf("exit %d after %s", code, took.Round(time.Millisecond))
		if code != 0 || took > 7*time.Second {
			t.Errorf("exit code %d after %s, want 0 within the drain timeout of 2s and 5s more", code, took)
		}
		callers.Wait()
		for i, a := range answers {
			switch {
			case a.Err != nil:
				t.Errorf("the caller of %q got no answer: %v", texts[i], a.Err)
			case i == 1 && a.Status != http.StatusOK:
				t.Errorf("the turn that ended in time was answered %d %s", a.Status, a.Body)
			case i != 1 && (a.Status != http.StatusServiceUnavailable || !strings.Contains(a.Body, "message")):
				t.Errorf("the caller of %q got %d %s", texts[i], a.Status, a.Body)
			}
		}
		if n := o.Count("SELECT count(*) FROM runs WHERE state = 'interrupted'"); n != 1 {
			t.Errorf("%d runs were interrupted, want the one that never ends", n)
		}
		if n := o.Count("SELECT count(*) FROM runs WHERE state IN ('running', 'stopping')"); n != 0 {
			t.Errorf("%d runs say that they still run", n)
		}
		g.Start()
		testrun.Eventually(t, "what waited is answered by the next process", func() bool {
			return o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'") == len(texts)
		})
		o.Check(15 * time.Second)
	})
}

// The signal is sent at many moments of a start with an empty database: the process ends in time,
// damages nothing, and the next start finds a usable schema.
func TestSIGTERMDuringTheStartEndsCleanly(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		if database != "" {
			database = testpg.Empty(t) // the start creates the tables
		}
		g := Install(t, database, "agents: {main: {runner: echo}}\n")
		for i := range 12 {
			p, _, err := g.launch()
			if err != nil {
				t.Fatal(err)
			}
			pauseFor(time.Duration(i*i) * 3 * time.Millisecond)
			g.Signal(syscall.SIGTERM)
			took, code := g.WaitExit(30 * time.Second)
			killed := code == -1 && p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM // before it could handle signals
			if code != 0 && !killed {
				t.Errorf("signal after %d ms: exit code %d\n%s", i*i*3, code, p.output)
			}
			if took > 5*time.Second {
				t.Errorf("signal after %d ms: the end took %s", i*i*3, took)
			}
		}
		g.Start()
		if out, errs, code := g.CLI(withTimeout(t, time.Minute), "", "send", "hello"); out != "hello\n" || code != 0 {
			t.Errorf("after twelve broken starts: %q %q, code %d", out, errs, code)
		}
		OpenOracle(t, g, database).Check(15 * time.Second)
	})
}

// The PostgreSQL server of the stopped gateway is unavailable, and its turn waits to be written.
func TestSIGTERMWithTheDatabaseDownEndsInTime(t *testing.T) {
	t.Parallel()
	server := testpg.Private(t, testpg.ServerConfig{})
	g := Install(t, server.URL(), "cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\nagents: {main: {runner: echo, script: true}}\ndrain_timeout: 2s\n")
	g.Start()
	c := mustDial(t, g, nil)
	say(t, c, "main", "long", "sleep 1h")
	say(t, c, "other", "short", "sleep 1s")
	if err := server.Halt(true); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "it notices", func() bool { code, _ := g.Get("/readyz"); return code == http.StatusServiceUnavailable })
	if _, errs, code := g.CLI(withTimeout(t, time.Minute), "", "health", "--ready"); code != 1 || errs == "" {
		t.Errorf("health --ready without a database: code %d, %q", code, errs)
	}
	if _, errs, code := g.CLI(withTimeout(t, time.Minute), "", "health"); code != 0 {
		t.Errorf("health without a database: code %d, %q; a restart would not fix the database", code, errs)
	}
	g.Signal(syscall.SIGTERM)
	took, _ := g.WaitExit(30 * time.Second)
	t.Logf("ended after %s", took.Round(time.Millisecond))
	if took > 7*time.Second {
		t.Errorf("the end took %s, want the drain timeout of 2s and 5s more", took)
	}
	if err := server.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	g.Start()
	o := OpenOracle(t, g, server.URL())
	testrun.Eventually(t, "the messages run again in the next process", func() bool {
		return o.Count("SELECT count(*) FROM inbox WHERE message_id = 'short' AND outcome = 'answered'") == 1 &&
			o.Count("SELECT count(*) FROM runs WHERE id = 'long' AND state = 'running'") == 1
	})
	o.Check(5 * time.Second)
}

// Before, the ports closed at the same time as /readyz started to fail, so a load balancer sent
// requests to a closed port until it detected that.
func TestAGatewayServesOnWhileItIsNotReadyAnyMore(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "shutdown_delay: 3s\n")
		g.Start()
		g.Signal(syscall.SIGTERM)
		began := time.Now()
		testrun.Eventually(t, "/readyz fails", func() bool { return g.ready(t, http.StatusServiceUnavailable, `"draining":true`) })
		if a := g.Complete("agent:main:main", "hello"); a.Status != http.StatusOK {
			t.Errorf("a message in the delay: %d %s %v", a.Status, a.Body, a.Err)
		}
		if code, body := g.Get("/healthz"); code != http.StatusOK {
			t.Errorf("/healthz in the delay: %d %s", code, body)
		}
		if _, code := g.WaitExit(30 * time.Second); code != 0 || time.Since(began) < 3*time.Second {
			t.Errorf("it ended with %d after %s", code, time.Since(began))
		}
	})
}

// The replica that runs a turn loses its database until the other one has answered. Its client,
// whose connection stays open, receives that answer and no stop; so does a client whose message
// waited.
func TestAClientOfAReplicaThatWasCutOffGetsTheAnswerOfTheOther(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	config := "cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\nagents: {main: {runner: echo, script: true}}\ndrain_timeout: 2s\n"
	a, b := Install(t, database, config), Install(t, database, config)
	line := cuttable(t, database)
	a.env = append(a.env, "LANEWAY_DATABASE_URL="+line.url)
	a.Start()
	b.Start()
	onA := newRunEvents()
	c := mustDial(t, a, onA.take)
	say(t, c, "agent:main:cut", "first", "sleep 2s")
	say(t, c, "agent:main:cut", "second", "sleep 1ms")
	line.cut()
	o := OpenOracle(t, b, database)
	testrun.Eventually(t, "the other replica answers both", func() bool {
		return len(o.Rows("SELECT message_id FROM inbox WHERE session_key = 'agent:main:cut' AND state = 'done'")) == 2
	})
	line.mend()
	for _, run := range []string{"first", "second"} {
		if end := onA.await(t, run); end.state != "final" {
			t.Errorf("the client of the replica that was cut off received %s for the %s message, want the answer", end, run)
		}
	}
}

// cutLine relays connections to a database server until it is cut.
type cutLine struct {
	url string
	// listens is the additional duration of a LISTEN; it is set before the first connection.
	listens time.Duration

	mu    sync.Mutex
	to    *pgx.ConnConfig
	down  bool
	conns map[net.Conn]struct{}
}

// cuttable returns a relay that ends with the test.
func cuttable(t *testing.T, database string) *cutLine {
	t.Helper()
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutLine{to: cfg, conns: map[net.Conn]struct{}{}}
	user := url.User(cfg.User)
	if cfg.Password != "" {
		user = url.UserPassword(cfg.User, cfg.Password)
	}
	c.url = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", user, l.Addr(), cfg.Database)
	var relays sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		relays.Wait()
	})
	relays.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if c.add(client) {
				relays.Go(func() { c.relay(client) })
			}
		}
	})
	return c
}

func (c *cutLine) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		_ = conn.Close()
		return false
	}
	c.conns[conn] = struct{}{}
	return true
}

// cut closes every connection, and refuses new ones until mend.
func (c *cutLine) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	for conn := range c.conns {
		_ = conn.Close()
	}
	clear(c.conns)
}

func (c *cutLine) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
}

// lead directs new connections to another server.
func (c *cutLine) lead(t *testing.T, database string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = cfg
}

func (c *cutLine) target() (network, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pgconn.NetworkAddress(c.to.Host, c.to.Port)
}

func (c *cutLine) relay(client net.Conn) {
	defer client.Close()
	network, address := c.target()
	server, err := new(net.Dialer).DialContext(context.Background(), network, address)
	if err != nil || !c.add(server) {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	defer answers.Wait()
	defer server.Close()
	_, _ = io.Copy(slowListens{server, c.listens}, client)
}

// slowListens delays data that contains a LISTEN.
type slowListens struct {
	io.Writer

	by time.Duration
}

func (s slowListens) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("LISTEN ")) {
		time.Sleep(s.by)
	}
	return s.Writer.Write(p)
}
