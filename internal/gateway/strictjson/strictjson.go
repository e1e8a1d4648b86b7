// Package strictjson parses and writes the JSON of the gateway more strictly than encoding/json
// does.
//
// # Ideas
//
// [Inspect] refuses input that the standard parser accepts silently: a lone surrogate becomes
// U+FFFD, U+0000 is kept although no SQL store accepts it, and values may nest ten thousand levels
// deep. It inspects bytes and does not need valid JSON, so it runs before the parser.
//
// [Encode], [AppendString] and [Unquote] are faster functions for known values: without HTML
// escapes, and without a parser for a plain string.
//
// # What it does not do
//
// It checks no schema: that is the table of methods. It keeps no state, starts no goroutine, and
// every function is safe for concurrent use.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep objects and arrays may be nested.
const maxDepth = 64

// Content that is refused although a JSON parser accepts it. encoding/json silently converts a lone
// surrogate to U+FFFD, keeps U+0000, which no SQL store accepts, and nests ten thousand levels
// deep.
var (
	ErrTooDeep   = errors.New("nested deeper than 64 levels")
	ErrNUL       = errors.New("strings must not contain U+0000")
	ErrSurrogate = errors.New("strings must not contain a lone surrogate")
)

// Inspect checks the bytes of a JSON text, valid or not. Depth takes precedence over the faults of
// strings.
func Inspect(data []byte) error {
	var fault error
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return ErrTooDeep
			}
		case '}', ']':
			depth--
		case '"':
			end, err := inspectString(data, i+1)
			if fault == nil {
				fault = err
			}
			i = end
		}
	}
	return fault
}

// inspectString returns the index of the closing quote (or the end of the text) and the first
// fault.
func inspectString(data []byte, i int) (int, error) {
	var fault error
	for ; i < len(data) && data[i] != '"'; i++ {
		if data[i] != '\\' {
			continue
		}
		i++
		if i >= len(data) || data[i] != 'u' {
			continue
		}
		used, err := inspectEscape(data[i-1:])
		if fault == nil {
			fault = err
		}
		i += used - 2 // at the last byte of the escape
	}
	return i, fault
}

// inspectEscape checks a `\u` with its four digits, or a pair of them; it returns how many bytes
// they have.
func inspectEscape(data []byte) (int, error) {
	r, ok := hexRune(data)
	switch {
	case !ok:
		return 2, nil // not JSON; the parser refuses it
	case r == 0:
		return 6, ErrNUL
	case !utf16.IsSurrogate(r):
		return 6, nil
	}
	low, ok := hexRune(data[6:])
	if !ok || utf16.DecodeRune(r, low) == '\uFFFD' {
		return 6, ErrSurrogate
	}
	return 12, nil
}

func hexRune(data []byte) (rune, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(v), err == nil
}

// Encode encodes values of the gateway: structs, maps and slices of strings, numbers and such,
// without HTML escapes. An error would be a defect; it is encoded as null, and the tests of every
// type exclude it.
func Encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// AppendString quotes s as JSON.
func AppendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return append(dst, Encode(s)...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// Unquote decodes a JSON string; common ones, without escapes, need no parser.
func Unquote(raw json.RawMessage) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}
