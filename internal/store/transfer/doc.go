// Package transfer copies everything that one store contains into another, of the same or another engine, and proves that it is all there.
//
// # Central ideas
//
// The list of tables comes from the databases, not from this program: an adapter reads its catalog and returns every table but those that it
// names as its own ([Side].Tables). A table that only one side has, or a column, stops the copy before the first row. So a table that a later
// migration adds is copied without a change here, and one that is added for one engine only is noticed by a test.
//
// Values have one common form ([Value]): NULL, an integer, a number, a text, bytes. Two differences between the engines are rules, not lists. A text column
// that is NOT NULL on one side may be NULL on the other: there NULL and the empty text mean the same. One side may refuse NUL and invalid UTF-8 ([Side].Storable): the
// texts are compared in the form that it stores, and the result says how many were changed.
//
// Rows are copied in pages in the order of the primary key, a table behind those that it refers to. A page and the position behind it are one commit
// of the target ([Target].Put), so a copy that ended at any moment goes on where it was. While a position exists, the target is no store: its adapter
// refuses to open it for a gateway.
//
// At the end both sides are read again, and for each table the number of rows and a checksum that does not depend on their order must be equal. That also
// finds a source that has changed between two attempts.
//
// # Goroutines
//
// None: [Copy] runs in the goroutine of its caller and ends with its context.
//
// # Crash points
//
// Before the first commit the target is empty. Between two commits it has whole pages and their position. After the last one ([Target].Finish) it has no position, and a
// gateway may open it. The source is never written.
//
// # What it does not do
//
// It keeps no gateway away: the adapters do, with a lock on each side for as long as the side is open. It does not copy the files of conversations, which are not in
// the store.
package transfer
