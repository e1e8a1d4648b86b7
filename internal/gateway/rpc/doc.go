// Package rpc is the method table: what a method is, and one call of it.
//
// # Ideas
//
// One table. A [Method] is one row: name, scope, types of its parameters and its result, handler. [Define] makes it from a handler, so that the types of the
// handler, the check of the parameters and the description cannot disagree. What is not in a [Table] does not exist.
//
// A [Call] is one request under way: who makes it, with which parameters, in which view. Handlers get it beside their decoded parameters. A handler knows no
// connection; what a call does to its connection goes through [Events].
//
// # What it does not do
//
// It opens no connection, decides about no scope and counts no allowance: the gateway does, before it invokes a method. Rows are immutable and safe for
// concurrent use; a Call belongs to its request. The package starts no goroutine.
package rpc
