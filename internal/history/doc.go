// Package history makes earlier conversations easy to find: it keeps the search index up to date, and makes summaries by day, week and month.
//
// # The index
//
// [Indexer] is the loop that adds new entries of transcripts to the search index, every five minutes and up to a minute more. One of several replicas
// does it: the one that holds the lease [IndexLease]. Two replicas that do it at once only waste time, because the store decides what is indexed.
//
// Accepting a message does not touch the index, and the results of a search do not depend on the loop: it reads entries that are not indexed yet from
// the transcripts. The loop determines only how fast a search is.
//
// # The table of contents
//
// [Rollup] makes summaries with the agent of its caller, a built-in job: of each session and day; from these, of each week of an owner; from the
// weeks, of each month. Weeks begin on Monday and belong to the month of their Thursday, as ISO 8601 assigns them to years, so that each period
// consists of whole ones. It makes the lower levels first, in each level the oldest period first. It waits for an hour after the end of a day, and
// for a day after the end of a week or month.
//
// The store decides what is due; this package has no state for it. A session has the number up to which its entries are in a part, and a week or
// month is due when one of its parts has changed. So a missed night, an entry with an old time, a deletion and an interrupted run need no special
// treatment.
//
// A conversation that does not fit the window of the agent is summarised in steps; each step includes the summary of the previous one. A summary that
// the agent refuses because of the content is skipped and retried by the next run; any other failure ends the run.
//
// # Crash points
//
// The store commits the index in small transactions, each with the position that it has reached. After a process that ended between two of them, the
// next commit continues there.
//
// The part of a day is stored with the number up to which it goes, if that number has not changed since it was read: only one of two processes, or of
// a process and its successor after a kill, adds the part. A week or month is claimed before it is read. Each change of its parts withdraws the
// claim, and only the holder of the claim stores the summary. A killed process keeps its claims for [store.TocClaimTime]. A kill loses the requests
// whose results were not stored.
//
// # Goroutines and the end
//
// [Indexer.Run] and [Rollup.Run] run on the goroutine of their caller. After the end of the context a commit ends after its current transaction, a
// roll-up with the canceled request. The package starts no goroutine.
//
// # What it does not do
//
// It neither calls a model nor checks a budget: [agent.Summariser], the turn of the job, does. It makes no summaries of the runs of jobs and of
// sub-turns.
package history
