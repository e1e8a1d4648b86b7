package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/outbox"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testrun"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mailbox is a channel that records what is sent to it, or fails as its test requires.
type mailbox struct {
	mu   sync.Mutex
	sent []chat.Reply
	at   []time.Time // of every attempt
	fail func(attempt int, r chat.Reply) error
	down bool
	// elsewhere is where replies arrive; zero = at their address.
	elsewhere chat.Target
	// send replaces Send unless it is nil.
	send func(ctx context.Context, r chat.Reply, claim channel.Claim) error
}

func (*mailbox) Name() string                                { return "box:1" }
func (*mailbox) Run(context.Context, channel.Receiver) error { return nil }

func (m *mailbox) Status() channel.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return channel.Status{Down: m.down}
}

func (m *mailbox) Send(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	if m.send != nil {
		if err := m.send(ctx, r, claim); err != nil {
			return chat.Sent{}, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Now())
	if m.fail != nil {
		if err := m.fail(len(m.at), r); err != nil {
			return chat.Sent{}, err
		}
	}
	m.sent = append(m.sent, r)
	return chat.Sent{ProviderID: "p" + r.ID, At: m.elsewhere}, nil
}

// Conversation implements channel.Converser: each chat and topic is a group.
func (*mailbox) Conversation(at chat.Target) (key chat.SessionKey, principal string, err error) {
	return chat.PeerKey("main", "box", chat.KindGroup, at.ChatID, at.Thread), "", nil
}

// Arrived implements channel.Converser: the progress is the text that has arrived.
func (m *mailbox) Arrived(r chat.Reply) (text string, at chat.Target) { return r.Progress, m.elsewhere }

// Shows implements channel.Converser.
func (*mailbox) Shows(text string, from, to int) string { return text[from:to] }

func (m *mailbox) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *mailbox) attempts() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.at)
}

// node is an incarnation whose final writes are made once.
type node struct{ id atomic.Pointer[string] }

func (n *node) Alive() (string, error) { return *n.id.Load(), nil }
func (*node) Final(ctx context.Context, _ string, write func(context.Context) error) error {
	return write(context.WithoutCancel(ctx))
}

// results reads the results that the sender has counted.
type results struct{ *prometheus.Registry }

func (r results) want(t *testing.T, want map[string]int) {
	t.Helper()
	if got := testrun.Counted(t, r, "laneway_outbox_sends_total"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("results %v, want %v", got, want)
	}
}

type bench struct {
	t    *testing.T
	st   *sqlite.Store
	box  *mailbox
	seen []*store.ShownEntry
	res  results
	gone []string
	send *outbox.Sender
	node node
}

// start runs a sender until the returned function is called.
func start(t *testing.T) (b *bench, stop func()) {
	t.Helper()
	return startOn(t, func(st *sqlite.Store) store.Store { return st })
}

