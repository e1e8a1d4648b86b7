package schema_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/wire/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type either struct{ Of any }

func (either) Variants() []any { return []any{part{}, self{}} }

type part struct {
	Text string `json:"text" rule:"max=3,bytes"`
}

type self struct {
	Next *self `json:"next"`
}

type generic[T any] struct {
	Items []T `json:"items,omitempty"`
}

type sample struct {
	_ struct{} `also:"old, older" open:"true"`
	part
	*self

	ID    string          `json:"id" rule:"required,or=jobId,min=1,max=8,pattern=^[a-z]+$"`
	Mode  string          `json:"mode,omitempty" rule:"enum=a|b"`
	N     *int64          `json:"n,omitempty" rule:"min=-2"`
	Null  *int            `json:"null"`
	Raw   json.RawMessage `json:"raw"`
	Of    *either         `json:"of,omitempty"`
	Named map[string]part `json:"named"`
	List  generic[part]   `json:"list"`
	Skip  int             `json:"-"`
}

func TestTypesSayWhatTheirTagsSay(t *testing.T) {
	t.Parallel()
	params, result := schema.Params(reflect.TypeFor[sample]()), schema.Result(reflect.TypeFor[sample]())
	if !params.Open || len(params.Also) != 2 || params.Name != "sample" || params.Optional() || !schema.Params(reflect.TypeFor[part]()).Optional() {
		t.Errorf("params %+v", params)
	}
	type want struct {
		kind               schema.Kind
		given, there, null bool // required as a parameter, as a member of a result; null in a result
		owner              string
	}
	wants := map[string]want{
		"text": {schema.String, false, true, false, "part"}, "next": {schema.Object, false, false, true, "self"}, "id": {schema.String, true, true, false, "sample"},
		"mode": {schema.String, false, false, false, "sample"}, "n": {schema.Integer, false, false, false, "sample"}, "null": {schema.Integer, false, true, true, "sample"},
		"raw": {schema.Any, false, true, false, "sample"}, "of": {schema.Variants, false, false, false, "sample"}, "named": {schema.Map, false, true, false, "sample"},
		"list": {schema.Object, false, true, false, "sample"},
	}
	if len(params.Fields) != len(wants) || len(result.Fields) != len(wants) {
		t.Fatalf("%d and %d fields, want %d", len(params.Fields), len(result.Fields), len(wants))
	}
	for i, f := range params.Fields {
		r := result.Fields[i]
		if got := (want{f.Type.Kind, f.Required, r.Required, r.Nullable, f.Owner}); got != wants[f.Name] || f.Nullable {
			t.Errorf("%s: %+v, want %+v", f.Name, got, wants[f.Name])
		}
		switch f.Name {
		case "id":
			if f.Or != "jobId" || f.Type.Min != 1 || f.Type.Max != 8 || !f.Type.Bounded || f.Type.Pattern.String() != "^[a-z]+$" {
				t.Errorf("id: %+v", f.Type)
			}
		case "mode":
			if !reflect.DeepEqual(f.Type.Enum, []string{"a", "b"}) {
				t.Errorf("mode: %v", f.Type.Enum)
			}
		case "of":
			if len(f.Type.Variants) != 2 || f.Type.Variants[1].Fields[0].Type.Name != "self" {
				t.Errorf("of: %+v", f.Type)
			}
		case "next":
			if next := f.Type.Fields[0]; next.Name != "next" || next.Type != f.Type {
				t.Errorf("next: %+v", next)
			}
		case "list":
			if f.Type.Name != "generic" || f.Type.Fields[0].Type.Items.Name != "part" {
				t.Errorf("list: %+v", f.Type)
			}
		}
	}
}

func TestFaultsInTagsPanic(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]reflect.Type{
		"unknown rule": reflect.TypeFor[struct {
			A string `json:"a" rule:"maximum=3"`
		}](),
		"no number": reflect.TypeFor[struct {
			A string `json:"a" rule:"max=x"`
		}](),
		"no rule for the type": reflect.TypeFor[struct {
			A float32 `json:"a"`
		}](),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("it was compiled")
				}
			}()
			schema.Params(of)
		})
	}
}
