// Package words defines the words of a document, and which documents a query finds. Every store uses it, so that a search has the same result with
// each of them, and for messages that are not indexed yet.
//
// # Words
//
// A word is a run of letters, digits and combining marks. Case, accents and width do not count: "Café" and "CAFE" are one word. There is no stemming
// and no list of stop words, because both depend on a language, and the messages of one session may be in several. Instead a word of a query finds
// all words with that prefix: "invoice" finds "invoices".
//
// Scripts that are written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) have no word boundaries that a program could recognize. A
// run of their characters is indexed as its overlapping pairs and its last character, so that a query of one or more characters finds them anywhere
// in a run.
//
// # Bounds
//
// A word has at most 64 bytes; the rest of a longer one is ignored, in documents and in queries. The index of one document has at most 128 KiB of
// distinct words, taken from its beginning. A query has at most 16 words.
//
// The package has pure functions on strings: no state, no goroutine, and only the standard library and golang.org/x/text for the normal forms of
// Unicode.
package words
