package config

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// environ returns a lookup function for pairs of name and value.
func environ(pairs ...string) func(string) (string, bool) {
	values := map[string]string{"HOME": "/home/user"}
	for i := 0; i+1 < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}
