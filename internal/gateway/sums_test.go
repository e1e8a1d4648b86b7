package gateway_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/gateway"
)

// No connection exceeds its own limit. Together, five exceed the limit of their credential, which is four times as much; four do not.
func TestConnectionsThatDoNotReadAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	virtual(t, func(t *bubble) {
		reads := t.open().login(annaToken)
		var deaf []*socket
		for range 5 {
			s := t.open().login(annaToken)
			deaf = append(deaf, s)
			for i := range 100 { // responses of about 500 bytes each
				s.request(strconv.Itoa(i), "status", nil)
				if i%10 == 9 {
					synctest.Wait() // more concurrent calls than a connection may have are refused, and a refusal is short
				}
			}
		}
		pass(time.Second + time.Millisecond)
		closed := 0
		for _, s := range deaf {
			if s.ws.WriteMessage(websocket.TextMessage, []byte(`{}`)) != nil {
				closed++
			}
		}
		if closed != 1 {
			t.Errorf("%d of %d connections that do not read were closed, want one", closed, len(deaf))
		}
		if f := reads.call("status", nil); !f.OK {
			t.Errorf("the connection that reads: %+v", f.Error)
		}
		reads.ws.Close()
		for _, s := range deaf {
			s.ws.Close()
		}
	}, func(c *gateway.Config) { c.MaxBuffered = limit })
}
