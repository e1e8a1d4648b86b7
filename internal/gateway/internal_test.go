package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"laneway/internal/chat"
)

// taken writes everything that is due, as the writer does, and returns it in words.
func (b *sendBuffer) taken(now time.Time) []string {
	var out []string
	for {
		it, _ := b.take(now)
		if it == nil {
			return out
		}
		switch {
		case it.delta != nil:
			out = append(out, "delta "+it.delta.ev.RunID+" "+it.delta.text())
		case it.event == "":
			out = append(out, "frame "+string(it.payload))
		default:
			out = append(out, it.event+" "+string(it.payload))
		}
		b.sent(it, now)
	}
}

func deltaEvent(run, text, more string) *delta {
	return newDelta(chat.Event{Kind: chat.EventDelta, RunID: run, Text: text + more, Delta: more})
}

func TestUnsentStatesAreReplacedAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newSendBuffer(1<<20, time.Hour, func() {})
	b.putFrame([]byte("one"))
	b.putState("tick", []byte("1"), 0)
	b.putEvent("shutdown", []byte("a"))
	b.putState("tick", []byte("2"), 0)
	b.putState("health", []byte("3"), 7)
	b.putEvent("shutdown", []byte("b"))
	got := fmt.Sprint(b.taken(time.Now()))
	if want := "[frame one tick 2 shutdown a health 3 shutdown b]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if b.bytes != 0 {
		t.Errorf("%d bytes are left in an empty buffer", b.bytes)
	}
}

func TestMergedDeltaKeepsWhatTheReaderLacks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		first   *delta
		next    *delta
		text    string
		replace bool
	}{
		{"plain", deltaEvent("r", "a", "b"), deltaEvent("r", "ab", "c"), "bc", false},
		{"after waiting", newDelta(chat.Event{Kind: chat.EventQueued, RunID: "r"}), deltaEvent("r", "", "a"), "a", false},
		{"second attempt", deltaEvent("r", "old", "x"), newDelta(chat.Event{Kind: chat.EventDelta, Text: "new", Delta: "new", Replace: true}), "new", true},
		{"replace stays", newDelta(chat.Event{Kind: chat.EventDelta, Text: "new", Delta: "new", Replace: true}), deltaEvent("r", "new", "er"), "newer", true},
		{"text that shrank", deltaEvent("r", "long text", "x"), deltaEvent("r", "", "a"), "a", true},
	} {
		tc.first.merge(tc.next)
		if got := tc.first.text(); got != tc.text || tc.first.replace != tc.replace || tc.first.waiting {
			t.Errorf("%s: %q replace %v, want %q %v", tc.name, got, tc.first.replace, tc.text, tc.replace)
		}
	}
}

func TestGateHoldsTheEventsOfItsRunOnly(t *testing.T) {
	t.Parallel()
	b := newSendBuffer(1<<20, time.Hour, func() {})
	b.gate("r")
	b.putRunEvent("r", "agent", []byte("start"), false)
	b.putDelta("r", deltaEvent("r", "", "a"))
	b.putRunEvent("r", "chat", []byte("final"), true)
	b.putDelta("other", deltaEvent("other", "", "b"))
	now := time.Now()
	if got := fmt.Sprint(b.taken(now)); got != "[delta other b]" {
		t.Errorf("behind a closed gate: %s", got)
	}
	b.putFrame([]byte("response"))
	b.openGate("r")
	if got := fmt.Sprint(b.taken(now)); got != "[frame response agent start delta r a chat final]" {
		t.Errorf("after the gate opened: %s", got)
	}
	if len(b.streams) != 1 || len(b.blocked) != 0 {
		t.Errorf("%d streams, %d blocked; want the other run only", len(b.streams), len(b.blocked))
	}
}

func TestSlowIsSaidOnce(t *testing.T) {
	t.Parallel()
	said := 0
	b := newSendBuffer(100, time.Hour, func() { said++ })
	for range 5 {
		b.putFrame(make([]byte, 150))
	}
	if said != 1 {
		t.Errorf("said %d times", said)
	}
	b.drop(&closing{code: 1013})
	b.putFrame([]byte("late"))
	if it, _ := b.take(time.Now()); it != nil || b.ending() == nil {
		t.Error("a dropped buffer still has something to write")
	}
	if b.finish(&closing{code: 1000}) || b.ending().code != 1013 {
		t.Error("the first ending does not stand")
	}
}

// Whatever comes in whatever order: the events of a run keep their order, its text arrives whole, deltas keep their distance, and
// the account of bytes is right.
func TestBufferKeepsOrderAndText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var failure any                     // rapid has to see it on its own goroutine
		synctest.Test(t, func(*testing.T) { // the buffer and the test have one clock
			defer func() { failure = recover() }()
			keepsOrderAndText(rt)
		})
		if failure != nil {
			panic(failure)
		}
	})
}

