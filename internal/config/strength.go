package config

import (
	"strings"
	"unicode/utf8"

	"laneway/internal/secret"
)

const (
	// minSecret is the minimum length in characters of a secret on a public address.
	minSecret = 32
	// minDistinct different characters exclude `aaaa…` and repeated words.
	minDistinct = 12
)

// placeholders are values that documentation uses instead of a secret, with letters and digits only.
func placeholders() []string {
	return []string{"changeme", "replaceme", "yourtoken", "yoursecret", "yourpassword", "placeholder", "examplesecret", "0123456789abcdef0123456789abcdef"}
}

// Strong reports whether a secret may be used on a public address: 32 or more characters, 12 or more different ones, and no known
// placeholder. A generated token is strong.
func Strong(s secret.Secret) bool {
	text := s.Reveal()
	if utf8.RuneCountInString(text) < minSecret {
		return false
	}
	distinct := map[rune]struct{}{}
	for _, r := range text {
		distinct[r] = struct{}{}
	}
	if len(distinct) < minDistinct {
		return false
	}
	plain := strings.Map(lettersAndDigits, text)
	for _, p := range placeholders() {
		if strings.Contains(plain, p) {
			return false
		}
	}
	return true
}

func lettersAndDigits(r rune) rune {
	switch {
	case r >= 'A' && r <= 'Z':
		return r + ('a' - 'A')
	case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
		return r
	default:
		return -1
	}
}
