package testpg

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Manner is what a client sees instead of the reply of a COMMIT.
type Manner int

// The manners.
const (
	Cut      Manner = iota // the connection is closed
	Silence                // the connection stays open, and nothing arrives any more
	Shutdown               // FATAL 57P01, as from a server that an administrator stops
	Crash                  // FATAL 57P02, as from a server of which another process has crashed
)

// Loss is a COMMIT whose reply is lost.
type Loss struct {
	// Marker selects the transaction: a part of one of its statements. "" = every transaction.
	Marker string
	// Skip is how many such transactions pass before.
	Skip int
	// Undone: the COMMIT does not reach the database, which rolls the transaction back.
	Undone bool
	Manner Manner

	done chan struct{}
}

// Proxy relays connections to a database and understands enough of the protocol to lose the reply
// of a chosen COMMIT. Its goroutines end with the test.
type Proxy struct {
	url    string
	to     *pgx.ConnConfig
	relays sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	losses []*Loss
}

// NewProxy returns a proxy to a database.
func NewProxy(tb testing.TB, database string) *Proxy {
	tb.Helper()
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	user := url.User(cfg.User)
	if cfg.Password != "" {
		user = url.UserPassword(cfg.User, cfg.Password)
	}
	p := &Proxy{
		url: fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", user, l.Addr(), cfg.Database), to: cfg, conns: map[net.Conn]struct{}{},
	}
	tb.Cleanup(func() {
		_ = l.Close()
		p.close()
		p.relays.Wait()
	})
	p.relays.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.relays.Go(func() { p.relay(client) })
		}
	})
	return p
}

// URL is the address of the database through the proxy.
func (p *Proxy) URL() string { return p.url }

// Lose loses the reply of one later COMMIT. The channel is closed when it has happened.
func (p *Proxy) Lose(l Loss) <-chan struct{} {
	l.done = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = append(p.losses, &l)
	return l.done
}

// chosen returns the loss for a COMMIT that ends a transaction with these statements; nil = it
// passes.
func (p *Proxy) chosen(statements []string) *Loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.losses {
		fits := l.Marker == ""
		for _, s := range statements {
			fits = fits || strings.Contains(s, l.Marker)
		}
		if !fits {
			continue
		}
		if l.Skip > 0 {
			l.Skip--
			continue
		}
		p.losses = append(p.losses[:i], p.losses[i+1:]...)
		return l
	}
	return nil
}

func (p *Proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// keep registers a connection, which ends with the proxy; false when the proxy has ended.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// relay relays one connection until an end closes it.
func (p *Proxy) relay(client net.Conn) {
	defer p.drop(client)
	network, address := pgconn.NetworkAddress(p.to.Host, p.to.Port)
	server, err := new(net.Dialer).DialContext(context.Background(), network, address) // ends with the proxy
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(client) || !p.keep(server) {
		return
	}
	c := &proxied{proxy: p, client: client, server: server, named: map[string]string{}, portals: map[string]string{}}
	var replies sync.WaitGroup
	defer replies.Wait()
	replies.Go(func() {
		c.replies()
		if !c.silent() {
			_ = client.Close()
		}
	})
	c.requests()
	_ = server.Close()
}

// proxied is one connection.
type proxied struct {
	proxy          *Proxy
	client, server net.Conn

	mu sync.Mutex
	// named are the prepared statements, portals the bound ones, statements those of the
	// transaction.
	named, portals map[string]string
	statements     []string
	lost           *Loss // of the COMMIT that the database executes
	quiet          bool  // nothing is relayed any more, and the connection stays open
}

func (c *proxied) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}

// message reads one message with its header.
func message(r *bufio.Reader) (kind byte, body []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	all := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
	copy(all, head)
	_, err = io.ReadFull(r, all[5:])
	return head[0], all, err
}

// start relays the messages before the first one with a kind. An offer of encryption is declined.
func (c *proxied) start(r *bufio.Reader) error {
	for {
		head, err := r.Peek(8)
		if err != nil {
			return err
		}
		all := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(r, all); err != nil {
			return err
		}
		const ssl, gss = 80877103, 80877104
		if code := binary.BigEndian.Uint32(head[4:]); code != ssl && code != gss {
			_, err = c.server.Write(all)
			return err
		}
		if _, err := c.client.Write([]byte{'N'}); err != nil {
			return err
		}
	}
}

// requests relays what the client sends.
func (c *proxied) requests() {
	r := bufio.NewReader(c.client)
	if c.start(r) != nil {
		return
	}
	for {
		kind, all, err := message(r)
		if err != nil {
			return
		}
		if lost := c.note(kind, all[5:]); lost != nil && lost.Undone {
			_ = c.server.Close()
			c.end(lost)
			if lost.Manner == Silence {
				_, _ = io.Copy(io.Discard, r) // the proxy ends with its connection
			}
			return
		}
		if c.silent() {
			continue
		}
		if _, err := c.server.Write(all); err != nil {
			return
		}
	}
}

// note follows the statements of the transaction; it returns the loss when the message is a chosen
// COMMIT.
func (c *proxied) note(kind byte, body []byte) *Loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	words := bytes.SplitN(body, []byte{0}, 3)
	switch kind {
	case 'P':
		c.named[string(words[0])] = string(words[1])
	case 'B':
		c.portals[string(words[0])] = c.named[string(words[1])]
	case 'E':
		return c.executes(c.portals[string(words[0])])
	case 'Q':
		return c.executes(string(words[0]))
	}
	return nil
}

