// Package words defines the words of a document, and which documents a query finds. Every store
// uses it, so that a search has the same result with each of them, and for messages that are not
// indexed yet.
//
// # Words
//
// A word is a run of letters, digits and combining marks. Case, accents and width do not count:
// "Café" and "CAFE" are one word. There is no stemming and no list of stop words, because both
// depend on a language, and the messages of one session may be in several. Instead a word of a
// query finds all words with that prefix: "invoice" finds "invoices".
//
// Scripts that are written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) have no
// word boundaries that a program could recognize. A run of their characters is indexed as its
// overlapping pairs and its last character, so that a query of one or more characters finds them
// anywhere in a run.
//
// # Bounds
//
// A word has at most 64 bytes; the rest of a longer one is ignored, in documents and in queries.
// The index of one document has at most 128 KiB of distinct words, taken from its beginning. A
// query has at most 16 words.
//
// The package has pure functions on strings: no state, no goroutine, and only the standard library
// and golang.org/x/text for the normal forms of Unicode.
package words

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxTerms is how many words a query may have.
const MaxTerms = 16

// shortest is how many letters a word of a query must have to find longer words. In syllabic and
// logographic scripts a character is a syllable or a word: one is enough.
const (
	shortest = 3
	syllabic = 0x0900
)

// The errors of an invalid query.
var (
	ErrNoWords = errors.New("the query has no word: a word has letters or digits")
	ErrTooLong = fmt.Errorf("the query has too many words: at most %d", MaxTerms)
)

// Term is one word of a query.
type Term struct {
	Word string
	// Begins is true when words that begin with it are found too.
	Begins bool
}

// finds reports whether the term finds a word.
func (t Term) finds(word string) bool {
	return word == t.Word || t.Begins && strings.HasPrefix(word, t.Word)
}

// Query finds the documents in which each of its terms finds a word. The zero value finds nothing.
type Query struct{ terms []Term }

// Parse parses a query. It returns [ErrNoWords] or [ErrTooLong] for an invalid one.
func Parse(text string) (Query, error) {
	var q Query
	begun, dense := -1, 0
	for at, word := range All(text) {
		first, _ := utf8.DecodeRuneInString(word)
		t := Term{Word: strings.Clone(word), Begins: utf8.RuneCountInString(word) >= shortest || first >= syllabic}
		// The last character of a run of a dense script is not a separate term: the pair before it
		// contains it.
		if at != begun {
			begun, dense = at, 0
		}
		if isDense(first) {
			if dense++; dense > 1 && utf8.RuneCountInString(word) == 1 {
				continue
			}
		}
		if !slices.Contains(q.terms, t) {
			q.terms = append(q.terms, t)
		}
		if len(q.terms) > MaxTerms {
			return Query{}, ErrTooLong
		}
	}
	if len(q.terms) == 0 {
		return Query{}, ErrNoWords
	}
	return q, nil
}

// Terms returns the words of the query.
func (q Query) Terms() []Term { return slices.Clone(q.terms) }

// Finds reports whether the query finds text. It reads no more words of the text than an index has.
func (q Query) Finds(text string) bool {
	return len(q.terms) > 0 && len(q.missing(text)) == 0
}

// Count adds one to found for each term that finds a word of text, in the order of [Query.Terms].
func (q Query) Count(text string, found []int) {
	missing := q.missing(text)
	for i, t := range q.terms {
		if !slices.Contains(missing, t) {
			found[i]++
		}
	}
}

// missing returns the terms that find no word of text.
func (q Query) missing(text string) []Term {
	missing := slices.Clone(q.terms)
	bounded := len(text) > maxIndexed/3 // pairs of a dense script have up to twice the bytes of their text
	seen, size := map[string]struct{}{}, 0
	for _, word := range All(text) {
		if bounded {
			if _, have := seen[word]; have {
				continue
			}
			seen[word] = struct{}{}
			if size += len(word); size > maxIndexed {
				return missing
			}
		}
		missing = slices.DeleteFunc(missing, func(t Term) bool { return t.finds(word) })
		if len(missing) == 0 {
			break
		}
	}
	return missing
}

// Excerpt returns the part of text around the first word that the query finds, in one line of at
// most chars characters, with … for what is left out.
func (q Query) Excerpt(text string, chars int) string {
	at := 0
	for place, word := range All(text) {
		if slices.ContainsFunc(q.terms, func(t Term) bool { return t.finds(word) }) {
			at = place
			break
		}
	}
	return around(text, at, chars)
}

// around returns one line of at most chars characters of text, a quarter of them before the byte
// at.
func around(text string, at, chars int) string {
	from := at
	for range chars / 4 {
		if from == 0 {
			break
		}
		_, size := utf8.DecodeLastRuneInString(text[:from])
		from -= size
	}
	to := from
	for n := 0; to < len(text) && n < chars; n++ {
		_, size := utf8.DecodeRuneInString(text[to:])
		to += size
	}
	line := strings.Join(strings.Fields(text[from:to]), " ")
	if from > 0 {
		line = "…" + line
	}
	if to < len(text) {
		line += "…"
	}
	return line
}

const (
	// maxWord is how many bytes of a word count.
	maxWord = 64
	// maxIndexed bounds the distinct words of one document in an index, in bytes. PostgreSQL
	// refuses a vector of more than 1 MiB.
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
	return slices.Sorted(maps.Keys(seen))
}

// inWord reports letters, digits and combining marks. Replacement characters, which come from
// invalid UTF-8, are not part of words.
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

// undivided returns the base of letters that people also write without their stroke or ligature,
// and that have no decomposition in Unicode.
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

// Closest returns the name that was probably meant by a misspelt one: the closest that differs by
// one letter, or by two in words of six and more, letter case aside. It returns "" when no name is
// that close.
func Closest(given string, names []string) string {
	given = strings.ToLower(given)
	best, distance := "", 2+min(len(given)/6, 1)
	for _, name := range names {
		d := editDistance(given, strings.ToLower(name))
		if d < distance || d == distance && best != "" && name < best {
			best, distance = name, d
		}
	}
	return best
}

// Meant is the end of a refusal of a misspelt name: the name that was probably meant, or "".
func Meant(given string, names []string) string {
	if best := Closest(given, names); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// editDistance is the number of letters that are added, missing, different, or exchanged with the
// next one.
func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row, before, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(next[j]+1, row[j+1]+1, row[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
