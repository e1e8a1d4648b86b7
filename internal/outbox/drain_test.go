package outbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// answersAfter makes every request take some time. A cancelled request may have arrived.
func answersAfter(d time.Duration) func(context.Context, chat.Reply, channel.Claim) error {
	return func(ctx context.Context, _ chat.Reply, claim channel.Claim) error {
		if err := claim.Check(); err != nil {
			return err
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return &channel.SendError{Reason: "canceled", Unknown: true, Uncounted: true, Cause: ctx.Err()}
		}
	}
}

// drain ends the sender as in a shutdown of the process, and returns how long that took.
func (b *bench) drain(limit time.Duration) time.Duration {
	b.t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	began := time.Now()
	b.send.Drain(ctx)
	return time.Since(began)
}

// counts are the counts of the outbox when the next process starts.
func (b *bench) counts() store.OutboxCount {
	b.t.Helper()
	if err := b.st.Unregister(b.t.Context(), "n1"); err != nil {
		b.t.Fatal(err)
	}
	counts, err := b.st.OutboxCounts(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return counts["box:1"]
}

// next are the rows that the next process claims.
func (b *bench) next() []store.Outgoing {
	b.t.Helper()
	if err := b.st.Register(b.t.Context(), store.Node{ID: "n2", Lease: time.Hour, Exclusive: true}); err != nil {
		b.t.Fatal(err)
	}
	rows, err := b.st.ClaimOutgoing(b.t.Context(), store.ClaimOutgoingParams{Node: "n2", Channels: []string{"box:1"}, Limit: 10})
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

func TestDrainWaitsForARequestUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.send = answersAfter(20 * time.Second)
		b.add("7", "hello")
		if took := b.drain(30 * time.Second); took != 20*time.Second {
			t.Errorf("the drain took %s, want the 20 s of the request", took)
		}
		if rows := b.next(); len(rows) != 0 {
			t.Errorf("the next process claims %+v", rows)
		}
		b.res.want(t, map[string]int{"box reply delivered": 1})
	})
}

func TestADrainOfNothingTakesNoTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.add("7", "hello")
		time.Sleep(time.Minute)
		if took := b.drain(30 * time.Second); took != 0 {
			t.Errorf("the drain took %s", took)
		}
	})
}

func TestARequestThatOutlastsTheDrainIsNotSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.send = answersAfter(50 * time.Second)
		b.add("7", "hello")
		if took := b.drain(30 * time.Second); took != 30*time.Second {
			t.Errorf("the drain took %s, want its limit of 30 s", took)
		}
		if got := b.counts(); got != (store.OutboxCount{MaybeSent: 1}) {
			t.Errorf("the outbox has %+v", got)
		}
		if rows := b.next(); len(rows) != 0 {
			t.Errorf("the next process claims %+v", rows)
		}
		b.res.want(t, map[string]int{"box reply maybe_sent": 1})
	})
}

// When turns have used up the time of a drain, requests still have a second.
func TestRequestsHaveASecondAfterTheDrainTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.send = answersAfter(900 * time.Millisecond)
		b.add("7", "hello")
		b.drain(0)
		b.res.want(t, map[string]int{"box reply delivered": 1})
	})
}

// The second part of a message has not begun: the next process sends it immediately, without the
// part that has arrived.
func TestADrainGivesBackWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.send = func(ctx context.Context, _ chat.Reply, claim channel.Claim) error {
			if err := claim.Record(ctx, "part 1"); err != nil {
				return err
			}
			time.Sleep(5 * time.Second) // the rate limit of the chat
			return claim.Check()
		}
		b.add("7", "hello")
		b.drain(30 * time.Second)
		rows := b.next()
		if len(rows) != 1 || rows[0].Progress != "part 1" || rows[0].MaybeSent {
			t.Errorf("the next process claims %+v", rows)
		}
		b.res.want(t, map[string]int{"box reply stale": 1})
	})
}

// The lease of the process ended while the message waited for the limit of its chat, and the
// process is another incarnation now.
func TestNothingIsSentUnderAnEndedClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.send = func(_ context.Context, _ chat.Reply, claim channel.Claim) error {
			time.Sleep(5 * time.Second)
			return claim.Check()
		}
		b.add("7", "hello")
		synctest.Wait()
		b.node.id.Store(new("n3"))
		rows := b.next()
		if len(rows) != 1 || !rows[0].MaybeSent {
			t.Errorf("the next process claims %+v", rows)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(b.box.sent) != 0 {
			t.Errorf("sent %+v", b.box.sent)
		}
		b.res.want(t, map[string]int{"box reply stale": 1})
	})
}

// A request was on the wire when the lease ended: the other process sends the message again, and
// this one counts the late delivery.
func TestADeliveryAfterTheEndOfTheClaimIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stop := start(t)
		defer stop()
		b.box.send = answersAfter(5 * time.Second)
		b.add("7", "hello")
		synctest.Wait()
		b.next()
		time.Sleep(time.Minute)
		synctest.Wait()
		b.res.want(t, map[string]int{"box reply delivered": 1, "box reply late": 1})
	})
}
