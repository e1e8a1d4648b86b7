// Package teste2e talks to a whole gateway as its users do: over sockets, HTTP, a fake Telegram and a fake model. It holds the harness; the tests beside it
// are the scenarios that the README promises, on both stores.
//
// Gateways and commands run in the process of the test, by the function of package cli that the program calls. A test for which the process is the point says
// [NeedsProcesses] in its first line: it kills or stops a gateway, or measures it from outside. Then its gateways are the built binary, and -short skips it. What a rule, a store or one package shows alone belongs there, not here.
//
// The WebSocket client here is written from the protocol and shares no code with the gateway or the command line, so that both are
// checked by an implementation of its own. Every scenario ends with the invariant queries of package store against the database that the dead and the
// living have left.
package teste2e
