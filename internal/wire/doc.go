// Package wire defines the types of the public protocol: frames, the parameters and results of every method, the payloads of events, and
// error codes.
//
// The gateway writes these types, the Go client and the command line read them, and the description of the protocol (docs/protocol.md,
// docs/protocol.json) is generated from them. So each member of the protocol is declared once.
//
// # Ideas
//
// The types are the schema. A field has its name in the tag `json`; the tag `rule` gives what the Go type does not express; its comment is
// its meaning in the description. Package schema compiles both tags. The gateway checks parameters with the result, and the generator
// writes JSON Schema from it.
//
// Parameters. Members with `rule:"required"` must be given, all others may be absent. min and max bound integers, the characters of a
// string (its bytes with `bytes`) or the members of a list. `enum=a|b` lists the only values, and `pattern=…` is a regular expression.
// `or=other` is a second name of the same string: one of the two is required, and both must be equal when both are given. A blank field
// defines what happens to other members: with `open:"true"` all of them are ignored, with `also:"a,b"` the named ones are accepted and
// ignored; otherwise they are refused. The core checks a json.RawMessage.
//
// Results and payloads. A member is optional when its tag has omitempty or omitzero. A pointer without them may be null. Lists and maps are never null.
// A type with Variants is one of several.
//
// Order. Members are written in the order of the fields. In the types of jobs, their runs, previews and pairings, members are sorted by
// name: some clients compare bytes, and the gateway has always sent them like this. Add new members of these types in the same order.
//
// Views. Members that laneway adds to the protocol of the OpenClaw gateway are in the extended view only, for clients that request it. They
// are optional, and their comments begin with "Extended:".
//
// # What it does not do
//
// It checks and converts nothing, and the error codes are all that it imports from the core. It starts no goroutine and keeps no state.
package wire
