package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/channel"
	"laneway/internal/channel/channeltest"
	"laneway/internal/channel/telegram"
	"laneway/internal/chat"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testtelegram"
)

// People and places of the tests.
const (
	anna  = int64(7)
	bob   = int64(8)
	group = int64(-100500)
)

// bot is a channel, its Telegram, and its receiver.
type bot struct {
	t       *testing.T
	srv     *testtelegram.Server
	ch      *telegram.Channel
	records *sqlite.Store
	fault   atomic.Pointer[error] // of the records
	files   *os.Root
	log     *logBuffer
	cancel  context.CancelFunc
	ended   chan error
	claims  claims
	alive   atomic.Pointer[error] // what the receiver answers; nil means that it is alive

	mu     sync.Mutex
	got    []chat.Message
	gotAt  []time.Time
	errs   []error // returned by the next offers
	seen   map[string]bool
	offers int
	drains bool // everything but commands is refused for the time being
	lease  func() (bool, error)
}

// recordsError is a failure of one operation of the records.
type recordsError struct {
	error
	operation string
}

func (f recordsError) Unwrap() error { return f.error }

// logBuffer keeps what is logged, at every level.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

type setup struct {
	cfg  telegram.Config
	deps telegram.Deps
	srv  testtelegram.Config
	// network wraps the transport between the bot and its Telegram; may be nil.
	network func(http.RoundTripper) http.RoundTripper
}

// newBot makes a bot to which anna may talk, in private and in the group. It must be called inside
// of a bubble.
func newBot(t *testing.T, change func(*setup)) *bot {
	t.Helper()
	b := &bot{t: t, log: &logBuffer{}, seen: map[string]bool{}}
	b.records = sqlitetest.Open(t, sqlite.Config{Before: func(_ context.Context, operation string) error {
		err := b.fault.Load()
		if err == nil {
			return nil
		}
		if f, ok := errors.AsType[recordsError](*err); ok && f.operation != operation {
			return nil
		}
		return *err
	}})
	s := &setup{cfg: telegram.Config{Agent: "main", Allow: []int64{anna}, Groups: []int64{group}, MaxAttachment: 1 << 20}}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	b.files = root
	s.deps = telegram.Deps{
		Records: b.records, Files: root,
		Commands: []chat.CommandInfo{{Name: "stop", Description: "Stop.", Urgent: true}, {Name: "help", Aliases: []string{"start"}, Description: "Help."}, {Name: "quiet", Description: "Quiet hours."}},
		Logger:   slog.New(slog.NewTextHandler(leak.Through("a log", b.log), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(s)
	}
	b.srv = testtelegram.New(s.srv)
	b.srv.AddPrivate(anna, "Anna")
	b.srv.AddPrivate(bob, "Bob")
	b.srv.AddGroup(group, "Friends", 10, 20)
	if s.cfg.Token == "" {
		s.cfg.Token = b.srv.Token()
	}
	s.deps.Transport = b.srv.Transport()
	if s.network != nil {
		s.deps.Transport = s.network(s.deps.Transport)
	}
	if b.ch, err = telegram.New(s.cfg, s.deps); err != nil {
		t.Fatal(err)
	}
	return b
}

// Alive implements channel.Receiver.
func (b *bot) Alive() error {
	if err := b.alive.Load(); err != nil {
		return *err
	}
	return nil
}

// Lease implements channel.Receiver with the state of the test.
func (b *bot) Lease(context.Context, string) (bool, error) {
	b.mu.Lock()
	f := b.lease
	b.mu.Unlock()
	if f == nil {
		return true, nil
	}
	return f()
}

// Receive implements [channel.Receiver].
func (b *bot) Receive(_ context.Context, m chat.Message) (chat.Receipt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offers++
	if len(b.errs) > 0 {
		err := b.errs[0]
		b.errs = b.errs[1:]
		if err != nil {
			return chat.Receipt{}, err
		}
	}
	if b.drains && !strings.HasPrefix(m.Content.Text, "/") {
		return chat.Receipt{}, chat.ErrDraining
	}
	if b.seen[m.Dedupe] {
		return chat.Receipt{Duplicate: true}, nil
	}
	b.seen[m.Dedupe] = true
	b.got = append(b.got, m)
	b.gotAt = append(b.gotAt, time.Now())
	return chat.Receipt{RunID: m.ID, Session: m.Session}, nil
}

func (b *bot) start() {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.cancel, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- b.ch.Run(ctx, b) }()
	synctest.Wait()
}

// stop ends the bot and checks what must hold in every test: Run ends within a second and without
// an error, the fake server saw nothing improper, and the token is in no log line.
func (b *bot) stop() {
	b.t.Helper()
	began := time.Now()
	b.cancel()
	if err := <-b.ended; err != nil {
		b.t.Errorf("Run ended with %v", err)
	}
	if d := time.Since(began); d > time.Second {
		b.t.Errorf("Run took %s to end", d)
	}
	for _, v := range b.srv.Violations() {
		b.t.Errorf("the fake server complains: %s", v)
	}
	b.noToken("the log", b.log.String())
	b.noToken("the status", fmt.Sprintf("%+v", b.ch.Status()))
}

func (b *bot) noToken(where, text string) {
	b.t.Helper()
	_, secret, _ := strings.Cut(b.srv.Token(), ":")
	if strings.Contains(text, secret) {
		b.t.Errorf("the token is in %s", where)
	}
}

// breakRecords makes every operation on the records fail; nil makes them work again.
func (b *bot) breakRecords(err error) {
	if err == nil {
		b.fault.Store(nil)
		return
	}
	b.fault.Store(&err)
}

func (b *bot) messages() []chat.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func (b *bot) texts() []string {
	var out []string
	for _, m := range b.messages() {
		out = append(out, m.Content.Text)
	}
	return out
}

// receivedAt returns the time at which a message was received.
func (b *bot) receivedAt(i int) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gotAt[i]
}

