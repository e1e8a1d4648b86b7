// Package teste2e starts the real binary and talks to it as its users do: over sockets, with signals, with kill -9. It holds the
// harness; the tests beside it are the scenarios that the README promises, on both stores.
//
// The WebSocket client here is written from the protocol and shares no code with the gateway or the command line, so that both are
// checked by an implementation of its own. Every scenario ends with the invariant queries of package store against the database that the dead and the
// living have left.
package teste2e
