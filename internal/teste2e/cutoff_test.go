package teste2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// The replica that runs a turn loses its database until the other one has answered. Its client, whose connection stays open, receives that
// answer and no stop; so does a client whose message waited.
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
