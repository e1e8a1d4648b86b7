package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
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
	"laneway/internal/channel/webhook"
	"laneway/internal/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	target = "http://hooks.example.com/in?key=s3cret"
	secret = "0123456789abcdef0123456789abcdef"
)

// receiver is an HTTP server over pipes, so that it can run in a bubble.
type receiver struct {
	waiting chan net.Conn
	closed  chan struct{}
	mu      sync.Mutex
	got     []*http.Request
	bodies  []string
	dialled []string
	hang    bool
	answer  func(w http.ResponseWriter)
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{waiting: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(r) }()
	t.Cleanup(func() { close(r.closed); _ = srv.Close(); <-done })
	return r
}

func (r *receiver) Accept() (net.Conn, error) {
	select {
	case c := <-r.waiting:
		return c, nil
	case <-r.closed:
		return nil, net.ErrClosed
	}
}
func (*receiver) Close() error   { return nil }
func (*receiver) Addr() net.Addr { return &net.UnixAddr{Name: "receiver", Net: "pipe"} }

func (r *receiver) dial(ctx context.Context, _, address string, _ bool) (net.Conn, error) {
	r.mu.Lock()
	r.dialled = append(r.dialled, address)
	r.mu.Unlock()
	near, far := net.Pipe()
	select {
	case r.waiting <- far:
		return near, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	hang, answer := r.hang, r.answer
	r.mu.Unlock()
	if hang || err != nil {
		<-req.Context().Done()
		return
	}
	r.mu.Lock()
	r.got, r.bodies = append(r.got, req), append(r.bodies, string(body))
	r.mu.Unlock()
	if answer != nil {
		answer(w)
	}
}

func (r *receiver) set(hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang = hang
}

func (r *receiver) read() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.bodies...)
}

// found makes a lookup that returns these addresses.
func found(addrs ...string) func(context.Context, string) ([]netip.Addr, error) {
	return func(context.Context, string) ([]netip.Addr, error) {
		var list []netip.Addr
		for _, a := range addrs {
			list = append(list, netip.MustParseAddr(a))
		}
		return list, nil
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	channeltest.RunSending(t, func(t *testing.T) channeltest.Harness {
		t.Helper()
		r := newReceiver(t)
		c := webhook.New(webhook.Config{Lookup: found("93.184.216.34"), Dial: r.dial})
		return channeltest.Harness{Channel: c, Target: chat.Target{Channel: "webhook", ChatID: target}, Read: r.read, Hang: r.set}
	})
}

func send(t *testing.T, c *webhook.Channel, url string) (chat.Sent, *channel.SendError) {
	t.Helper()
	sent, err := c.Send(t.Context(), chat.Reply{ID: "out-1", RunID: "run-1", Target: chat.Target{Channel: "webhook", ChatID: url}, Kind: "webhook", Text: `{"a":1}`, Attempt: 2}, channeltest.Held{})
	if err == nil {
		return sent, nil
	}
	failed, ok := errors.AsType[*channel.SendError](err)
	if !ok {
		t.Fatalf("%T is no SendError: %v", err, err)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error tells what the URL carries: %v", err)
	}
	return sent, failed
}

func TestADeliveryIsSignedAndKeepsItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		c := webhook.New(webhook.Config{Lookup: found("93.184.216.34"), Dial: r.dial, Secret: secret, Token: "tok"})
		if _, err := send(t, c, target); err != nil {
			t.Fatal(err)
		}
		req := r.got[0]
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Idempotency-Key": "run-1", "X-Laneway-Attempt": "2", "Authorization": "", // http, and not on the list
		} {
			if got := req.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		at, given, _ := strings.Cut(strings.TrimPrefix(req.Header.Get("X-Laneway-Signature"), "t="), ",v1=")
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(at + "." + r.bodies[0]))
		if given != hex.EncodeToString(mac.Sum(nil)) || at != strconv.FormatInt(time.Now().Unix(), 10) {
			t.Errorf("the signature %q does not prove the body", req.Header.Get("X-Laneway-Signature"))
		}
		if r.dialled[0] != "93.184.216.34:80" {
			t.Errorf("dialled %q, not the address that was checked", r.dialled)
		}
	})
}

