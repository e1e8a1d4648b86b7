// Package transfer copies the whole content of one store into another, of the same or another engine, and verifies that it is complete.
//
// # Central ideas
//
// The list of tables comes from the databases, not from this program: an adapter reads its catalog and returns every table except its own internal ones
// ([Side].Tables). A table that only one side has, or a column, stops the copy before the first row. So a table of a later migration is copied without a change
// here, and a test detects one that is added for one engine only.
//
// Values have one common form ([Value]): NULL, an integer, a number, a string, bytes. Two differences between the engines are rules, not lists. A text column
// that is NOT NULL on one side may be NULL on the other: there NULL and the empty string mean the same. One side may refuse NUL and invalid UTF-8
// ([Side].Storable): strings are compared in the form that it stores, and the result counts the changed ones.
//
// Rows are copied in pages in the order of the primary key, a table after those that it references. A page and the position after it are one commit of the
// target ([Target].Put), so an interrupted copy continues where it ended. While a position exists, the target is not a usable store: its adapter refuses to
// open it for a gateway.
//
// At the end both sides are read again. For each table the number of rows and a checksum, which does not depend on their order, must be equal. That also
// detects a source that has changed between two attempts.
//
// # Goroutines
//
// None: [Copy] runs in the goroutine of its caller and ends with its context.
//
// # Crash points
//
// Before the first commit the target is empty. Between two commits it has whole pages and their position. After the last one ([Target].Finish) it has no
// position, and a gateway may open it. The source is never written.
//
// # What it does not do
//
// It does not exclude gateways: the adapters do, with a lock on each side while the side is open. It does not copy the files of conversations, which are not in
// the store.
package transfer