func keepsOrderAndText(t *rapid.T) {
	b := newSendBuffer(1<<30, time.Hour, func() {})
	defer b.drop(&closing{})
	said := map[string]string{}  // by run: all text so far
	heard := map[string]string{} // by run: text and marks in the order written
	want := map[string]string{}
	lastDelta := map[string]time.Time{}
	gates := map[string]int{}
	write := func() {
		for {
			it, _ := b.take(time.Now())
			if it == nil {
				return
			}
			run := it.stream.run
			if gates[run] > 0 {
				t.Fatalf("run %s spoke behind a closed gate", run)
			}
			if it.delta == nil {
				heard[run] += string(it.payload)
			} else {
				heard[run] += it.delta.text()
				if gap := time.Since(lastDelta[run]); !lastDelta[run].IsZero() && gap < deltaGap {
					t.Fatalf("two deltas of %s within %s", run, gap)
				}
				lastDelta[run] = time.Now()
			}
			b.sent(it, time.Now())
		}
	}
	marks := 0
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		run := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "run")
		switch rapid.IntRange(0, 5).Draw(t, "step") {
		case 0, 1:
			more := string(rune('a' + len(said[run])%26))
			b.putDelta(run, deltaEvent(run, said[run], more))
			said[run] += more
			want[run] += more
		case 2:
			marks++
			mark := fmt.Sprintf("[%d]", marks)
			b.putRunEvent(run, "agent", []byte(mark), false)
			want[run] += mark
		case 3:
			write()
		case 4:
			time.Sleep(time.Duration(rapid.IntRange(1, 50).Draw(t, "ms")) * time.Millisecond)
		case 5:
			if gates[run] == 0 {
				write() // what was queued before the gate closed is on its way
				gates[run]++
				b.gate(run)
			} else {
				gates[run]--
				b.openGate(run)
			}
		}
	}
	for run, n := range gates {
		for range n {
			gates[run]--
			b.openGate(run)
		}
	}
	for range 200 {
		time.Sleep(deltaGap)
		write()
	}
	for run := range want {
		if heard[run] != want[run] {
			t.Fatalf("run %s: heard %q, want %q", run, heard[run], want[run])
		}
	}
	if b.bytes != 0 || len(b.blocked) != 0 {
		t.Fatalf("%d bytes, %d blocked streams in an empty buffer", b.bytes, len(b.blocked))
	}
}

// Whatever bytes come, a request is either refused with a reason or has an id and a method, and its params can be checked.
func FuzzFrame(f *testing.F) {
	for _, s := range []string{
		`{"type":"req","id":"1","method":"chat.send","params":{"sessionKey":"main","message":"x","idempotencyKey":"k"}}`,
		`{"type":"req","id":"1","method":"connect","params":{"minProtocol":4,"maxProtocol":4,"client":{"id":"x","version":"1","platform":"p","mode":"cli"}}}`,
		`[]`, `{"id":"\ud800"}`, `{"id":"\u0000","type":"req"}`, strings.Repeat("[", 70), `{"a":1e999}`, "\"\\u", "{\"\\",
	} {
		f.Add([]byte(s))
	}
	send, connect, history, wake := shapeOf[chatSendParams](), shapeOf[connectParams](), shapeOf[historyParams](), shapeOf[wakeParams]()
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) {
			return // closed before it is looked at
		}
		req, err := parseRequest(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "invalid request frame: ") {
				t.Errorf("reason %q", err)
			}
			return
		}
		if req.id == "" || req.method == "" || !json.Valid(data) {
			t.Errorf("taken: %q", data)
		}
		for _, err := range []error{
			connect.decode(req.params, &connectParams{}), history.decode(req.params, &historyParams{}), wake.decode(req.params, &wakeParams{}),
		} {
			var p *paramError
			if err != nil && (!errors.As(err, &p) || p.text == "") {
				t.Errorf("refusal without a reason: %v", err)
			}
		}
		var p chatSendParams
		if send.decode(req.params, &p) == nil && req.badText == nil && strings.ContainsRune(p.Message, 0) {
			t.Errorf("U+0000 got through: %q", data)
		}
		if out := appendResponse(nil, req.id, []byte("{}")); !json.Valid(out) {
			t.Errorf("the response is no JSON: %q", out)
		}
	})
}

func TestConnectionsAreBoundedInAll(t *testing.T) {
	t.Parallel()
	c, cfg := crowd{strangers: map[netip.Addr]int{}}, &Config{MaxSockets: 2, MaxStrangersPerAddr: 1}
	for n := range 2 + plainRoom {
		if !c.enter(netip.Addr{}, cfg) {
			t.Fatalf("no place for connection %d", n+1)
		}
	}
	if c.enter(netip.Addr{}, cfg) {
		t.Error("there is no bound")
	}
	c.leave()
	if !c.enter(netip.Addr{}, cfg) {
		t.Error("the place of who has left is not free")
	}
}
