package wiretest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const described = `{
	"connectResult": {"type": "object"},
	"methods": [
		{"name": "one", "result": {"$ref": "#/$defs/Row"}},
		{"name": "two", "result": {"anyOf": [{"$ref": "#/$defs/Row"}, {"type": "array", "items": {"type": "integer"}, "maxItems": 2}]}},
		{"name": "new", "result": {"not": {}}},
		{"name": "lost", "result": {"$ref": "#/$defs/Nowhere"}}
	],
	"events": [{"name": "tick", "payload": {"type": "object", "properties": {}, "additionalProperties": {"type": "boolean"}}}],
	"error": {"type": "object", "properties": {"code": {"type": "string", "enum": ["BAD"]}}, "required": ["code"], "additionalProperties": false},
	"$defs": {"Row": {
		"type": "object", "required": ["id", "at"], "additionalProperties": false,
		"properties": {"id": {"type": "string", "minLength": 1, "pattern": "^r"}, "at": {"type": ["integer", "null"], "minimum": 0}, "next": {"$ref": "#/$defs/Row"}, "any": {}}
	}}
}`

func TestPayloadsAreComparedWithTheirSchemas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "protocol.json")
	if err := os.WriteFile(path, []byte(described), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := wiretest.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ method, payload, want string }{
		{"one", `{"id":"r1","at":1,"next":{"id":"r2","at":null},"any":[1.5]}`, ""},
		{"one", `{"id":"r1"}`, "at : at is missing"},
		{"one", `{"id":"r1","at":1,"more":1}`, "more is not described"},
		{"one", `{"id":"r1","at":1.5}`, "at /at: number instead of"},
		{"one", `{"id":"r1","at":"1"}`, "at /at: string instead of"},
		{"one", `{"id":"r1","at":-1}`, "less than"},
		{"one", `{"id":"","at":1}`, "does not match"},
		{"one", `{"id":"r1","at":1,"next":{"at":null}}`, "at /next: id is missing"},
		{"one", `[]`, "array instead of object"},
		{"one", `{`, "no JSON"},
		{"two", `[1,2]`, ""},
		{"two", `[1,2,3]`, "none of the variants"},
		{"two", `{"id":"r1","at":1}`, ""},
		{"new", `1`, "unknown word not"},
		{"lost", `1`, "is not defined"},
		{"none", `1`, "is not described"},
	} {
		if err := p.Answer(tc.method, []byte(tc.payload)); (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s %s: %v, want %q", tc.method, tc.payload, err, tc.want)
		}
	}
	if p.Event("tick", []byte(`{"a":true}`)) != nil || p.Event("tick", []byte(`{"a":1}`)) == nil || p.Event("tock", []byte(`{}`)) == nil {
		t.Error("events are not compared")
	}
	if p.Refusal([]byte(`{"code":"BAD"}`)) != nil || p.Refusal([]byte(`{"code":"GOOD"}`)) == nil {
		t.Error("errors are not compared")
	}
}
