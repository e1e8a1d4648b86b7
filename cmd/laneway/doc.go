// Command laneway is the gateway and its command line.
//
// # Ideas
//
// A command is a struct in the table of [cli]: its fields are flags and arguments, Help gives an example, Run does it. Each
// group of commands has a file of its own. Nothing here decides anything about sessions, lanes or jobs: `serve` checks the
// configuration and runs the process, the other commands are clients of the public protocol and know no more
// than any other client.
//
// What a command needs of the world comes in an [environment]: streams, variables, the way to a gateway. So a command can be
// run in a test as it runs in a shell.
//
// # Promises
//
// Exit status 0 is success, 1 a failure of the world, 2 wrong usage, 78 a configuration that must not start. Errors are one
// sentence on standard error with what to do. Data goes to standard output, as a table or, with --json, in the names of the
// wire. NO_COLOR is honoured. Secrets are never printed.
//
// # How it ends
//
// The first SIGINT or SIGTERM ends the context of the command: `serve` drains, `send` stops its turn, the others give up. The
// second ends the process at once.
package main
