// Package words decides which words a text has, and which texts a query finds. Every store uses it, so that a search has the same result on each of them,
// and for messages that are in an index as for those that are not yet.
//
// # Words
//
// A word is a run of letters, digits and combining marks. Case, accents and width do not count: "Café" and "CAFE" are one word. There is no stemming
// and no list of stop words, because both depend on a language, and the messages of one session may be in several. Instead a word of a query finds the words that
// begin with it: "invoice" finds "invoices".
//
// Scripts that are written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) have no words that a program could see. A run of their
// characters is indexed as its overlapping pairs and its last character, so that a query of one or more characters finds them anywhere in a run.
//
// # Bounds
//
// A word has at most 64 bytes; the rest of a longer one is ignored, in texts as in queries. The index of one text has at most 128 KiB of different words, the
// first ones of the text. A query has at most 16 words.
//
// The package is arithmetic on texts: no state, no goroutine, and the standard library with golang.org/x/text for the normal forms of Unicode.
package words
