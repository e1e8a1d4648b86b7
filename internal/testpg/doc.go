// Package testpg provides a real Postgres for tests, and each test with a separate database.
//
// # Where the server comes from
//
// [Provide] tries these in order and reports which one it used:
//
//  1. TEST_DATABASE_URL: a server that is already running; its user must be allowed to create databases.
//  2. Server binaries ($PG_BIN, /usr/lib/postgresql/*/bin, PATH): a private cluster in a temporary directory, reachable through a
//     unix socket only. Postgres refuses to run as root, so root's cluster runs as `postgres` or `nobody`.
//  3. docker compose: a container, bound to a free port of the loopback address.
//
// When none works the error names the three ways. No test is skipped silently. The command cmd/testpg wraps this around any other
// command:
//
//	go run ./cmd/testpg -- go test ./...
//
// # What a test writes
//
//	url := testpg.DB(t)            // an empty, migrated database; dropped when the test ends
//
// The database is a file copy of a template which is migrated once per schema and server. The template's name contains a hash of
// the migrations, so working copies with different schemas may share one server. An advisory lock keeps parallel test binaries from
// building it twice.
//
// A test that must stop or kill the server starts a separate one with [Private], without an effect on other tests.
//
// # How it ends
//
// [Server.Stop] ends the server and removes its directory. On Linux the kernel also ends the server when the process that
// started it is killed before it can clean up. The package starts one goroutine per private server, which waits for the
// process and ends with it.
package testpg
