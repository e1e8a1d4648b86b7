package teste2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// abuse is one thing that no client should send. It returns what must be wrong with the connection afterwards: the close code, or 0 when it
// must still answer.
type abuse struct {
	name string
	send func(b *bare) error
	code int
	says string // in the refusal, when the connection stays
}

const mebibyte = 1 << 20

func abuses(fragments int) []abuse {
	whole := func(first byte, payload string) func(*bare) error {
		return func(b *bare) error { return b.frame(first, len(payload), []byte(payload)) }
	}
	health := `{"type":"req","id":"x","method":"health","params":`
	return []abuse{
		{"a message of 16 MiB", func(b *bare) error { return b.frame(fin|opText, 16*mebibyte, make([]byte, 16*mebibyte)) }, 1009, ""},
		{"a declared length of 2^62", func(b *bare) error { return b.frame(fin|opText, 1<<62, make([]byte, 2*mebibyte)) }, 1009, ""},
		{"fragments without an end", func(b *bare) error { return pieces(b, 2*mebibyte/64, strings.Repeat("x", 64)) }, 1009, ""},
		{"very many fragments of one byte", func(b *bare) error {
			if err := pieces(b, fragments, " "); err != nil {
				return err
			}
			return b.frame(fin|opContinue, 2, []byte("{}"))
		}, 0, "invalid request frame"},
		{"bad UTF-8", whole(fin|opText, "{\"type\":\"req\",\"id\":\"\xff\xfe\"}"), 1007, ""},
		{"a surrogate in UTF-8", whole(fin|opText, "{\"id\":\"\xed\xa0\x80\"}"), 1007, ""},
		{"a binary message", whole(fin|opBinary, "{}"), 1003, ""},
		{"a reserved bit", whole(fin|rsv1|opText, "{}"), 1002, ""},
		{"a reserved opcode", whole(fin|0x3, "{}"), 1002, ""},
		{"a continuation of nothing", whole(fin|opContinue, "{}"), 1002, ""},
		{"a ping in pieces", whole(opPing, "x"), 1002, ""},
		{"a ping of 126 bytes", whole(fin|opPing, strings.Repeat("x", 126)), 1002, ""},
		{"a frame without a mask", func(b *bare) error { _, err := b.Write([]byte{fin | opText, 2, '{', '}'}); return err }, 1002, ""},
		{"JSON 100 000 deep", func(b *bare) error {
			return b.text(health + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`)
		}, 0, "invalid request frame"},
		{"objects 50 000 deep", func(b *bare) error {
			return b.text(health + strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000) + `}`)
		}, 0, "invalid request frame"},
		{"a number of 400 digits", whole(fin|opText, health+`{"x":`+strings.Repeat("9", 400)+`}}`), 0, "invalid health params"},
		{"an exponent of 10^9", whole(fin|opText, health+`{"probe":1e1000000000}}`), 0, "invalid health params"},
		{"an id that is a number", whole(fin|opText, `{"type":"req","id":1e400,"method":"health"}`), 0, "invalid request frame"},
		{"half a surrogate pair", whole(fin|opText, `{"type":"req","id":"x","method":"chat.history","params":{"sessionKey":"\ud800"}}`), 0, "invalid chat.history params"},
		{"U+0000 in a name", whole(fin|opText, `{"type":"req","id":"x","method":"chat.history","params":{"sessionKey":"a\u0000b"}}`), 0, "invalid chat.history params"},
		{"50 000 members of one object", func(b *bare) error {
			var s strings.Builder
			for i := range 50_000 {
				fmt.Fprintf(&s, `"k%d":0,`, i)
			}
			return b.text(health + "{" + s.String() + `"z":0}}`)
		}, 0, "invalid health params"},
	}
}

// pieces begins a message and sends n pieces of it without an end, many in one write.
func pieces(b *bare, n int, piece string) error {
	if err := b.frame(opText, len(piece), []byte(piece)); err != nil {
		return err
	}
	one := append([]byte{opContinue, 0x80 | byte(len(piece)), 0, 0, 0, 0}, piece...) // the mask of zeroes changes nothing
	block := []byte(strings.Repeat(string(one), 1000))
	for ; n > 0; n -= 1000 {
		if _, err := b.Write(block[:min(n, 1000)*len(one)]); err != nil {
			return nil //nolint:nilerr // the server may close before the last piece; the reader sees how
		}
	}
	return nil
}

// Frames that no client should send end their connection with the code of the protocol, or are refused with a sentence; the gateway breaks
// at none of them, however often, and keeps none of their bytes.
func TestFrameAbuseBreaksNothing(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	rounds, fragments := testrun.Size(3, 50), testrun.Size(20_000, 1_000_000)
	g := Install(t, "", manySockets)
	g.Start()
	token := g.Token()
	all := abuses(fragments)
	base := g.rss()
	for range rounds {
		for _, a := range all {
			if err := abused(g, token, a); err != nil {
				t.Errorf("%s: %v", a.name, err)
			}
		}
		if t.Failed() {
			break
		}
	}
	grown := (g.rss() - base) / mebibyte
	t.Logf("figure: %d rounds of %d abuses: 0 panics, memory %+d MB", rounds, len(all), grown)
	if len(raceFlag()) == 0 && grown > 32 {
		t.Errorf("memory grew by %d MB", grown)
	}
	if status, body := g.Get("/healthz"); status != 200 {
		t.Errorf("/healthz after it: %d %s", status, body)
	}
}

func abused(g *Gateway, token string, a abuse) error {
	b, err := login(g.addr(), token)
	if err != nil {
		return err
	}
	defer b.Close()
	_ = b.SetDeadline(time.Now().Add(60 * time.Second))
	sent := make(chan error, 1)
	go func() { sent <- a.send(b) }()
	if a.code != 0 {
		code := b.end(60 * time.Second)
		_ = b.Close() // a sender in the middle of its bytes ends with it
		<-sent
		if code != a.code {
			return fmt.Errorf("closed with %d, want %d", code, a.code)
		}
		return nil
	}
	data, err := b.until(`"type":"res"`)
	if sendErr := <-sent; err != nil || sendErr != nil {
		return errors.Join(err, sendErr)
	}
	if !strings.Contains(string(data), `"INVALID_REQUEST"`) || !strings.Contains(string(data), a.says) {
		return fmt.Errorf("answered %.300s, want a refusal with %q", data, a.says)
	}
	if err := b.request("after", "health", map[string]any{}); err != nil {
		return err
	}
	_, err = b.answer("after")
	return err
}
