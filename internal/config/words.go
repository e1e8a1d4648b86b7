package config

import (
	"errors"
	"strings"
	"unicode"
)

// splitWords splits a command line at spaces. Single and double quotes group words, and a backslash outside of single quotes escapes the
// next character. Nothing is expanded: no shell interprets the words.
func splitWords(line string) ([]string, error) {
	var (
		words   []string
		word    strings.Builder
		quote   rune // 0 = outside
		escaped bool
		begun   bool
	)
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && unicode.IsSpace(r):
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("has a quote or a backslash that is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