// startOn is start with a store that a test has changed.
func startOn(t *testing.T, changed func(*sqlite.Store) store.Store) (b *bench, stop func()) {
	t.Helper()
	b = &bench{t: t, st: sqlitetest.Open(t, sqlite.Config{}), box: &mailbox{}, res: results{prometheus.NewRegistry()}}
	if err := b.st.Register(t.Context(), store.Node{ID: "n1", Lease: time.Hour * 1000, Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	cfg := outbox.Config{Channels: map[string]channel.Channel{"box:1": b.box}, Gone: func(ctx context.Context, row store.Outgoing, p store.UndeliveredParams) (store.Gone, error) {
		b.gone = append(b.gone, row.Target.ChatID)
		return b.st.Undelivered(ctx, p)
	}, Shown: func(_ context.Context, e *store.ShownEntry) { b.seen = append(b.seen, e) }, Metrics: b.res}
	b.node.id.Store(new("n1"))
	b.send = outbox.New(cfg, changed(b.st), &b.node, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.send.Run(ctx) }()
	return b, func() { cancel(); <-done }
}

func (b *bench) add(chatID, text string) {
	b.t.Helper()
	err := b.st.Enqueue(b.t.Context(), []store.Outgoing{{Target: chat.Target{Channel: "box:1", ChatID: chatID}, Kind: store.KindReply, Text: text, Count: 1}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.send.Wake()
}

func TestARowIsSentOnceAndRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.add("7", "hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(b.box.sent) != 1 || b.box.sent[0].Text != "hello" {
			t.Errorf("sent %+v", b.box.sent)
		}
		b.res.want(t, map[string]int{"box reply delivered": 1})
		if rows := b.next(); len(rows) != 0 {
			t.Errorf("the next process claims %+v", rows)
		}
	})
}

// Each row has an entry in the conversation where a person has seen it, with what was seen, however
// it ends, and the entry is published once.
func TestEntriesAreWhereAndWhatPeopleSaw(t *testing.T) {
	t.Parallel()
	origin := &chat.Origin{Kind: chat.OriginJob, Job: "j1", Name: "digest", By: "agent:main:cron:j1"}
	outside := chat.Target{Channel: "box:1", ChatID: "7"}
	gone := &channel.SendError{Reason: "blocked", Permanent: true, Gone: true}
	for name, c := range map[string]struct {
		elsewhere chat.Target
		parts     string // what arrives in the first attempt
		fail      error
		life      time.Duration
		session   string
		want      string
	}{
		"delivered":                      {session: "agent:main:box:group:7:topic:20", want: "all of it"},
		"in a topic that was deleted":    {elsewhere: outside, session: "agent:main:box:group:7", want: "all of it"},
		"expired after a part":           {parts: "all", fail: &channel.SendError{Reason: "busy", Uncounted: true}, life: 10 * time.Second, session: "agent:main:box:group:7:topic:20", want: "all\n(the rest was not delivered)"},
		"expired after a part elsewhere": {elsewhere: outside, parts: "all", fail: &channel.SendError{Reason: "busy", Uncounted: true}, life: 10 * time.Second, session: "agent:main:box:group:7", want: "all\n(the rest was not delivered)"},
		"expired, and may have arrived":  {fail: &channel.SendError{Reason: "reset", Unknown: true, RetryAfter: time.Minute}, life: 10 * time.Second, session: "agent:main:box:group:7:topic:20", want: "all of it\n(may not have arrived)"},
		"expired without a part":         {fail: &channel.SendError{Reason: "busy", Uncounted: true}, life: 10 * time.Second},
		"a chat that is gone":            {parts: "all", fail: gone, session: "agent:main:box:group:7:topic:20", want: "all\n(the rest was not delivered)"},
		"a chat that was gone before":    {fail: gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, stop := start(t)
				defer stop()
				b.box.elsewhere = c.elsewhere
				b.box.send = func(ctx context.Context, r chat.Reply, claim channel.Claim) error {
					if c.parts != "" && r.Progress == "" {
						return claim.Record(ctx, c.parts)
					}
					return nil
				}
				b.box.fail = func(int, chat.Reply) error { return c.fail }
				row := store.Outgoing{Target: chat.Target{Channel: "box:1", ChatID: "7", Thread: "20"}, Kind: store.KindReply, Text: "all of it", Count: 1, Origin: origin}
				if c.life > 0 {
					row.ExpiresAt = time.Now().Add(c.life)
				}
				if err := b.st.Enqueue(t.Context(), []store.Outgoing{row}); err != nil {
					t.Fatal(err)
				}
				b.send.Wake()
				time.Sleep(time.Hour)
				synctest.Wait()
				var got []string
				for _, e := range b.seen {
					got = append(got, e.Session.String()+" "+e.Text)
				}
				var want []string
				if c.want != "" {
					want = []string{c.session + " " + c.want}
				}
				if !slices.Equal(got, want) {
					t.Errorf("published %q, want %q", got, want)
				}
				list, _, err := b.st.ListSessions(t.Context(), store.SessionFilter{})
				if err != nil || len(list) != len(want) {
					t.Errorf("the sessions are %+v, %v", list, err)
				}
			})
		})
	}
}

func TestAFailedAttemptIsRepeatedAfterTheBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.fail = func(n int, _ chat.Reply) error {
			if n <= 3 {
				return &channel.SendError{Reason: "server_error"}
			}
			return nil
		}
		b.add("7", "hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		at := b.box.attempts()
		if len(at) != 4 {
			t.Fatalf("%d attempts, want 4", len(at))
		}
		for i, least := range []time.Duration{750 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second} {
			if got := at[i+1].Sub(at[i]); got < least || got > least*5/3+time.Second {
				t.Errorf("wait %d is %s, want about %s", i+1, got, least*4/3)
			}
		}
		b.res.want(t, map[string]int{"box reply delivered": 1, "box reply retry": 3})
	})
}

func TestAPermanentErrorEndsTheRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.fail = func(int, chat.Reply) error { return &channel.SendError{Reason: "bad_request", Permanent: true} }
		b.add("7", "hello")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(b.box.attempts()); n != 1 {
			t.Errorf("%d attempts, want 1", n)
		}
		b.res.want(t, map[string]int{"box reply failed": 1})
	})
}

func TestAnAddressThatIsGoneIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.fail = func(int, chat.Reply) error { return &channel.SendError{Reason: "blocked", Permanent: true, Gone: true} }
		b.add("7", "hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(b.gone, []string{"7"}) {
			t.Errorf("reported %v", b.gone)
		}
		b.res.want(t, map[string]int{"box reply gone": 1})
	})
}

