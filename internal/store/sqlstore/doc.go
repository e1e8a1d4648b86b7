// Package sqlstore holds the operations of the store, each written once for both engines.
//
// An operation reads and locks rows, decides in Go, and writes. Rules that need no database are functions of the packages cron and store; this package loads,
// calls and writes. The statements are next to the code that uses them. They are PostgreSQL's SQL with a few marks for the differences of SQLite, see
// [Dialect]. Where the engines need different statements, both are next to each other (Tx.PerEngine).
//
// An [Engine] implements connections, transactions, locks and files. It is independent of messages and jobs. Both engines have the same tables and columns.
// Times are integer milliseconds, booleans are booleans or 0 and 1, JSON is text.
//
// Concurrent operations of the same kind share a transaction, see group: one transaction reads and locks for all of them, decides in Go, and writes. Statements
// whose rows are not needed immediately are sent together (Tx.Later), so a transaction has as many round trips as decisions.
//
// The engine may run a whole Update again after a conflict. Transactions on PostgreSQL run concurrently: an operation that counts and then adds locks the row,
// or the name (lockName), that its count depends on. SQLite has one writer, so there the marks for locks are empty. Rows that a statement selects with a limit
// are in a WITH … AS MATERIALIZED, because PostgreSQL may evaluate a subquery again for each row of the outer one.
package sqlstore
