// Package external is the tools of other MCP servers, for the agents that name them.
//
// # Servers
//
// A server is a program that speaks over standard input and output, or an address (Streamable HTTP). [Set.Run] keeps a connection to each: it connects,
// reads the tools, reads them again when the server announces a change, and connects again when the connection ends, after a pause that grows. Programs
// are started by package process alone.
//
// Only the tools that the operator lists are offered, under the name of the server (`files_read`). A tool that the operator does not call read-only
// acts: the rules of package tool hold for it, and it is not repeated after a crash. Every result is text from outside.
//
// # Bounds
//
// The server is not trusted. A message has at most [maxMessage] bytes and a result [maxResult]; more ends the connection, or is one sentence. What is
// behind the limit is not read. A call has [Config.CallTime]. A server has at most [maxTools] tools in [maxPages] pages, each of them with a description
// and a schema within bounds, read at most every [relistAfter]. What a program writes is read at a bounded rate, its log messages are removed before they are
// decoded, and a program that does not read is ended. The gateway declares no ability of a client, so requests of a server (roots, sampling, elicitation) are refused by the SDK.
//
// Five failures of the connection in a row open the circuit breaker of the server: its calls are refused at once for [breakerPause]. A tool that
// reports an error is no failure.
//
// # Failures and the end
//
// Every failure is a result with one sentence, and the turn goes on. Run has one goroutine for each server and waits for all of them; programs have ended when it
// returns. The package keeps nothing over the end of the process.
package external