func TestTheTokenGoesOverHTTPToAllowedHostsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		c := webhook.New(webhook.Config{Lookup: found("10.0.0.7"), Dial: r.dial, Token: "tok", AllowedHosts: []string{"Hooks.Example.com"}})
		if _, err := send(t, c, target); err != nil {
			t.Fatal(err)
		}
		if got := r.got[0].Header.Get("Authorization"); got != "Bearer tok" {
			t.Errorf("Authorization is %q", got)
		}
	})
}

func TestAnswersAreSorted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		c := webhook.New(webhook.Config{Lookup: found("93.184.216.34"), Dial: r.dial})
		for _, x := range []struct {
			code      int
			header    string
			reason    string
			permanent bool
			wait      time.Duration
		}{
			{code: 200},
			{code: 202},
			{code: 204},
			{code: 301, reason: webhook.ReasonRedirect, permanent: true},
			{code: 307, reason: webhook.ReasonRedirect, permanent: true},
			{code: 400, reason: webhook.ReasonRefused, permanent: true},
			{code: 401, reason: webhook.ReasonRefused, permanent: true},
			{code: 404, reason: webhook.ReasonRefused, permanent: true},
			{code: 410, reason: webhook.ReasonRefused, permanent: true},
			{code: 408, reason: webhook.ReasonServer},
			{code: 425, reason: webhook.ReasonServer},
			{code: 429, header: "30", reason: webhook.ReasonLimited, wait: 30 * time.Second},
			{code: 429, header: "99999999", reason: webhook.ReasonLimited, wait: time.Hour},
			{code: 429, header: "-5", reason: webhook.ReasonLimited},
			{code: 500, reason: webhook.ReasonServer},
			{code: 503, header: "2", reason: webhook.ReasonServer, wait: 2 * time.Second},
		} {
			r.answer = func(w http.ResponseWriter) {
				w.Header().Set("Location", "http://169.254.169.254/latest")
				if x.header != "" {
					w.Header().Set("Retry-After", x.header)
				}
				w.WriteHeader(x.code)
			}
			before := len(r.dialled)
			sent, err := send(t, c, target)
			switch {
			case x.reason == "" && (err != nil || sent.ProviderID != "http-"+strconv.Itoa(x.code)):
				t.Errorf("%d: %+v, %v", x.code, sent, err)
			case x.reason != "" && (err == nil || err.Reason != x.reason || err.Permanent != x.permanent || err.RetryAfter != x.wait):
				t.Errorf("%d: %+v", x.code, err)
			}
			if len(r.dialled) != before+1 {
				t.Errorf("%d: dialled %q", x.code, r.dialled[before:])
			}
		}
	})
}

func TestASilentReceiverCostsTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		r.set(true)
		c := webhook.New(webhook.Config{Lookup: found("93.184.216.34"), Dial: r.dial})
		began := time.Now()
		_, err := send(t, c, target)
		if err == nil || err.Permanent || err.Reason != webhook.ReasonTimeout || time.Since(began) != webhook.Timeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestAnEndlessAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		written := make(chan int, 1)
		r.answer = func(w http.ResponseWriter) {
			total := 0
			defer func() { written <- total }()
			for chunk := make([]byte, 64<<10); ; {
				n, err := w.Write(chunk)
				if total += n; err != nil {
					return
				}
			}
		}
		c := webhook.New(webhook.Config{Lookup: found("93.184.216.34"), Dial: r.dial})
		if _, err := send(t, c, target); err != nil {
			t.Fatal(err)
		}
		if n := <-written; n > 3<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	})
}

func TestWhatIsPublic(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.0", "2606:4700::1111", "2a00:1450:4001::200e"} {
		if !webhook.Public(netip.MustParseAddr(s)) {
			t.Errorf("%s is refused", s)
		}
	}
	for _, s := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1",
		"ff02::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "2606:4700::1%eth0",
	} {
		if webhook.Public(netip.MustParseAddr(s)) {
			t.Errorf("%s passes", s)
		}
	}
	if webhook.Public(netip.Addr{}) {
		t.Error("no address passes")
	}
}

