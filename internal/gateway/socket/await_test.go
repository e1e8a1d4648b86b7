package socket

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
)

// readerIsRenewed reports whether the goroutine that reads was started by another reading
// goroutine.
func readerIsRenewed() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "created by laneway/internal/gateway/socket.(*Conn).read in")
}

// readTick reads the next tick, and answers pings meanwhile.
func readTick(t *testing.T, peer *websocket.Conn) {
	t.Helper()
	if _, got, err := peer.ReadMessage(); err != nil || !strings.Contains(string(got), `"tick"`) {
		t.Errorf("%q, %v; want a tick", got, err)
	}
	synctest.Wait()
}

// A stack that has grown does not shrink to the size of a new goroutine's. Not parallel: it
// inspects the goroutines of the process.
//
//nolint:paralleltest // see above
func TestAReaderWhoseStackHasGrownIsReplacedOnceItIsIdle(t *testing.T) {
	for name, c := range map[string]struct {
		control int // kind of a control frame; 0 = no frame
		texts   []string
		want    bool
	}{
		"nothing":  {want: false},
		"a pong":   {control: websocket.PongMessage, want: false},
		"a ping":   {control: websocket.PingMessage, want: true},
		"messages": {texts: []string{"one", "two"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			end := connected(t, func(_ *echo, peer *websocket.Conn) {
				say(t, peer, "hello")
				for round := range 3 {
					if c.control != 0 {
						control(t, peer, c.control, "12")
					}
					for _, text := range c.texts {
						say(t, peer, text)
					}
					synctest.Wait()
					if round == 0 && readerIsRenewed() {
						t.Error("the reader was replaced before a tick")
					}
					readTick(t, peer)
					if got := readerIsRenewed(); got != c.want {
						t.Errorf("tick %d: the reader was replaced: %t, want %t", round+1, got, c.want)
					}
					if n := goroutinesIn("gateway/socket.(*Conn).read"); n != 1 {
						t.Errorf("%d goroutines read, want 1", n)
					}
				}
				say(t, peer, "still here")
				_ = peer.Close()
			})
			if end.Reason != ClosedByPeer {
				t.Errorf("the connection ended as %q", end.Reason)
			}
		})
	}
}

func control(t *testing.T, peer *websocket.Conn, kind int, text string) {
	t.Helper()
	if err := peer.WriteControl(kind, []byte(text), time.Now().Add(time.Second)); err != nil {
		t.Error(err)
	}
}

// masked returns a frame of a client with the given bytes.
func masked(first byte, payload string) string {
	mask := "\x01\x02\x03\x04"
	out := []byte{first, frameMasked | byte(len(payload))}
	out = append(out, mask...)
	for i := range len(payload) {
		out = append(out, payload[i]^mask[i%len(mask)])
	}
	return string(out)
}

