// Package app is the process: New wires the parts, Run turns them, and the end undoes everything in the opposite order within one bound.
//
// It is the only package that chooses adapters (which store, which agents, which channels) and the only one besides cmd that reads the
// configuration; each part gets its own Config and its dependencies as arguments.
//
// # The end
//
// The context of [Process.Run] means "take nothing new". The drain timeout decides how long running turns may go on; a second signal
// (Options.Hurry) interrupts them. The order is: stop accepting, drain turns, end the sending, stop channels, leave the table of
// nodes, close sockets, close the store. A construction that fails half-way undoes itself by the same clean-ups, last in first out.
package app
