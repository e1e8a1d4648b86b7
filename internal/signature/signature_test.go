package signature_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/signature"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "0123456789abcdef0123456789abcdef"

func TestOnlyTheSignedBodyAtItsTimeIsProven(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	body := []byte(`{"a":1}`)
	good := signature.Sign(secret, now, body)
	proof := strings.TrimPrefix(good, "t=1800000000,v1=")
	for name, tt := range map[string]struct {
		value, secret, body string
		now                 time.Time
		want                bool
	}{
		"Good":             {good, secret, string(body), now, true},
		"UpperCase":        {"t=1800000000,v1=" + strings.ToUpper(proof), secret, string(body), now, true},
		"OldestAllowed":    {good, secret, string(body), now.Add(signature.Window), true},
		"TooOld":           {good, secret, string(body), now.Add(signature.Window + time.Second), false},
		"FromTheFuture":    {good, secret, string(body), now.Add(-signature.Window - time.Second), false},
		"ChangedBody":      {good, secret, `{"a":2}`, now, false},
		"ChangedTime":      {"t=1800000001,v1=" + proof, secret, string(body), now, false},
		"AnotherSecret":    {good, secret + "x", string(body), now, false},
		"TimeWithZero":     {"t=01800000000,v1=" + proof, secret, string(body), now, false},
		"NoProof":          {"t=1800000000,v1=", secret, string(body), now, false},
		"NoVersion":        {"t=1800000000," + proof, secret, string(body), now, false},
		"SwappedMembers":   {"v1=" + proof + ",t=1800000000", secret, string(body), now, false},
		"SmallestTime":     {"t=-9223372036854775808,v1=" + proof, secret, string(body), now, false},
		"LargerThanATime":  {"t=9223372036854775808,v1=" + proof, secret, string(body), now, false},
		"Empty":            {"", secret, string(body), now, false},
		"HexWithBlanks":    {"t=1800000000,v1= " + proof, secret, string(body), now, false},
		"SignatureOfEmpty": {signature.Sign(secret, now, nil), secret, "", now, true},
	} {
		at, got, ok := signature.Parse(tt.value, tt.now)
		if is := ok && signature.Proves(tt.secret, at, got, []byte(tt.body)); is != tt.want {
			t.Errorf("%s: proven %t, want %t", name, is, tt.want)
		}
	}
}

func ExampleSign() {
	fmt.Println(signature.Header+":", signature.Sign("secret", time.Unix(1, 0), []byte("body")))
	// Output: X-Laneway-Signature: t=1,v1=842b24d9575dee4b6ec460b7e3af7d683501d84fe6279102340787c79d2e2bab
}
