package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"laneway/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "canary-4711-canary-4711"

func TestASecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	type holder struct {
		Public  secret.Secret
		private secret.Secret
		List    []secret.Secret
		Map     map[string]secret.Secret
		Pointer *secret.Secret
	}
	s := secret.New(canary)
	h := holder{s, s, []secret.Secret{s}, map[string]secret.Secret{"k": s}, &s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T", "%10s", "%10.3s"} {
		fmt.Fprintf(&out, verb+verb+verb+verb+"\n", s, h, &h, []any{s})
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("x", "secret", s, "holder", h, "pointer", &h)
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		text, err := marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	fmt.Fprint(&out, errors.Join(fmt.Errorf("with %v and %s", s, &s)))
	if strings.Contains(out.String(), "4711") || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		t.Errorf("the secret is in\n%s", out.String())
	}
	if !strings.Contains(out.String(), secret.Redacted) || s.Reveal() != canary {
		t.Error("the secret is lost, or nothing was printed")
	}
}

func TestRedactRemovesTheSecretFromATextOfAnother(t *testing.T) {
	t.Parallel()
	s := secret.New(canary)
	if got := s.Redact("a " + canary + " b " + canary); got != "a [hidden] b [hidden]" {
		t.Errorf("got %q", got)
	}
	if zero := secret.New(""); zero.IsSet() || zero.Reveal() != "" || zero.String() != secret.Redacted || zero.Redact("x") != "x" {
		t.Error("an empty text is a secret")
	}
}

func TestAGeneratedTokenIsNoFlagOfACommand(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 10_000 { // without the rule, one in 64 would begin with a hyphen
		text := secret.Generate().Reveal()
		if len(text) != 43 || text[0] == '-' || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" || seen[text] {
			t.Fatalf("%q", text)
		}
		seen[text] = true
	}
}

func TestUnmarshalTextRefusesBlankTextAndSeveralLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"":                       secret.ErrBlank,
		" \n":                    secret.ErrBlank,
		"a\nb":                   secret.ErrNotLine,
		"a\x7fb":                 secret.ErrNotLine,
		"a\u200bb":               secret.ErrNotLine,
		"\u200b":                 secret.ErrBlank,
		`"abc"`:                  secret.ErrQuoted,
		"'abc'\n":                secret.ErrQuoted,
		"TELEGRAM_TOKEN=123:abc": secret.ErrNamed,
		"export API_KEY='abc'":   secret.ErrNamed,
		"bearer abc":             secret.ErrBearer,
		"a\x00":                  secret.ErrNotLine,
	} {
		s := secret.New(canary)
		if err := s.UnmarshalText([]byte(text)); !errors.Is(err, want) || s.Reveal() != canary {
			t.Errorf("%q: got %v, want %v; the secret is unchanged: %v", text, err, want, s.Reveal() == canary)
		}
	}
	for _, text := range []string{" \t" + canary + "\n", "\ufeff" + canary + "\r\n", canary + "\u00a0\u200b\r\n\r\n", "\ufeff \u200e" + canary} {
		var s secret.Secret
		if err := s.UnmarshalText([]byte(text)); err != nil || s.Reveal() != canary {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestAddressesLoseTheirCredentials(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("postgres://me:" + canary + "@db:5432/x?sslpassword=" + canary + "&password=" + canary)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := secret.URL(u), "postgres://me:xxxxx@db:5432/x?password=xxxxx&sslpassword=xxxxx"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if password, _ := u.User.Password(); password != canary {
		t.Error("the address that was given has been changed")
	}
	for raw, want := range map[string]string{"localhost": "localhost", "me:" + canary + "@host": "…", "host?token=" + canary: "…", "host#" + canary: "…"} {
		if got := secret.RawURL(raw); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
	cause := errors.New("connection refused")
	inner := fmt.Errorf("calling: %w", &url.Error{Op: "Post", URL: "https://me:" + canary + "@host/", Err: cause})
	if got := secret.WithoutURL(inner); got.Error() != "POST: connection refused" || !errors.Is(got, cause) {
		t.Errorf("got %v", got)
	}
	if got := secret.WithoutURL(cause); !errors.Is(got, cause) || got.Error() != cause.Error() {
		t.Errorf("got %v", got)
	}
}
