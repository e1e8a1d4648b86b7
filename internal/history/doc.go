// Package history keeps earlier conversations easy to find: it brings the search index up to date, and makes summaries by day, week and month.
//
// # The index
//
// [Indexer] is the loop that adds new entries of transcripts to the search index, every five minutes and up to a minute more. Of several replicas one does it: the
// one that holds the named lease [IndexLease]. Two that do it at once cost time and nothing else, because the store decides what is indexed.
//
// A message pays nothing for the index when it comes, and a search does not depend on the loop: it reads what is not indexed yet from the transcripts. So the
// loop decides only how fast a search is.
//
// # The table of contents
//
// [Rollup] makes summaries with the agent of its caller, a built-in job: of each session and day; of each week of an owner from those; of each month from
// its weeks. Weeks begin on Monday and belong to the month of their Thursday, as ISO 8601 does it with years, so that each period is made of whole ones. Before
// a level it makes the levels below, the oldest period first, and nothing whose period has not ended for an hour (days) or a day.
//
// What is due is a question to the store and no state of this package: a session has the number up to which its entries are in a part, and a week or month is
// due when one of its parts has changed. So a missed night, an entry with an old time, a deletion and an interrupted run are all the same case.
//
// A text that does not fit the window of the agent is summarised in steps; each step gets the summary before it. What an agent refuses because of its
// text is passed over and tried again by the next run; any other failure ends the run.
//
// # Crash points
//
// The store commits the index in small transactions, each with the place up to which it goes. A process that ends between two of them leaves an index
// that the next commit continues.
//
// The part of a day is stored with the number up to which it goes, when that number is the one that was read before: of two processes, or of a process and
// its successor after a kill, one adds it. A week or month is claimed before it is read, each change of what it is made of withdraws the claim, and only
// the holder of the claim stores its text; a process that was killed keeps its claims for [store.TocClaimTime]. A kill costs the requests that were not stored.
//
// # Goroutines and the end
//
// [Indexer.Run] and [Rollup.Run] run on the goroutine of their caller; a commit under way ends after its current transaction, a roll-up with the request that its
// context ends. The package starts no goroutine.
//
// # What it does not do
//
// It asks no model itself and decides no budget: [agent.Summariser] does, which is the turn of the job. It makes no summaries of runs of jobs and of sub-turns.
package history
