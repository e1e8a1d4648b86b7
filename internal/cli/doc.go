// Package cli is the command line of laneway, including the gateway.
//
// # Ideas
//
// A command is a struct in the table of [commands]: its fields are flags and arguments, Help has an example, Run executes it. Each group of
// commands has its own file. The package makes no decisions about sessions, lanes or jobs: `serve` checks the configuration and runs the
// process, the other commands are clients of the public protocol like any other client.
//
// All external dependencies of a command are in [Options] and [environment]: streams, variables, signals, and the dialer for a gateway. So
// a test can run a command as a shell does. The package itself does not end the process, listen for signals or read variables.
//
// # Guarantees
//
// Exit status 0 is success, 1 a failure, 2 wrong usage, 78 a configuration that must not start. Errors are one sentence on standard error
// with what to do. Data goes to standard output, as a table or, with --json, with the member names of the protocol. NO_COLOR is honoured.
// Secrets are never printed.
//
// # Shutdown
//
// The end of its context requests a command to end, as the first SIGINT or SIGTERM does: `serve` drains, `send` stops its turn, other
// commands stop waiting. Signals.Now, for the second signal, ends it at once.
package cli
