// Package archtest checks rules of the whole module that a compiler does not: its tests fail when
// the program links what belongs to tests, when an import goes against the allowed direction, when
// a secret is revealed in a file that is not on the list, when a statement rewrites the log of
// changes, or when a name, a log message or a comment leaves the vocabulary of the project.
//
// The linter checks the directions of imports while code is written. These tests also hold where
// the linter is not installed, and they read the whole graph, not only the import lines of one
// file. They run `go list` and parse source; they start nothing else and leave nothing behind. The
// package has tests only.
//
// Three rules have lists of known exceptions ([legacyNames], [legacyComments] and [quoted]). These
// lists only ever get shorter.
package archtest
