package words

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	// maxWord is how many bytes of a word count.
	maxWord = 64
	// maxIndexed bounds the distinct words of one document in an index, in bytes. PostgreSQL refuses a vector of more than 1 MiB.
	maxIndexed = 128 << 10
)

// All yields the words of text in order, each with the byte offset of its run in text.
func All(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for from := 0; from < len(text); {
			r, size := utf8.DecodeRuneInString(text[from:])
			if !inWord(r) {
				from += size
				continue
			}
			dense, to := isDense(r), from+size
			for to < len(text) {
				r, size := utf8.DecodeRuneInString(text[to:])
				if !inWord(r) || isDense(r) != dense && !unicode.Is(unicode.M, r) {
					break
				}
				to += size
			}
			if !ofRun(text[from:to], dense, func(word string) bool { return yield(from, word) }) {
				return
			}
			from = to
		}
	}
}

// ofRun yields the words of one run; it returns false when yield does.
func ofRun(run string, dense bool, yield func(string) bool) bool {
	word := fold(run)
	if word == "" {
		return true
	}
	if !dense {
		return yield(cut(word))
	}
	before := ""
	for _, r := range word {
		if before != "" && !yield(before+string(r)) {
			return false
		}
		before = string(r)
	}
	return yield(before)
}

// Index returns the distinct words of text, sorted, for an index.
func Index(text string) []string {
	seen := map[string]struct{}{}
	size := 0
	for _, word := range All(text) {
		if _, have := seen[word]; have {
			continue
		}
		if size += len(word); size > maxIndexed {
			break
		}
		seen[strings.Clone(word)] = struct{}{}
	}
	list := make([]string, 0, len(seen))
	for word := range seen {
		list = append(list, word)
	}
	slices.Sort(list)
	return list
}

// inWord reports letters, digits and combining marks. Replacement characters, which come from invalid UTF-8, are not part of words.
func inWord(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r) || unicode.Is(unicode.N, r))
}

// isDense reports whether r belongs to a script without spaces between words.
func isDense(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// fold returns a run in the form in which words are compared.
func fold(run string) string {
	ascii, lower := true, true
	for i := range len(run) {
		ascii = ascii && run[i] < utf8.RuneSelf
		lower = lower && (run[i] < 'A' || run[i] > 'Z')
	}
	switch {
	case ascii && lower:
		return run
	case ascii:
		return strings.ToLower(run)
	}
	var out strings.Builder
	for _, r := range norm.NFKD.String(run) {
		if r >= 0x0300 && r <= 0x036F { // accents of Latin, Greek and Cyrillic; marks of other scripts distinguish words
			continue
		}
		if plain, ok := undivided(unicode.ToLower(r)); ok {
			out.WriteString(plain)
		} else if inWord(r) {
			out.WriteRune(unicode.ToLower(r))
		}
	}
	return norm.NFKC.String(out.String())
}

// undivided returns the base of letters that people also write without their stroke or ligature, and that have no decomposition in Unicode.
func undivided(r rune) (string, bool) {
	switch r {
	case 'ß':
		return "ss", true
	case 'æ':
		return "ae", true
	case 'œ':
		return "oe", true
	case 'ø':
		return "o", true
	case 'đ':
		return "d", true
	case 'ł':
		return "l", true
	case 'ı':
		return "i", true
	}
	return "", false
}

// cut shortens a word to at most maxWord bytes, at a character boundary.
func cut(word string) string {
	if len(word) <= maxWord {
		return word
	}
	end := maxWord
	for !utf8.RuneStart(word[end]) {
		end--
	}
	return word[:end]
}
