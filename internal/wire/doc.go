// Package wire has the public protocol as types: frames, the parameters and results of every method, the payloads of events, and the codes of errors.
//
// The gateway writes these types, the Go client and the command line read them, and the description of the protocol (docs/protocol.md, docs/protocol.json) is
// made from them. So a member of the protocol is declared once.
//
// # Ideas
//
// The types are the schema. A field has its name in the tag `json`; the tag `rule` gives what the Go type does not express; its comment is its meaning in the
// description. Package schema compiles both tags, for the gateway, which checks parameters with them, and for the generator, which writes JSON Schema.
//
// Parameters. `rule:"required"` members must be given, all others may be absent. min and max bound integers, the characters of a string (its bytes with
// `bytes`) or the members of a list; `enum=a|b` lists the only values and `pattern=…` is a regular expression. `or=other` is a second name of the same
// string: required is one of the two, and both together must be equal. A blank field defines what happens to other members: `open:"true"` ignores all of them,
// `also:"a,b"` takes the named ones without effect; otherwise they are refused. A json.RawMessage is checked by the core.
//
// Results and payloads. A member is optional when its tag has omitempty or omitzero. A pointer without them may be null. Lists and maps are never null.
// A type with Variants is one of several.
//
// Order. Members are written in the order of the fields. The types that describe jobs, their runs, previews and pairings keep the members in the order of
// their names, as the gateway has always sent them: some clients compare bytes. The same holds for every new member of these types.
//
// Views. What laneway adds to the protocol of the OpenClaw gateway is in the extended view only, for clients that ask for it. Such members are optional, and
// their comments begin with "Extended:".
//
// # What it does not do
//
// It checks nothing, converts nothing and knows no type of the core but the codes of its errors. It starts no goroutine and keeps no state.
package wire