// executes notes a statement; the caller holds c.mu.
func (c *proxied) executes(statement string) *Loss {
	switch word, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(statement)), " "); strings.TrimRight(word, ";") {
	case "BEGIN":
		c.statements = nil
	case "COMMIT":
		c.lost = c.proxy.chosen(c.statements)
		return c.lost
	default:
		c.statements = append(c.statements, statement)
	}
	return nil
}

// replies relays what the server sends.
func (c *proxied) replies() {
	r := bufio.NewReader(c.server)
	for {
		kind, all, err := message(r)
		if err != nil {
			return
		}
		if c.silent() {
			continue
		}
		if kind == 'C' && bytes.HasPrefix(all[5:], []byte("COMMIT")) {
			c.mu.Lock()
			lost := c.lost
			c.mu.Unlock()
			if lost != nil {
				c.end(lost)
				if lost.Manner != Silence {
					return
				}
				continue
			}
		}
		if _, err := c.client.Write(all); err != nil {
			return
		}
	}
}

// end lets the client see the loss.
func (c *proxied) end(l *Loss) {
	code := ""
	switch l.Manner {
	case Silence:
		c.mu.Lock()
		c.quiet = true
		c.mu.Unlock()
	case Shutdown:
		code = "57P01"
	case Crash:
		code = "57P02"
	case Cut:
	}
	if code != "" {
		body := fmt.Appendf(nil, "SFATAL\x00VFATAL\x00C%s\x00Mterminating connection\x00\x00", code)
		_, _ = c.client.Write(append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(body)+4)), body...)) // short; the proxy ends with its connection
	}
	if l.Manner != Silence {
		_ = c.client.Close()
	}
	close(l.done)
}

// Pooler relays its clients over one session of a database, which each has for one transaction at a
// time, like a pooler in transaction mode that knows nothing of prepared statements and ignores the
// settings of a connection.
type Pooler struct {
	url     string
	session *pgconn.HijackedConn
	replies *bufio.Reader
	turn    sync.Mutex // held by the client that has the session
}

// NewPooler returns a pooler in front of a database. It ends with the test.
func NewPooler(tb testing.TB, database string) *Pooler {
	tb.Helper()
	conn, err := pgconn.Connect(tb.Context(), database)
	if err != nil {
		tb.Fatal(err)
	}
	session, err := conn.Hijack()
	if err != nil {
		tb.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Pooler{session: session, replies: bufio.NewReader(session.Conn)}
	p.url = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", url.User(session.Config.User), l.Addr(), session.Config.Database)
	var (
		relays  sync.WaitGroup
		mu      sync.Mutex
		clients []net.Conn
	)
	relays.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			clients = append(clients, client)
			mu.Unlock()
			relays.Go(func() { p.relay(client) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		_ = session.Conn.Close()
		mu.Lock()
		for _, c := range clients {
			_ = c.Close()
		}
		mu.Unlock()
		relays.Wait()
	})
	return p
}

// URL is the address of the database through the pooler.
func (p *Pooler) URL() string { return p.url }

// relay relays one client until it leaves. Its end within a transaction ends the session.
func (p *Pooler) relay(client net.Conn) {
	defer func() { _ = client.Close() }()
	r := bufio.NewReader(client)
	if (&proxied{client: client, server: discard{client}}).start(r) != nil || p.greet(client) != nil {
		return
	}
	for {
		kind, all, err := message(r)
		if err != nil || kind == 'X' {
			return
		}
		if p.transaction(client, r, kind, all) != nil {
			return
		}
	}
}

// discard is a connection to which nothing is written.
type discard struct{ net.Conn }

// Write implements io.Writer.
func (discard) Write(b []byte) (int, error) { return len(b), nil }

// greet admits a client to the session that exists.
func (p *Pooler) greet(client net.Conn) error {
	hello := reply('R', "\x00\x00\x00\x00")
	for name, value := range p.session.ParameterStatuses {
		hello = append(hello, reply('S', name+"\x00"+value+"\x00")...)
	}
	hello = append(hello, reply('K', "\x00\x00\x00\x01\x00\x00\x00\x01")...)
	_, err := client.Write(append(hello, reply('Z', "I")...))
	return err
}

// reply is a message of a server.
func reply(kind byte, body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...) // short
}

// transaction relays from the first message of a transaction until the session is idle.
func (p *Pooler) transaction(client net.Conn, r *bufio.Reader, kind byte, all []byte) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	for {
		if _, err := p.session.Conn.Write(all); err != nil {
			return err
		}
		idle := false
		for ready := kind != 'Q' && kind != 'S'; !ready; {
			answer, body, err := message(p.replies)
			if err != nil {
				return err
			}
			ready = answer == 'Z'
			idle = ready && body[5] == 'I'
			if _, err := client.Write(body); err != nil {
				return errors.Join(err, p.session.Conn.Close())
			}
		}
		if idle {
			return nil
		}
		var err error
		if kind, all, err = message(r); err != nil {
			return errors.Join(err, p.session.Conn.Close())
		}
	}
}
