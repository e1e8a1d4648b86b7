// Package sqlite is the embedded store: one file in the data directory, for one gateway process, with nothing to install.
//
// # One writer that batches
//
// A flush of the disk costs as much as hundreds of statements, and SQLite has one writer at a time anyway. So one goroutine
// owns the only connection that writes. It takes everything that waits, up to 256 operations, into one transaction and
// flushes once. While the disk works, the next batch gathers: under load the batches grow by themselves, and a lone
// operation waits for nobody. Heartbeat, Stop, Ping and the other operations of control go to the front of the queue.
//
// An operation that is refused, fails or panics takes only itself back; the rest of the batch commits. Savepoints do that
// where a failed operation has written. A batch that needs none, which is nearly every one, is spared them: they cost a copy
// of every page. Results are handed out after the commit and never before, so what a caller knows is durable (journal in WAL
// mode, synchronous=FULL). When the commit fails, every operation of the batch gets chat.ErrStoreUnavailable.
//
// # Readers
//
// A small pool of read-only connections serves lists, histories and counts. A read sees one snapshot, the last commit before it
// began; so whoever has got an answer of the writer also reads what it wrote. Readers and the writer never wait for each other.
//
// # Jobs and their ledger
//
// A fire is a message: [Store.Claim] writes the ledger row, the message, its session and the next slot of the job in one operation, and from
// there the run takes the way of every message. So the ledger has no lease of its own. It follows the messages: Start, Finish, a takeover, a
// stop and a delivery change its row in the transaction in which they happen. A claim takes at most 500 jobs, because nobody else writes
// meanwhile; its cost follows what is due, whatever the number of jobs. A row of the ledger enters the indexes of history when it is over.
//
// A job whose texts cannot be understood is shown and left alone, and its texts stay until somebody writes new ones. A message id that
// somebody else has taken costs the one run its message is for, which ends with an error. Pruning a run deletes the session that it had for
// itself, too, unless there is more in it.
//
// # One process
//
// [Open] holds an operating system lock on a file beside the database for as long as the store is open. A second process gets
// one sentence ([ErrInUse]) that names what it can do. The lock ends with the process, also with kill -9. As nobody
// else writes, the clock of this process is the clock of the store.
//
// # What it promises
//
//   - Everything that package store says; the suite in storetest runs against it.
//   - A crash at any moment loses nothing that was acknowledged.
//   - A full disk, an input/output error or a read-only file refuse writes with a sentence, leave reads working where the disk lets
//     them, and heal without a restart.
//   - A database of a newer schema ([ErrNewerSchema]) or of another program ([ErrForeign]) is refused and never changed.
//   - The cost of an operation follows the work in hand and not the history: partial indexes hold what is unfinished.
//
// # What it does not do
//
// It does not work on a network file system, whose locks cannot be relied on. It deletes no history; that is retention's task. It has no
// bound on its queue: every entry is a caller that waits, and callers are bounded where they come in.
//
// A context that ends before the writer takes the operation means that nothing happens. One that ends later returns at once, and the operation
// commits or fails as a whole without its caller; slices and maps of its parameters belong to the store until the next operation has returned.
//
// # How it ends
//
// [Store.Close] lets the queue finish, ends the writer's goroutine, closes the connections and gives the directory back.
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
