// Package archtest keeps the house in order: its tests fail when the program links what belongs to tests, when an import goes
// against the allowed direction, when a secret is revealed in a file that is not on the list, or when a statement rewrites the log of changes.
//
// The linter checks the same directions while somebody writes; this test also holds where the linter is not installed, and it
// looks at the whole graph, not only at the import lines of one file. It asks `go list` and parses source; it runs nothing and ends
// with its tests. There is nothing to call here: the package has tests only.
package archtest