// fail makes the next offers end with these errors; a nil error means success.
func (b *bot) fail(errs ...error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errs = append(b.errs, errs...)
}

func (b *bot) draining(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drains = on
}

// clearFailures removes the failures that fail has queued.
func (b *bot) clearFailures() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errs = nil
}

// after advances virtual time.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func to(chatID int64, thread string) chat.Target {
	return chat.Target{Channel: "telegram:123456789", ChatID: strconv.FormatInt(chatID, 10), Thread: thread}
}

func (b *bot) send(id string, target chat.Target, text string) (chat.Sent, error) {
	r := chat.Reply{ID: id, RunID: "run-" + id, Target: target, Kind: "reply", Text: text, Attempt: 1}
	return b.ch.Send(b.t.Context(), b.claims.known(r), b.claims.of(id))
}

// claims has the claims of replies and their progress, as the outbox has them.
type claims struct {
	mu    sync.Mutex
	by    map[string]string
	parts map[string][]chat.Part // recorded with the progress
	check func() error           // nil means that every claim is valid
}

// known returns a reply with its progress.
func (c *claims) known(r chat.Reply) chat.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Progress = c.by[r.ID]
	return r
}

func (c *claims) of(id string) channel.Claim { return claim{c, id} }

type claim struct {
	*claims

	id string
}

// Check implements channel.Claim.
func (c claim) Check() error {
	c.mu.Lock()
	check := c.check
	c.mu.Unlock()
	if check == nil {
		return nil
	}
	return check()
}

// Record implements channel.Claim.
func (c claim) Record(_ context.Context, progress string, arrived ...chat.Part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]string{}
	}
	if c.parts == nil {
		c.parts = map[string][]chat.Part{}
	}
	c.by[c.id] = progress
	c.parts[c.id] = append(c.parts[c.id], arrived...)
	return nil
}

// mustSend repeats a send as the outbox does, for at most a quarter of an hour.
func (b *bot) mustSend(id string, target chat.Target, text string) chat.Sent {
	b.t.Helper()
	for range 100 {
		sent, err := b.send(id, target, text)
		if err == nil {
			return sent
		}
		after(retryAfter(err))
	}
	b.t.Fatalf("reply %s never arrived", id)
	return chat.Sent{}
}

func wantTexts(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// leak searches all logs and output of this package's tests for the tokens of their bots.
var leak testtelegram.Leak

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	restore, err := leak.Streams()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	restore()
	if err := errors.Join(leak.Verdict(), goleak.Find()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestContract(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, func(t *testing.T) channeltest.Harness {
		t.Helper()
		b := newBot(t, nil)
		always := func(f testtelegram.Fault) func(bool) {
			return func(on bool) {
				b.srv.Mend()
				if on {
					b.srv.BreakAlways(f)
				}
			}
		}
		return channeltest.Harness{
			Channel: b.ch, Target: chat.Target{Channel: b.ch.Name(), ChatID: "7"},
			Say:    func(text string) { b.srv.Say(anna, anna, text) },
			Read:   func() []string { return b.srv.Texts(anna) },
			Outage: always(testtelegram.Fault{Reset: true}), Hang: always(testtelegram.Fault{Hang: true}),
		}
	})
}
