package openai

import (
	"reflect"
	"strings"
	"testing"
)

func TestTheFormatOfTheAnswerIsRead(t *testing.T) {
	t.Parallel()
	schema := map[string]any{"type": formatSchema, formatSchema: map[string]any{"name": "city", "strict": true, "schema": map[string]any{"type": "object"}}}
	const completion, response = `{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":`, `{"model":"m","input":"x","text":{"format":`
	for _, tt := range []struct {
		form  form
		body  string
		want  map[string]any
		fails string
	}{
		{completions{}, completion + `null}`, nil, ""},
		{completions{}, completion + `{"type":"text"}}`, nil, ""},
		{completions{}, completion + `{"type":"json_object"}}`, map[string]any{"type": formatObject}, ""},
		{completions{}, completion + `{"type":"json_schema","json_schema":{"name":"city","strict":true,"schema":{"type":"object"}}}}`, schema, ""},
		{completions{}, completion + `{"type":"json_schema"}}`, nil, "must have an object json_schema"},
		{completions{}, completion + `{"type":"grammar"}}`, nil, "is not supported; there are text, json_object and json_schema"},
		{responses{}, response + `null}}`, nil, ""},
		{responses{}, response + `{"type":"text"}}}`, nil, ""},
		{responses{}, response + `{"type":"json_schema","name":"city","strict":true,"schema":{"type":"object"}}}}`, schema, ""},
		{responses{}, response + `{"type":"grammar"}}}`, nil, "is not supported"},
	} {
		p, err := tt.form.read([]byte(tt.body))
		switch {
		case tt.fails != "":
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: got %v, want an error with %q", tt.body, err, tt.fails)
			}
		case err != nil || !reflect.DeepEqual(p.format, tt.want):
			t.Errorf("%s: got %v, %v, want %v", tt.body, p.format, err, tt.want)
		}
	}
}
