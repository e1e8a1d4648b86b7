// Package teste2e tests a complete gateway as its users use it: over sockets, HTTP, a fake Telegram and a fake model. It contains the
// harness; the tests are the scenarios that the README describes, on both stores.
//
// Gateways and commands run in the process of the test, by the function of package cli that the program calls. A test about a process calls
// [NeedsProcesses] in its first line: it kills or stops a gateway, or measures it from outside. Then its gateways are the built binary, and
// -short skips it. What a rule, a store or one package shows alone is tested there, not here.
//
// The WebSocket client here is written from the protocol and shares no code with the gateway or the command line, so that both are checked
// by an independent implementation. Every scenario ends with the invariant queries of package store against the database that dead and live
// processes have left.
package teste2e