// Control frames arrive alone, several at once, before a message, and in pieces. Each piece is one
// write.
func TestControlFramesBetweenMessages(t *testing.T) {
	t.Parallel()
	ping, pong, long := masked(0x89, "abc"), masked(0x8a, "abc"), masked(0x89, strings.Repeat("p", longestFrame))
	text, more := masked(0x81, "text"), masked(0x81, "more")
	for name, c := range map[string]struct {
		pieces []string
		pings  []string // payloads of the pongs
		code   int      // 0 = both messages are answered
	}{
		"a pong":                     {[]string{pong, text, more}, nil, 0},
		"a ping":                     {[]string{ping, text, more}, []string{"abc"}, 0},
		"a long ping":                {[]string{long, text, more}, []string{strings.Repeat("p", longestFrame)}, 0},
		"an empty ping":              {[]string{masked(0x89, ""), text, more}, []string{""}, 0},
		"many pings at once":         {[]string{ping + pong + ping + text + ping + more}, []string{"abc", "abc", "abc"}, 0},
		"more pings than the buffer": {[]string{strings.Repeat(long, 9) + text + more}, slices.Repeat([]string{strings.Repeat("p", longestFrame)}, 9), 0},
		"a ping in pieces":           {[]string{ping[:1], ping[1:4], ping[4:], text, more}, []string{"abc"}, 0},
		"a ping and half a message":  {[]string{ping + text[:3], text[3:] + more}, []string{"abc"}, 0},
		"a ping in a message":        {[]string{masked(0x01, "te") + ping + masked(0x80, "xt"), more}, []string{"abc"}, 0},
		"no mask":                    {[]string{"\x8a\x00"}, nil, 1002},
		"a reserved bit":             {[]string{masked(0xca, "abc")}, nil, 1002},
		"in fragments":               {[]string{masked(0x09, "abc")}, nil, 1002},
		"too long":                   {[]string{"\x89\xfe\x00\x7e\x01\x02\x03\x04" + strings.Repeat("p", 126)}, nil, 1002},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pings []string
			code := 0
			connected(t, func(_ *echo, peer *websocket.Conn) {
				say(t, peer, "hello")
				peer.SetPongHandler(func(text string) error { pings = append(pings, text); return nil })
				go func() {
					for _, piece := range c.pieces {
						if _, err := peer.NetConn().Write([]byte(piece)); err != nil {
							return
						}
						synctest.Wait()
					}
				}()
				for _, want := range []string{"text", "more"} {
					_, got, err := peer.ReadMessage()
					if closed, ok := err.(*websocket.CloseError); ok { //nolint:errorlint // the library wraps nothing
						code = closed.Code
						break
					}
					if err != nil || string(got) != want {
						t.Errorf("answer %q, %v; want %q", got, err, want)
					}
				}
				_ = peer.Close()
			})
			if code != c.code || strings.Join(pings, "|") != strings.Join(c.pings, "|") || len(pings) != len(c.pings) {
				t.Errorf("close %d and pongs %q, want %d and %q", code, pings, c.code, c.pings)
			}
		})
	}
}

// A message can have any number of empty continuation frames, and the library handles them and
// control frames without its caller. They are limited per second; frames with content are not.
func TestFramesWithoutContentAreBounded(t *testing.T) {
	t.Parallel()
	ping, empty, begin, last := masked(0x89, ""), masked(0x00, ""), masked(0x01, "a"), masked(0x80, "b")
	for name, c := range map[string]struct {
		bytes string
		code  int
	}{
		"pings within the limit":         {strings.Repeat(ping, framesPerSecond) + begin + last, 0},
		"pings beyond it":                {strings.Repeat(ping, framesPerSecond+1), 1008},
		"pongs beyond it":                {strings.Repeat(masked(0x8a, "abc"), framesPerSecond+1), 1008},
		"empty frames within it":         {begin + strings.Repeat(empty, framesPerSecond) + last, 0},
		"empty frames beyond it":         {begin + strings.Repeat(empty, framesPerSecond+1), 1008},
		"frames with content":            {begin + strings.Repeat(masked(0x00, "c"), 3*framesPerSecond) + last, 0},
		"a content like pings":           {masked(0x01, strings.Repeat("\x08\x02\x0a\x04", 30)) + last, 0}, // masked: 09 00 09 00
		"a longer content like pings":    {longFrame(strings.Repeat("\x09\x00", 1_000)), 0},
		"a frame header in single bytes": {begin + empty + last, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code := 0
			end := connected(t, func(_ *echo, peer *websocket.Conn) {
				say(t, peer, "hello")
				peer.SetPongHandler(func(string) error { return nil })
				go func() {
					piece := 4096
					if strings.HasPrefix(name, "a frame header") {
						piece = 1
					}
					for b := []byte(c.bytes); len(b) > 0; b = b[min(piece, len(b)):] {
						if _, err := peer.NetConn().Write(b[:min(piece, len(b))]); err != nil {
							return
						}
					}
				}()
				_, _, err := peer.ReadMessage()
				if closed, ok := err.(*websocket.CloseError); ok { //nolint:errorlint // the library wraps nothing
					code = closed.Code
				}
				_ = peer.Close()
			})
			if code != c.code {
				t.Errorf("close %d, want %d; the connection ended as %+v", code, c.code, end)
			}
		})
	}
}

// longFrame returns a text message of a client in one frame with two bytes of size.
func longFrame(payload string) string {
	return "\x81\xfe" + string([]byte{byte(len(payload) >> 8), byte(len(payload))}) + "\x00\x00\x00\x00" + payload
}
