package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/client"
)

// secure is a gateway with TLS, with the self-signed certificate of httptest for 127.0.0.1 and example.com.
func secure(t *testing.T) (s *server, requests *atomic.Int64) {
	t.Helper()
	s, requests = &server{t: t}, &atomic.Int64{}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		s.serve(w, r)
	}))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // the server logs each handshake that the client aborts
	s.http.StartTLS()
	t.Cleanup(s.http.Close)
	return s, requests
}

// trusting accepts certificates that the certificate of s signed, at the time at.
func trusting(s *server, at time.Time) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(s.http.Certificate())
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, Time: func() time.Time { return at }}
}

func TestOnlyAGatewayWithItsOwnCertificateReceivesData(t *testing.T) {
	t.Parallel()
	s, requests := secure(t)
	here := s.url() // wss://127.0.0.1:PORT
	named := strings.Replace(here, "127.0.0.1", "localhost", 1)
	for _, tc := range []struct {
		name, url string
		tls       *tls.Config
		says      string
	}{
		{"signed by no trusted authority", here, nil, "unknown authority"},
		{"of another host", named, trusting(s, time.Now()), "not localhost"},
		{"expired", here, trusting(s, time.Now().AddDate(200, 0, 0)), "expired"},
		{"not yet valid", here, trusting(s, time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)), "not yet valid"},
		{"with https for wss", strings.Replace(here, "wss", "https", 1), nil, "unknown authority"},
	} {
		c, err := client.Dial(ctx(t), client.Options{URL: tc.url, Token: token, TLS: tc.tls})
		if err == nil {
			_ = c.Close()
			t.Errorf("%s: the client took the certificate", tc.name)
			continue
		}
		if !errors.Is(err, client.ErrUntrusted) || errors.Is(err, client.ErrNoGateway) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if n := requests.Load() + s.tokens.Load(); n != 0 {
		t.Errorf("a gateway that proves nothing heard %d requests", n)
	}
	c, err := client.Dial(ctx(t), client.Options{URL: here, Token: token, TLS: trusting(s, time.Now())})
	if err != nil {
		t.Fatalf("with a certificate that is trusted: %v", err)
	}
	_ = c.Close()
	if s.tokens.Load() != 1 {
		t.Errorf("the token was sent %d times, want once", s.tokens.Load())
	}
}

// Another process that listens at the gateway's address must not receive the token from a client that follows redirects, downgrades or
// sends first.
func TestTheTokenGoesNowhereElse(t *testing.T) {
	t.Parallel()
	elsewhere := newServer(t, nil)
	var heard atomic.Int64
	redirect := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if auth := r.Header.Get("Authorization") + r.Header.Get("Cookie") + r.URL.RawQuery; auth != "" {
			t.Errorf("the upgrade carries %q", auth)
		}
		heard.Add(1)
		http.Redirect(w, r, elsewhere.http.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(redirect.Close)
	plain := newServer(t, nil)
	wrongWord := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		event(ws, 1)
		if _, data, err := ws.ReadMessage(); err == nil {
			t.Errorf("without a challenge the client said %s", data)
		}
	}))
	t.Cleanup(wrongWord.Close)
	for name, url := range map[string]string{
		"redirected": redirect.URL, "no TLS behind wss": strings.Replace(plain.url(), "ws:", "wss:", 1), "no challenge": wrongWord.URL,
	} {
		if c, err := client.Dial(ctx(t), client.Options{URL: url, Token: token}); err == nil {
			_ = c.Close()
			t.Errorf("%s: connected", name)
		}
	}
	if heard.Load() != 1 {
		t.Errorf("the redirecting server was asked %d times", heard.Load())
	}
	if n := elsewhere.tokens.Load() + plain.tokens.Load(); n != 0 {
		t.Errorf("the token went out %d times", n)
	}
}
