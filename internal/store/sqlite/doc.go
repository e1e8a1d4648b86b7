// Package sqlite is the embedded store: one file in the data directory, for one gateway process, with nothing to install.
//
// # One writer that batches
//
// A flush of the disk costs as much as hundreds of statements, and SQLite has one writer at a time anyway. So one goroutine owns the only connection that
// writes. It runs all waiting operations, up to 256, in one transaction and flushes once. During the flush the next batch fills: under load the batches grow,
// and a single operation never waits for others. Heartbeat, Stop, Ping and the other control operations go to the front of the queue.
//
// The accepts, starts and finishes of a batch run together, one per session: they share the statements that read. All other operations run alone.
//
// An operation that is refused, fails or panics undoes only itself; the rest of the batch commits. Savepoints do that when a failed operation has written. The
// usual batch runs without them, because they cost a copy of every page. Callers get their results after the commit and never before, so every result is
// durable (journal in WAL mode, synchronous=FULL). When the commit fails, every operation of the batch gets chat.ErrStoreUnavailable.
//
// # Readers
//
// A small pool of read-only connections serves lists, histories and counts. A read sees one snapshot, the last commit before it began; so a caller that has the
// result of a write also reads what it wrote. Readers and the writer never wait for each other.
//
// # Connections
//
// A connection is one of zombiezen.com/go/sqlite, a thin layer on the engine that caches the prepared statements. One goroutine at a time uses it. The end of a
// context interrupts a read; it does not interrupt the writer. Only goose, which runs the migrations when a store is opened, uses database/sql.
//
// # Jobs and their ledger
//
// A fire is a message: [Store.Claim] writes the ledger row, the message, its session and the next slot of the job in one operation, and from then on the run is
// handled like every message. So the ledger has no leases. It follows the messages: Start, Finish, a takeover, a stop and a delivery update its row in their
// own transaction. A claim takes at most 500 jobs, because no other operation writes meanwhile; its cost is proportional to the due jobs, independent of the
// number of jobs. A ledger row enters the history indexes when it is finished.
//
// A job whose columns cannot be decoded is listed and does not fire, and the columns stay until a change replaces them. When another message has the id that
// the message of a run needs, that one run ends with an error. Pruning a run also deletes the session that was made for it, unless the session has more
// messages.
//
// # One process
//
// [Open] holds an operating system lock on a file next to the database while the store is open. A second process gets an error ([ErrInUse]) with the remedy.
// The lock ends with the process, even with kill -9. As no other process writes, the clock of this process is the clock of the store.
//
// # What it promises
//
//   - The guarantees of package store; the suite in storetest runs against it.
//   - A crash at any moment loses nothing that was acknowledged.
//   - On a full disk, an input/output error or a read-only file, writes fail with a sentence, reads work where the disk allows
//     them, and the store recovers without a restart.
//   - A database of a newer schema ([ErrNewerSchema]), of another program ([ErrForeign]), or from before the first release ([migrations.ErrUnreleased]) is refused and never changed.
//   - The cost of an operation depends on the unfinished work and not on the history: partial indexes contain only unfinished rows.
//
// # What it does not do
//
// It does not work on a network file system, whose locks are not reliable. It deletes no history by itself; that is the task of retention. Its queue has no
// bound: every entry is a waiting caller, and the callers are bounded elsewhere.
//
// When the context of an operation ends before the writer takes it, nothing happens. When it ends later, the call returns immediately, and the operation
// commits or fails as a whole without its caller. The store owns slices and maps of its parameters until the next operation has returned.
//
// # How it ends
//
// [Store.Close] completes the queued operations, ends the writer's goroutine, closes the connections and releases the directory.
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
