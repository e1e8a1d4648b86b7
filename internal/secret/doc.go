// Package secret keeps credentials out of everything that the gateway prints.
//
// A [Secret] is a token, a password or a key. Package fmt, encoding/json, encoding/xml, YAML and log/slog print [Redacted] in its place, even when
// it is an unexported field of another struct. Only [Secret.Reveal] returns the text; a test of package archtest lists the files that may call it.
// [Secret.Redact] removes the text from errors of other programs.
//
// [Generate] makes a token.
//
// [URL], [RawURL] and [WithoutURL] remove credentials from addresses and from errors that quote addresses.
//
// The package imports nothing of the gateway, starts no goroutine and reads neither files nor the environment. Values are immutable, except
// that UnmarshalText sets its receiver; copies are safe for concurrent use.
package secret
