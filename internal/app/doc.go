// Package app is the process: New wires the parts, Run runs them, and the shutdown undoes everything in reverse order within one time
// limit.
//
// Besides cmd, it is the only package that reads the configuration, and the only one that chooses adapters (which store, which agents,
// which channels). Each part receives its own Config and its dependencies as arguments.
//
// # Shutdown
//
// When the context of [Process.Run] is done, the process accepts no new work. The drain timeout limits how long running turns continue; a
// second signal (Options.Hurry) interrupts them. The order is: stop accepting, drain turns, stop sending, stop channels, leave the table of
// nodes, close sockets, close the store. A construction that fails half-way is undone by the same clean-up functions, in reverse order.
package app
