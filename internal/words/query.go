package words

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxTerms is how many words a query may have.
const MaxTerms = 16

// shortest is how many letters a word of a query must have to find longer words. In syllabic and logographic scripts a character is a syllable or
// a word: one is enough.
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
		// The last character of a run of a dense script is not a separate term: the pair before it contains it.
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

// Excerpt returns the part of text around the first word that the query finds, in one line of at most chars characters, with … for what is left out.
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

// around returns one line of at most chars characters of text, a quarter of them before the byte at.
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