// hostile returns URLs that lead, or claim to lead, to this host.
func hostile(port string) []string {
	var list []string
	for _, host := range []string{
		"127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.000.000.001",
		"0", "0.0.0.0", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
		"[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[ff02::1]", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "169.254.170.2", "[fd00:ec2::254]",
		"224.0.0.1", "240.0.0.1", "255.255.255.255", "①②⑦.⓪.⓪.①", "127。0。0。1", "%31%32%37.0.0.1", "127.0.0.1.", "ip6-localhost",
	} {
		list = append(list, "http://"+host+":"+port+"/x", "https://"+host+":"+port+"/x")
	}
	return append(list,
		"http://user:pw@127.0.0.1:"+port, "http://93.184.216.34@127.0.0.1:"+port, "http://127.0.0.1:"+port+"\\@93.184.216.34", "//127.0.0.1:"+port, "127.0.0.1:"+port,
		"file:///etc/passwd", "ftp://127.0.0.1:"+port, "gopher://127.0.0.1:"+port+"/_x", "http:127.0.0.1:"+port, "http://", "http:///x", "unix:///run/x.sock", "javascript:alert(1)", "",
		"http://127.0.0.1:"+port+"/"+strings.Repeat("x", 3000), "http://\x00127.0.0.1:"+port,
	)
}

func TestNoHostileURLReachesThisHost(t *testing.T) {
	t.Parallel()
	var met atomic.Int64
	canary := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { met.Add(1) }))
	canary.Config.ConnState = func(net.Conn, http.ConnState) { met.Add(1) }
	canary.Start()
	defer canary.Close()
	u, err := url.Parse(canary.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := webhook.New(webhook.Config{})
	list := hostile(u.Port())
	if len(list) < 80 {
		t.Fatalf("only %d URLs", len(list))
	}
	for _, raw := range list {
		if _, err := send(t, c, raw); err == nil {
			t.Errorf("%q was delivered", raw)
		}
	}
	if n := met.Load(); n != 0 {
		t.Errorf("the canary was met %d times", n)
	}
	// The same canary is reached when the operator allows it, so the test can detect a connection.
	if _, err := send(t, webhook.New(webhook.Config{AllowedHosts: []string{"127.0.0.1"}}), canary.URL); err != nil || met.Load() == 0 {
		t.Errorf("the allowed host was not reached: %v", err)
	}
}

func TestANameThatChangesItsMindGainsNothing(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string][][]string{
		"public, then private":  {{"93.184.216.34"}, {"127.0.0.1"}},
		"both at once":          {{"93.184.216.34", "127.0.0.1"}},
		"mapped":                {{"::ffff:127.0.0.1"}},
		"nothing":               {{}},
		"private, then private": {{"10.0.0.1"}, {"10.0.0.1"}},
	} {
		asked, dialled := 0, []string(nil)
		c := webhook.New(webhook.Config{
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				list, err := found(answers[min(asked, len(answers)-1)]...)(t.Context(), "")
				asked++
				return list, err
			},
			Dial: func(_ context.Context, _, address string, _ bool) (net.Conn, error) {
				dialled = append(dialled, address)
				return nil, net.ErrClosed
			},
		})
		if _, err := send(t, c, "http://rebind.example.com/"); err == nil || asked != 1 {
			t.Errorf("%s: %v after %d lookups", name, err, asked)
		}
		for _, a := range dialled {
			if a != "93.184.216.34:80" {
				t.Errorf("%s: dialled %s", name, a)
			}
		}
	}
}

func TestWhatCanBeSeenInAURLIsRefusedBeforeItIsStored(t *testing.T) {
	t.Parallel()
	c := webhook.New(webhook.Config{AllowedHosts: []string{"10.1.2.3", "metrics.internal"}})
	for _, ok := range []string{"https://example.com/x", "http://example.com:8080", "http://10.1.2.3/x", "http://metrics.internal", "https://[2606:4700::1111]/"} {
		if err := c.Check(ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{"http://10.1.2.4/x", "http://localhost/", "http://[::1]/", "ftp://example.com", "http://a:b@example.com", "example.com", ""} {
		if err := c.Check(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