// When a provider requests a pause of every chat, no chat is tried before the pause has ended, and
// the attempt does not count.
func TestNothingIsSentWhileTheProviderAsksEveryChatToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.fail = func(n int, _ chat.Reply) error {
			if n == 1 {
				return &channel.SendError{Reason: "rate_limited", RetryAfter: 10 * time.Minute, Global: true, Uncounted: true}
			}
			return nil
		}
		b.add("7", "one")
		synctest.Wait()
		b.add("8", "two")
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		at := b.box.attempts()
		if len(at) != 3 || at[1].Sub(at[0]) < 10*time.Minute {
			t.Errorf("attempts at %v", at)
		}
		b.res.want(t, map[string]int{"box reply delivered": 2, "box reply retry": 1})
	})
}

func TestOneChatThatHasToWaitDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.fail = func(_ int, r chat.Reply) error {
			if r.Target.ChatID == "7" {
				return &channel.SendError{Reason: "rate_limited", RetryAfter: time.Hour, Uncounted: true}
			}
			return nil
		}
		b.add("7", "one")
		synctest.Wait()
		b.add("8", "two")
		time.Sleep(time.Minute)
		synctest.Wait()
		b.res.want(t, map[string]int{"box reply delivered": 1, "box reply retry": 1})
	})
}

// A part that arrived is recorded with the result of the attempt if it could not be recorded
// before.
func TestThePartThatArrivedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		var progress []string
		b.box.send = func(ctx context.Context, r chat.Reply, claim channel.Claim) error {
			progress = append(progress, r.Progress)
			if len(progress) > 1 {
				return nil
			}
			unable, cancel := context.WithCancel(ctx)
			cancel()
			if err := claim.Record(unable, "half"); err != nil {
				return err
			}
			return &channel.SendError{Reason: "server_error", Unknown: true}
		}
		b.add("7", "hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(progress, []string{"", "half"}) {
			t.Errorf("the attempts began at %q", progress)
		}
		b.res.want(t, map[string]int{"box reply delivered": 1, "box reply resent": 1, "box reply retry": 1})
	})
}

func TestARowThatComesTooLateIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.change(func() { b.box.down = true })
		err := b.st.Enqueue(t.Context(), []store.Outgoing{{
			Target: chat.Target{Channel: "box:1", ChatID: "7"}, Kind: store.KindReply, Text: "hello", Count: 1, ExpiresAt: time.Now().Add(-time.Second),
		}})
		if err != nil {
			t.Fatal(err)
		}
		b.send.Wake()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(b.box.attempts()); n != 0 {
			t.Errorf("%d attempts", n)
		}
		b.res.want(t, map[string]int{"box reply expired": 1})
	})
}

func TestAnUnreachableProviderIsProbedAndServedAtOnceWhenItIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.change(func() {
			b.box.down = true
			b.box.fail = func(int, chat.Reply) error {
				return &channel.SendError{Reason: "connection", Unknown: true, Uncounted: true, Cause: errors.New("refused")}
			}
		})
		for i := range 20 {
			b.add(strconv.Itoa(i), "text")
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		synctest.Wait()
		if n := len(b.box.attempts()); n < 40 || n > 44 {
			t.Errorf("%d attempts in ten minutes, want four in each", n)
		}
		b.box.change(func() { b.box.down, b.box.fail = false, nil })
		began := time.Now()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(b.box.sent) != 20 {
			t.Errorf("%d of 20 messages were sent within %s", len(b.box.sent), time.Since(began))
		}
	})
}

// lossy is a store that loses the result of the first claim that takes a row, and cannot record
// results while broken.
type lossy struct {
	*sqlite.Store

	lost   atomic.Bool
	broken atomic.Bool
}

func (l *lossy) ClaimOutgoing(ctx context.Context, p store.ClaimOutgoingParams) ([]store.Outgoing, error) {
	rows, err := l.Store.ClaimOutgoing(ctx, p)
	if len(rows) > 0 && l.lost.CompareAndSwap(false, true) {
		return nil, errors.New("the reply was lost")
	}
	return rows, err
}

func (l *lossy) Delivered(ctx context.Context, p store.DeliveredParams) (*store.ShownEntry, error) {
	if l.broken.CompareAndSwap(true, false) {
		return nil, errors.New("the write failed")
	}
	return l.Store.Delivered(ctx, p)
}

func TestLostClaimDoesNotBlockItsChat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := startOn(t, func(st *sqlite.Store) store.Store { return &lossy{Store: st} })
		defer stop()
		b.add("7", "one")
		b.add("7", "two")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		b.res.want(t, map[string]int{"box reply delivered": 2})
	})
}

func TestUnrecordedDeliveryDoesNotBlockItsChat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := startOn(t, func(st *sqlite.Store) store.Store {
			l := &lossy{Store: st}
			l.lost.Store(true)
			l.broken.Store(true)
			return l
		})
		defer stop()
		b.add("7", "one")
		b.add("7", "two")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		b.res.want(t, map[string]int{"box reply delivered": 3, "box reply resent": 1})
	})
}
