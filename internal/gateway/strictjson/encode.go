package strictjson

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Encode encodes values of the gateway: structs, maps and slices of strings, numbers and such, without HTML escapes. An error would be a
// defect; it is encoded as null, and the tests of every type exclude it.
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
