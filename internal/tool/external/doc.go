// Package external provides the tools of other MCP servers to the agents that name them.
//
// # Servers
//
// A server is a program that speaks over standard input and output, or an address (Streamable HTTP). [Set.Run] keeps a connection to each: it connects,
// reads the tools, reads them again when the server announces a change, and reconnects when the connection ends, with growing pauses. Programs
// are started by package process alone.
//
// Only the tools that the operator lists are offered, under the name of the server (`files_read`). A tool that the operator has not marked as
// read-only acts: the rules of package tool apply to it, and it is not repeated after a crash. Every result is external text.
//
// # Bounds
//
// The server is not trusted. A message has at most [maxMessage] bytes and a result [maxResult]; a longer message ends the connection, a longer result
// becomes one sentence. Nothing beyond the limit is read. A call has [Config.CallTime]. A server has at most [maxTools] tools in [maxPages] pages,
// each of them with a description and a schema within bounds, read at most every [relistAfter]. The output of a program is read at a bounded rate,
// its log messages are removed before they are decoded, and a program that does not read its input is ended. The gateway declares no client
// capability, so the SDK refuses requests of a server (roots, sampling, elicitation).
//
// Five failures of the connection in a row open the circuit breaker of the server: its calls are refused at once for [breakerPause]. A tool that
// reports an error does not count.
//
// # Failures and the end
//
// Every failure is a result with one sentence, and the turn continues. Run has one goroutine for each server and waits for all of them; programs have
// ended when it returns. The package stores nothing beyond the end of the process.
package external
