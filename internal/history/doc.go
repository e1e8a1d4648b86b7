// Package history keeps what was said before easy to find.
//
// # The index
//
// [Indexer] is the loop that adds new entries of transcripts to the search index, every five minutes and up to a minute more. Of several replicas one does it: the
// one that holds the named lease [IndexLease]. Two that do it at once cost time and nothing else, because the store decides what is indexed.
//
// A message pays nothing for the index when it comes, and a search does not depend on the loop: it reads what is not indexed yet from the transcripts. So the
// loop decides only how fast a search is.
//
// # Crash points
//
// The store commits the index in small transactions, each with the place up to which it goes. A process that ends between two of them leaves an index
// that the next commit continues.
//
// # Goroutines and the end
//
// [Indexer.Run] runs on the goroutine of its caller until its context is over; a commit under way ends after its current transaction. The package starts no
// goroutine.
package history
