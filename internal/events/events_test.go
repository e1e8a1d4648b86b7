package events_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire connects the stores of several replicas.
type wire struct {
	mu   sync.Mutex
	ends []*end
}

// end is the store of one replica: its transcript, and the messages that others have sent.
type end struct {
	store.Store

	wire  *wire
	texts chan string
	tr    store.Transcript
	reads int
}

func (w *wire) replica() *end {
	e := &end{wire: w, texts: make(chan string, 100)}
	w.ends = append(w.ends, e)
	return e
}

func (e *end) Listen(context.Context) error { return nil }

func (e *end) Broadcasts() <-chan string { return e.texts }

func (e *end) Broadcast(text string) {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	for _, o := range e.wire.ends {
		if o != e {
			o.texts <- text
		}
	}
}

func (e *end) Transcript(context.Context, store.TranscriptQuery) (store.Transcript, error) {
	e.reads++
	return e.tr, nil
}

// peers exist from the first sign of one.
type peers struct {
	mu   sync.Mutex
	seen bool
}

func (p *peers) HasPeers() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func (p *peers) SawPeer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = true
}

// watcher records the events that it receives.
type watcher struct {
	mu  sync.Mutex
	got []chat.Event
}

func watch(p *events.Publisher, wanted bool) *watcher {
	w := &watcher{}
	p.Subscribe(func(e chat.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.got = append(w.got, e)
	}, func(chat.Event) bool { return wanted })
	return w
}

func (w *watcher) all() []chat.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.got)
}

func (w *watcher) kinds() string {
	var out []string
	for _, e := range w.all() {
		out = append(out, string(e.Kind))
	}
	return strings.Join(out, " ")
}

func publisher(st store.Store) *events.Publisher {
	return events.New(events.Config{DefaultAgent: "main"}, st, &peers{}, slog.New(slog.DiscardHandler))
}

func key() chat.SessionKey { return chat.MainKey("main") }

func TestEventsOfARunAreNumberedInOrderAndEndWithIt(t *testing.T) {
	t.Parallel()
	p := publisher((&wire{}).replica())
	w := watch(p, true)
	run := p.Start(events.RunInfo{Session: key(), RunID: "r1"})
	run.Grow("a")
	run.Grow("b")
	p.Publish(run.Event(chat.EventFinal))
	if p.Log(key(), "r1").Publish(&chat.Event{Kind: chat.EventQueued, Session: key(), RunID: "r1"}) {
		t.Error("an event was published after the end of its run")
	}
	var numbers []int64
	for _, e := range w.all() {
		numbers = append(numbers, e.Seq)
	}
	if !slices.Equal(numbers, []int64{events.FirstOfTurn, 3, 4, 5}) {
		t.Errorf("the events %s have the numbers %v", w.kinds(), numbers)
	}
}

func TestAnAttemptThatWasReplacedPublishesNothing(t *testing.T) {
	t.Parallel()
	p := publisher((&wire{}).replica())
	w := watch(p, true)
	first := p.Start(events.RunInfo{Session: key(), RunID: "r1"})
	first.Grow("old")
	second := p.Start(events.RunInfo{Session: key(), RunID: "r1", Replace: true})
	if _, ok := first.Grow("late"); ok {
		t.Error("the older attempt has published")
	}
	second.Grow("new")
	p.Stop(first)
	got := w.all()
	last := got[len(got)-1]
	if last.Text != "new" || !last.Replace {
		t.Errorf("the last delta is %+v", last)
	}
	if in, ok := p.InFlight(key()); !ok || in.Text != "new" {
		t.Errorf("in flight: %+v, %v", in, ok)
	}
}

func TestTheEndOfARunIsDecidedOnce(t *testing.T) {
	t.Parallel()
	p := publisher((&wire{}).replica())
	run := p.Start(events.RunInfo{Session: key(), RunID: "r1"})
	run.Grow("text")
	if text, ok := run.Close(); text != "text" || !ok {
		t.Errorf("the first: %q, %v", text, ok)
	}
	if _, ok := run.Close(); ok {
		t.Error("a second caller has decided the end as well")
	}
	run.Reopen()
	if _, ok := run.Close(); !ok {
		t.Error("after Reopen nothing can decide the end")
	}
}

func TestADurableEventReachesTheOtherReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		a, b := w.replica(), w.replica()
		b.tr.Entries = []chat.TranscriptEntry{{Seq: 7, Text: strings.Repeat("x", 5000)}}
		here, there := publisher(a), publisher(b)
		wantsAll := watch(there, true)
		ctx, cancel := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		for _, p := range []*events.Publisher{here, there} {
			p.Listen(ctx)
			p.Announce()
			runs.Go(func() { p.Run(ctx) })
		}
		synctest.Wait()
		here.Publish(chat.Event{Kind: chat.EventFinal, Session: key(), RunID: "r1", Text: "short"})
		here.Publish(chat.Event{Kind: chat.EventFinal, Session: key(), RunID: "r2", Text: b.tr.Entries[0].Text, EntrySeq: 7})
		here.PublishSession(key(), "p", events.ReasonDeleted, "")
		here.Publish(chat.Event{Kind: chat.EventQuestions, Session: key(), Principal: "p", Reason: "asked"})
		synctest.Wait()
		got := wantsAll.all()
		if len(got) != 4 || got[3].Kind != chat.EventQuestions || got[3].Principal != "p" || got[0].Text != "short" || len(got[1].Text) != 5000 || got[2].Reason != events.ReasonDeleted {
			t.Errorf("the other replica published %+v", got)
		}
		cancel()
		runs.Wait()
	})
}

func TestALongTextIsReadOnlyWhereASubscriberWantsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		a, b := w.replica(), w.replica()
		here, there := publisher(a), publisher(b)
		watch(there, false)
		ctx, cancel := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		for _, p := range []*events.Publisher{here, there} {
			p.Listen(ctx)
			p.Announce()
			runs.Go(func() { p.Run(ctx) })
		}
		synctest.Wait()
		here.Publish(chat.Event{Kind: chat.EventFinal, Session: key(), RunID: "r1", Text: strings.Repeat("x", 5000), EntrySeq: 7})
		synctest.Wait()
		if b.reads != 0 {
			t.Errorf("the transcript was read %d times for an event without a subscriber", b.reads)
		}
		cancel()
		runs.Wait()
	})
}

func TestAWaiterIsWokenByAnEndHereAndFindsOneInTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := publisher((&wire{}).replica())
		reads := 0
		never := func(context.Context, string) (chat.RunEnd, bool, error) {
			reads++
			return chat.RunEnd{}, false, chat.ErrStoreUnavailable
		}
		go func() {
			time.Sleep(2500 * time.Millisecond)
			p.Ended(chat.RunEnd{RunID: "m1", Text: "here"})
		}()
		end, err := p.Wait(t.Context(), "m1", never)
		if err != nil || end.Text != "here" || reads != 3 {
			t.Errorf("%+v, %v after %d reads", end, err, reads)
		}
		end, err = p.Wait(t.Context(), "m1", func(context.Context, string) (chat.RunEnd, bool, error) {
			reads++
			return chat.RunEnd{Text: "stored"}, reads == 6, nil
		})
		if err != nil || end.Text != "stored" {
			t.Errorf("%+v, %v", end, err)
		}
		gone := errors.New("the caller went away")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, gone)
		defer cancel()
		if _, err := p.Wait(ctx, "m1", never); !errors.Is(err, gone) {
			t.Errorf("a wait whose context ended: %v", err)
		}
	})
}

// TestEndsThatWereMissedAreReadFromTheStore covers runs that another replica ended while this one
// did not receive its events. Runs that continue, and deleted ones, have no end.
func TestEndsThatWereMissedAreReadFromTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := (&wire{}).replica()
		down := 2 // calls that find the store unavailable
		p := events.New(events.Config{DefaultAgent: "main", End: func(_ context.Context, run string) (chat.Event, bool, error) {
			if down > 0 {
				down--
				return chat.Event{}, false, chat.ErrStoreUnavailable
			}
			switch run {
			case "answered":
				return chat.Event{Kind: chat.EventFinal, Session: key(), RunID: run, Text: "42"}, true, nil
			case "deleted":
				return chat.Event{}, false, chat.ErrNotFound
			default:
				return chat.Event{}, false, nil
			}
		}}, st, &peers{}, slog.New(slog.DiscardHandler))
		w := watch(p, true)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); p.Run(ctx) }()
		for _, run := range []string{"answered", "deleted", "running", "ended"} {
			p.Log(key(), run)
		}
		p.Publish(chat.Event{Kind: chat.EventFinal, Session: key(), RunID: "ended"})
		st.texts <- ""
		time.Sleep(time.Minute)
		st.texts <- "" // again: nothing is published twice
		time.Sleep(time.Minute)
		got := w.all()
		if len(got) != 2 || got[1].RunID != "answered" || got[1].Kind != chat.EventFinal || got[1].Text != "42" {
			t.Errorf("published %+v, want the end of the run that was answered elsewhere", got[1:])
		}
		cancel()
		<-over
	})
}
