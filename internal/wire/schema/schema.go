// Package schema compiles the types of package wire to their JSON form, with names, bounds and
// options.
//
// A [Type] is compiled once, by reflection from the Go type and its tags (see package wire). The
// gateway decodes and checks parameters with it, and the generator of docs/protocol.json writes it
// as JSON Schema. So the type, the check and the description cannot disagree.
//
// An invalid tag is a mistake in package wire. Compiling such a type panics, so any test finds it.
// Types are immutable and safe for concurrent use. The package itself checks no JSON, keeps no
// state and starts no goroutine.
package schema

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a value is in JSON.
type Kind string

// The kinds.
const (
	String   Kind = "string"
	Integer  Kind = "integer"
	Boolean  Kind = "boolean"
	Array    Kind = "array"
	Object   Kind = "object"
	Map      Kind = "map"      // an object with arbitrary names
	Any      Kind = "any"      // any JSON
	Variants Kind = "variants" // one of several types
)

// Type is the compiled form of a Go type.
type Type struct {
	Kind Kind
	// Name is the name of a struct type or of a named type with variants, without its package; ""
	// for all others.
	Name string

	// Min and Max bound an integer, the characters of a string (its bytes when Bytes is true) or
	// the members of an array. Max applies only when Bounded is true.
	Min, Max       int64
	Bounded, Bytes bool
	// Enum lists the only values; nil when every value is allowed. Pattern is nil when every string
	// is allowed.
	Enum    []string
	Pattern *regexp.Regexp

	// Fields are the members of an object, in order. Also names members that are accepted and
	// ignored. An Open object accepts every other member.
	Fields []Field
	Also   []string
	Open   bool
	// Items is the type of the members of an array or a map.
	Items *Type
	// Variants are the possible types of the value.
	Variants []*Type
}

// Field is a member of an object.
type Field struct {
	Name string
	// Or is another name of the same member, or "". Either name may be used, and both values must
	// be equal when both are given.
	Or string
	// GoName is the name of the Go field, Owner the name of the struct type that declares it: for
	// promoted fields, the embedded type.
	GoName, Owner string
	// Index finds the Go field, see [reflect.Value.FieldByIndex].
	Index []int
	// Required members must be there. Nullable ones may be null.
	Required, Nullable bool
	Type               *Type
}

// Optional reports whether {} is a value of an object.
func (t *Type) Optional() bool {
	return !slices.ContainsFunc(t.Fields, func(f Field) bool { return f.Required })
}

// Members lists the fields of an object. A field with two names is listed under both, each with the
// other name as Or.
func (t *Type) Members() []Field {
	out := make([]Field, 0, len(t.Fields))
	for _, f := range t.Fields {
		out = append(out, f)
		if f.Or != "" {
			f.Name, f.Or = f.Or, f.Name
			out = append(out, f)
		}
	}
	return out
}

// Params compiles a type of parameters: members are required when their rule demands it.
func Params(t reflect.Type) *Type {
	return compiler{params: true, known: map[reflect.Type]*Type{}}.typeOf(t)
}

// Result compiles a type of results or payloads: members are required unless they are omitted when
// empty.
func Result(t reflect.Type) *Type { return compiler{known: map[reflect.Type]*Type{}}.typeOf(t) }

// compiler makes types. known has the structs that are being compiled, because a struct may contain
// itself.
type compiler struct {
	params bool
	known  map[reflect.Type]*Type
}

func (c compiler) typeOf(t reflect.Type) *Type {
	switch {
	case t.Kind() == reflect.Pointer:
		return c.typeOf(t.Elem())
	case t == reflect.TypeFor[json.RawMessage]():
		return &Type{Kind: Any}
	case t.Implements(reflect.TypeFor[interface{ Variants() []any }]()):
		return c.variantsOf(t)
	}
	switch t.Kind() {
	case reflect.String:
		return &Type{Kind: String}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return &Type{Kind: Integer}
	case reflect.Bool:
		return &Type{Kind: Boolean}
	case reflect.Slice:
		return &Type{Kind: Array, Items: c.typeOf(t.Elem())}
	case reflect.Map:
		return &Type{Kind: Map, Items: c.typeOf(t.Elem())}
	case reflect.Struct:
		return c.structOf(t)
	case reflect.Interface:
		return &Type{Kind: Any}
	default: // what package wire uses
	}
	panic("wire type: no rule for " + t.String())
}

func (c compiler) variantsOf(t reflect.Type) *Type {
	out := &Type{Kind: Variants, Name: nameOf(t)}
	for _, v := range reflect.Zero(t).Interface().(interface{ Variants() []any }).Variants() { //nolint:errcheck,forcetypeassert // checked by typeOf
		out.Variants = append(out.Variants, c.typeOf(reflect.TypeOf(v)))
	}
	return out
}

// nameOf is the name of a type without the arguments of a generic one.
func nameOf(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

func (c compiler) structOf(t reflect.Type) *Type {
	if out := c.known[t]; out != nil {
		return out
	}
	out := &Type{Kind: Object, Name: nameOf(t)}
	c.known[t] = out
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "_":
			out.Open = out.Open || f.Tag.Get("open") == "true"
			out.Also = append(out.Also, strings.FieldsFunc(f.Tag.Get("also"), func(r rune) bool { return r == ',' || r == ' ' })...)
		case f.Anonymous || name == "-":
		default:
			out.Fields = append(out.Fields, c.field(t, f, name, options))
		}
	}
	return out
}

func (c compiler) field(t reflect.Type, f reflect.StructField, name, options string) Field {
	out := Field{Name: name, GoName: f.Name, Owner: nameOf(owner(t, f.Index)), Index: f.Index, Type: c.typeOf(f.Type)}
	omitted := strings.Contains(options, "omit")
	optionalPart := len(f.Index) > 1 && t.Field(f.Index[0]).Type.Kind() == reflect.Pointer
	rules := f.Tag.Get("rule")
	if rules != "" && out.Type.Kind != Object { // the rules belong to the member; the type of a struct is shared and has no rules
		own := *out.Type
		out.Type = &own
	}
	if !c.params {
		out.Required = !omitted && !optionalPart
		out.Nullable = f.Type.Kind() == reflect.Pointer && !omitted
	}
	for part := range strings.SplitSeq(rules, ",") {
		out.apply(part)
	}
	return out
}

// owner is the struct type that declares the field at index.
func owner(t reflect.Type, index []int) reflect.Type {
	for _, i := range index[:len(index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}

func (f *Field) apply(part string) {
	t := f.Type
	name, value, _ := strings.Cut(part, "=")
	switch name {
	case "":
	case "required":
		f.Required = true
	case "or":
		f.Or = value
	case "bytes":
		t.Bytes = true
	case "min":
		t.Min = number(value)
	case "max":
		t.Max, t.Bounded = number(value), true
	case "enum":
		t.Enum = strings.Split(value, "|")
	case "pattern":
		t.Pattern = regexp.MustCompile(value)
	default:
		panic("wire type: unknown rule " + part)
	}
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("wire type: " + err.Error())
	}
	return n
}
