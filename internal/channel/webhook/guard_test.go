package webhook_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"laneway/internal/channel/webhook"
)

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
