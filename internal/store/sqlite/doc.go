// Package sqlite is the embedded store: one file in the data directory, for one gateway process, with nothing to install.
//
// # One writer that batches
//
// A flush of the disk costs as much as hundreds of statements, and SQLite has one writer at a time anyway. So one goroutine owns the only
// connection that writes. It runs all waiting operations, up to 256, in one transaction and flushes once. While the disk works, the next
// batch fills: under load the batches grow, and a single operation never waits for others. Heartbeat, Stop, Ping and the other control
// operations go to the front of the queue.
//
// The accepts, starts and ends of a batch run together, one of each session: they share the statements that read. What cannot run so runs alone.
//
// An operation that is refused, fails or panics undoes only itself; the rest of the batch commits. Savepoints do that where a failed
// operation has written. A batch that needs none, which is the usual case, runs without them: they cost a copy of every page. Callers get
// their results after the commit and never before, so every result is durable (journal in WAL mode, synchronous=FULL). When the commit
// fails, every operation of the batch gets chat.ErrStoreUnavailable.
//
// # Readers
//
// A small pool of read-only connections serves lists, histories and counts. A read sees one snapshot, the last commit before it began; so a
// caller that has the result of a write also reads what it wrote. Readers and the writer never wait for each other.
//
// # Connections
//
// A connection is one of zombiezen.com/go/sqlite, a thin layer on the engine that caches the prepared statements. One goroutine at a time uses it. The end
// of a context interrupts a read; it does not interrupt the writer. goose alone, which runs the migrations, uses database/sql, while a store is opened.
//
// # Jobs and their ledger
//
// A fire is a message: [Store.Claim] writes the ledger row, the message, its session and the next slot of the job in one operation, and
// from there the run is handled as every message. So the ledger has no lease of its own. It follows the messages: Start, Finish, a
// takeover, a stop and a delivery change its row in the transaction in which they happen. A claim takes at most 500 jobs, because no other
// operation writes meanwhile; its cost follows what is due, whatever the number of jobs. A ledger row enters the indexes of history when it
// is finished.
//
// A job whose texts cannot be decoded is listed and does not fire, and its texts stay until a change replaces them. When another message
// has the id that the message of a run needs, that one run ends with an error. Pruning a run also deletes the session that it had for
// itself, unless the session has more messages.
//
// # One process
//
// [Open] holds an operating system lock on a file beside the database for as long as the store is open. A second process gets one sentence
// ([ErrInUse]) with what it can do. The lock ends with the process, also with kill -9. As no other process writes, the clock of this
// process is the clock of the store.
//
// # What it promises
//
//   - Everything that package store does; the suite in storetest runs against it.
//   - A crash at any moment loses nothing that was acknowledged.
//   - A full disk, an input/output error or a read-only file refuse writes with a sentence, leave reads working where the disk lets
//     them, and heal without a restart.
//   - A database of a newer schema ([ErrNewerSchema]) of another program ([ErrForeign]), or from before the first release ([migrations.ErrUnreleased]) is refused and never changed.
//   - The cost of an operation follows the unfinished work and not the history: partial indexes have what is unfinished.
//
// # What it does not do
//
// It does not work on a network file system, whose locks are not reliable. It deletes no history by itself; that is the task of retention.
// It has no bound on its queue: every entry is a caller that waits, and the callers are bounded elsewhere.
//
// When the context of an operation ends before the writer takes it, nothing happens. When it ends later the call returns at once, and the
// operation commits or fails as a whole without its caller; slices and maps of its parameters belong to the store until the next operation
// has returned.
//
// # How it ends
//
// [Store.Close] lets the queue finish, ends the writer's goroutine, closes the connections and releases the directory.
//
// # Example
//
//	st, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dataDir, "laneway.db"), Logger: log})
//	if err != nil {
//		return err
//	}
//	defer st.Close()
//	err = st.Register(ctx, store.Node{ID: nodeID, Exclusive: true})
package sqlite
