// Package rpc is the method table: the definition of methods, and their calls.
//
// # Ideas
//
// One table. A [Method] is one row: name, scope, types of its parameters and its result, handler. [Define] creates it from a handler, so
// that the types of the handler, the check of the parameters and the description cannot disagree. A method that is not in a [Table] does
// not exist.
//
// A [Call] is one request in progress: its caller, parameters and view. Handlers receive it with their decoded parameters. A handler has no
// access to the connection; it changes the events of the connection through [Events].
//
// # What it does not do
//
// It opens no connection, checks no scope and counts no allowance: the gateway does that before it invokes a method. Rows are immutable and
// safe for concurrent use; a Call belongs to its request. The package starts no goroutine.
package rpc
