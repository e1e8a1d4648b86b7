// Package strictjson reads and writes the JSON of the gateway more strictly than encoding/json does.
//
// # Ideas
//
// [Inspect] refuses what the standard parser takes silently: a lone surrogate becomes U+FFFD, U+0000 stays although no SQL store takes it, and values may nest
// ten thousand levels deep. It looks at the bytes and needs no valid JSON, so it runs before the parser.
//
// [Encode], [AppendString] and [Unquote] are the fast ways for values that are known: no escapes that are meant for HTML, and no parser for a plain string.
//
// # What it does not do
//
// It checks no schema: that is the table of methods. It keeps no state, starts no goroutine, and every function is safe for concurrent use.
package strictjson
