// Package strictjson parses and writes the JSON of the gateway more strictly than encoding/json does.
//
// # Ideas
//
// [Inspect] refuses input that the standard parser accepts silently: a lone surrogate becomes U+FFFD, U+0000 is kept although no SQL store
// accepts it, and values may nest ten thousand levels deep. It inspects bytes and does not need valid JSON, so it runs before the parser.
//
// [Encode], [AppendString] and [Unquote] are faster functions for known values: without HTML escapes, and without a parser for a plain
// string.
//
// # What it does not do
//
// It checks no schema: that is the table of methods. It keeps no state, starts no goroutine, and every function is safe for concurrent use.
package strictjson
