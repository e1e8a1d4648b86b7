package teste2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mostConns is the number of connections of one stage, abuseInFlight the unanswered calls of each, and abusePace the interval of the
	// calls of one connection: 200 a second, which is the default of limits.requests.
	mostConns     = 32
	abuseInFlight = 64
	abusePace     = 5 * time.Millisecond
)

// tally counts the answers of a stage.
type tally struct {
	sent, ok atomic.Int64

	mu      sync.Mutex
	refused map[string]int
	lost    []error // connections that ended before the test closed them
}

func (c *tally) refuse(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[string]int{}
	}
	c.refused[code]++
}

func (c *tally) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = append(c.lost, err)
}

// abuser is one connection that calls as often as it may.
type abuser struct {
	*bare

	counts *tally
	places chan struct{} // unanswered calls
	gone   chan struct{} // closed when the reader has ended
	closed atomic.Bool

	mu      sync.Mutex
	pending map[string]bool
	header  [14]byte
}

// enlist connects with a credential and requests one scope.
func enlist(addr, token, scope string, counts *tally) (*abuser, error) {
	b, err := upgrade(addr)
	if err != nil {
		return nil, err
	}
	err = b.request("c", "connect", map[string]any{
		"minProtocol": 4, "maxProtocol": 4, "auth": map[string]string{"token": token}, "scopes": []string{scope},
		"client": map[string]string{"id": "abuse", "version": "1", "platform": "test", "mode": "test"},
	})
	if err == nil {
		_, err = b.answer("c")
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	_ = b.SetDeadline(time.Time{})
	a := &abuser{bare: b, counts: counts, places: make(chan struct{}, abuseInFlight), gone: make(chan struct{}), pending: map[string]bool{}}
	go a.read()
	return a, nil
}

// attack calls until stop is closed or the connection has ended: next returns the method and the params of call n. It returns the n with
// which to continue.
func (a *abuser) attack(stop <-chan struct{}, n int, next func(n int) (method, params string)) int {
	tick := time.NewTicker(abusePace)
	defer tick.Stop()
	for ; ; n++ {
		select {
		case a.places <- struct{}{}:
		case <-stop:
			return n
		case <-a.gone:
			return n
		}
		select {
		case <-tick.C:
		case <-stop:
			return n
		case <-a.gone:
			return n
		}
		method, params := next(n)
		if err := a.send(fmt.Sprint("n", n), method, params); err != nil {
			return n + 1 // the reader reports the reason
		}
		a.counts.sent.Add(1)
	}
}

// send writes a request in a frame whose mask is zero, which costs the client no work.
func (a *abuser) send(id, method, params string) error {
	a.mu.Lock()
	a.pending[id] = true
	a.mu.Unlock()
	head := `{"type":"req","id":"` + id + `","method":"` + method + `","params":`
	n := len(head) + len(params) + 1
	frame := append(a.header[:0], fin|opText)
	switch {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	frame = append(frame, 0, 0, 0, 0)
	parts := net.Buffers{frame, []byte(head), []byte(params), []byte("}")}
	_, err := parts.WriteTo(a.Conn)
	return err
}

// read counts answers until the connection ends. Events are read and dropped.
func (a *abuser) read() {
	defer close(a.gone)
	var buf []byte
	for {
		kind, data, err := a.nextInto(buf)
		buf = data[:0]
		switch {
		case err != nil:
			if !a.closed.Load() {
				a.counts.lose(err)
			}
			return
		case kind == opText:
			a.count(data)
		}
	}
}

// nextInto is [bare.next] with a reused buffer, because this client reads gigabytes.
func (a *abuser) nextInto(buf []byte) (kind byte, data []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(a.r, head[:2]); err != nil {
		return 0, buf, err
	}
	n := uint64(head[1] & 0x7f)
	switch n {
	case 126:
		_, err = io.ReadFull(a.r, head[2:4])
		n = uint64(binary.BigEndian.Uint16(head[2:4]))
	case 127:
		_, err = io.ReadFull(a.r, head[2:10])
		n = binary.BigEndian.Uint64(head[2:10])
	}
	if err != nil {
		return 0, buf, err
	}
	if uint64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(a.r, buf); err != nil {
		return 0, buf, err
	}
	switch kind = head[0] & 0x0f; kind {
	case opPing:
		err = a.frame(fin|0xA, len(buf), buf)
	case opClose:
		closed := &closedError{}
		if n >= 2 {
			closed.code, closed.text = int(binary.BigEndian.Uint16(buf)), string(buf[2:])
		}
		err = closed
	}
	return kind, buf, err
}

// count counts an answer by its first members, because the rest may have megabytes.
func (a *abuser) count(data []byte) {
	rest, is := bytes.CutPrefix(data, []byte(`{"type":"res","id":"`))
	if !is {
		return
	}
	id, rest, _ := bytes.Cut(rest, []byte(`"`))
	a.mu.Lock()
	first := a.pending[string(id)] // agent has two answers
	delete(a.pending, string(id))
	a.mu.Unlock()
	if !first {
		return
	}
	if bytes.HasPrefix(rest, []byte(`,"ok":true`)) {
		a.counts.ok.Add(1)
	} else {
		var r Response
		if err := json.Unmarshal(data, &r); err != nil || r.Error == nil {
			a.counts.refuse("no answer at all")
		} else {
			a.counts.refuse(finer(r.Error))
		}
	}
	<-a.places
}

// finer returns the most specific code of a refusal.
func finer(e *WireError) string {
	if code, is := e.Details["code"].(string); is {
		return code
	}
	return e.Code
}

// settle waits until every call is answered, for limit at most.
func (a *abuser) settle(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for range abuseInFlight {
		select {
		case a.places <- struct{}{}:
		case <-a.gone:
			return
		case <-t.C:
			return
		}
	}
}

// leave closes the connection and waits for its reader.
func (a *abuser) leave() {
	a.closed.Store(true)
	_ = a.Close()
	<-a.gone
}
