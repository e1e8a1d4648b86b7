// Package signature proves who sent the body of an HTTP request. Laneway uses this scheme in both
// directions: for hooks that call the gateway, and for webhooks and agents behind HTTP that the
// gateway calls.
//
// The header [Header] has the value `t=<unix seconds>,v1=<hex>`: the HMAC-SHA256 of the time as
// written, a dot and the body, with a shared secret. The time is signed, so that a recorded request
// cannot be repeated later than [Window]; within it the receiver recognizes a repetition by the key
// of the request. The functions keep no state and import the standard library only.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Header is the name of the header.
const Header = "X-Laneway-Signature"

// Window is how far the clocks of both sides may differ, and how long a request may take to arrive.
const Window = 300 * time.Second

// Sign returns the value of the header for a body at a time.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(sum(secret, t, body))
}

// Parse splits a value of the header into the time as written and the proof in hex. ok is false
// when the value is malformed, or its time is further than [Window] away from now.
func Parse(value string, now time.Time) (at, proof string, ok bool) {
	first, second, split := strings.Cut(value, ",")
	at, timed := strings.CutPrefix(first, "t=")
	proof, versioned := strings.CutPrefix(second, "v1=")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if !split || !timed || !versioned || err != nil {
		return "", "", false
	}
	age := now.Unix() - seconds
	limit := int64(Window / time.Second)
	return at, proof, age >= -limit && age <= limit
}

// Proves reports whether a proof from [Parse] belongs to the body. The comparison takes the same
// time for every wrong proof.
func Proves(secret, at, proof string, body []byte) bool {
	given, err := hex.DecodeString(proof)
	return err == nil && hmac.Equal(given, sum(secret, at, body))
}

func sum(secret, at string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(at + ".")) // a hash never fails
	_, _ = mac.Write(body)
	return mac.Sum(nil)
}
