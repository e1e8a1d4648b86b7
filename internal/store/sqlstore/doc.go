// Package sqlstore holds the operations of the store, each written once for both engines.
//
// An operation reads and locks rows, decides in Go, and writes. Rules that need no database are functions of the packages cron and store; this package
// loads, calls and writes. The statements stand beside the code that uses them. They are SQL of PostgreSQL with a few marks for what SQLite writes
// differently, see [Dialect]. Where an engine deserves another statement, both stand side by side (Tx.PerEngine).
//
// An [Engine] knows connections, transactions, locks and files, and nothing about messages or jobs. Both engines have the same tables and columns. Times are
// integer milliseconds, booleans are booleans or 0 and 1, JSON is text.
//
// Operations of the same kind that run at the same time share a transaction, see group: an operation takes all of them, reads and locks, decides in Go, and
// writes. Statements whose rows are not needed at once travel together (Tx.Later), so a transaction has as many round trips as decisions.
//
// An Update may run again after a conflict, as a whole. Two transactions on PostgreSQL run at the same time: an operation that counts and then adds locks
// the row, or the name (lockName), that its count depends on. SQLite has one writer, and there the marks for locks are empty. Rows that a statement
// chooses with a limit stand in a WITH … AS MATERIALIZED, because PostgreSQL may evaluate a subquery again for each row of the outer one.
package sqlstore
