// Package cli is the command line of laneway, the gateway among its commands.
//
// # Ideas
//
// A command is a struct in the table of [commands]: its fields are flags and arguments, Help gives an example, Run does it. Each
// group of commands has a file of its own. Nothing here decides anything about sessions, lanes or jobs: `serve` checks the
// configuration and runs the process, the other commands are clients of the public protocol and know no more
// than any other client.
//
// What a command needs of the world comes from outside, in [Options] and [environment]: streams, variables, signals, the way to a gateway. So a command
// can be run in a test as it runs in a shell. Nothing here ends the process, listens for signals or reads a variable by itself.
//
// # Promises
//
// Exit status 0 is success, 1 a failure of the world, 2 wrong usage, 78 a configuration that must not start. Errors are one
// sentence on standard error with what to do. Data goes to standard output, as a table or, with --json, in the names of the
// wire. NO_COLOR is honoured. Secrets are never printed.
//
// # How it ends
//
// The end of its context asks a command to end, as the first SIGINT or SIGTERM does: `serve` drains, `send` stops its turn, the others give up. Signals.Now,
// the second one, ends it at once.
package cli
