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
)

// TestTheFirstClientOfAReplicaReceivesEveryEnd delays the LISTEN of a replica that starts. The end of a run on the other replica, right after the first client
// is connected, must reach that client nevertheless.
func TestTheFirstClientOfAReplicaReceivesEveryEnd(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	config := "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0}\n"
	a, b := Install(t, database, config), Install(t, database, config)
	a.Start()
	ca := mustDial(t, a, nil)
	b.env = append(b.env, "LANEWAY_DATABASE_URL="+delayListen(t, database, time.Second))
	b.Start()
	onB := watch(t, b)
	say(t, ca, "agent:main:first", "first", "hello")
	if end := onB.await(t, "first"); end.state != "final" {
		t.Errorf("the first client of the new replica received %s, want the answer", end)
	}
}

// delayListen relays connections to the server of a database and delays what contains a LISTEN. It returns the address of the database behind the relay.
func delayListen(t *testing.T, database string, delay time.Duration) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var relays sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		relays.Wait()
	})
	relays.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relay(ctx, client, cfg, delay) })
		}
	})
	user := url.User(cfg.User)
	if cfg.Password != "" {
		user = url.UserPassword(cfg.User, cfg.Password)
	}
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", user, l.Addr(), cfg.Database)
}

// relay passes bytes in both directions until one side closes or ctx is over.
func relay(ctx context.Context, client net.Conn, cfg *pgx.ConnConfig, delay time.Duration) {
	defer client.Close()
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	server, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return // the gateway reports that the database cannot be reached
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	defer answers.Wait()
	defer server.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if bytes.Contains(buf[:n], []byte("LISTEN ")) {
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
		}
		if _, failed := server.Write(buf[:n]); failed != nil || err != nil {
			return // either side may end a connection at any time
		}
	}
}
