package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

// maxInteger is the largest integer that every JSON implementation keeps.
const maxInteger = 1<<53 - 1

// shape is the compiled form of a params type: what it takes, within which bounds. It is made once from the Go type and its
// tags, so that the type, the check and the documentation cannot disagree.
//
// A field has `json:"name"` and optionally `p:"required,min=1,max=200,bytes,enum=a|b,pattern=…"`; min and max bound integers, the
// characters of a string (its bytes with `bytes`) or the members of a list. `or=other` gives a string a second name that means the same: required is one
// of them, and both together must be equal. A blank field says what happens to other members:
// `open:"true"` ignores all of them, `also:"a,b"` takes the named ones without effect; otherwise they are refused.
type shape struct {
	fields []field
	also   []string
	open   bool
	// optional: nothing is required, {} is good.
	optional bool
}

type field struct {
	name     string
	or       string // its other name, "" = none
	kind     string // of the value, see [ParamInfo]
	items    string // kind of the members of a list
	index    int
	required bool
	bytes    bool
	min, max int64
	bounded  bool // max was given
	enum     []string
	pattern  *regexp.Regexp
	object   *shape
}

// paramError is a fault in params, in the words that clients know.
type paramError struct {
	at, text string
	field    string
	limit    int64
	over     bool // it is a bound that was passed
}

// Error is the place and the fault.
func (e *paramError) Error() string {
	if e.at == "" {
		return e.text
	}
	return "at " + e.at + ": " + e.text
}

func shapeOf[P any]() *shape { return compileShape(reflect.TypeFor[P]()) }

func compileShape(t reflect.Type) *shape {
	s := &shape{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			s.open = s.open || f.Tag.Get("open") == "true"
			s.also = append(s.also, strings.FieldsFunc(f.Tag.Get("also"), func(r rune) bool { return r == ',' || r == ' ' })...)
			continue
		}
		s.fields = append(s.fields, compileField(f, i))
	}
	s.optional = !slices.ContainsFunc(s.fields, func(f field) bool { return f.required })
	return s
}

func compileField(f reflect.StructField, index int) field {
	out := field{name: f.Tag.Get("json"), index: index}
	for part := range strings.SplitSeq(f.Tag.Get("p"), ",") {
		out.apply(part)
	}
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	out.kind = kindOf(t)
	if out.kind == "array" {
		out.items = kindOf(t.Elem())
	}
	if t.Kind() == reflect.Struct {
		out.object = compileShape(t)
	}
	return out
}

func (f *field) apply(part string) {
	name, value, _ := strings.Cut(part, "=")
	switch name {
	case "required":
		f.required = true
	case "or":
		f.or = value
	case "bytes":
		f.bytes = true
	case "min":
		f.min = number(value)
	case "max":
		f.max, f.bounded = number(value), true
	case "enum":
		f.enum = strings.Split(value, "|")
	case "pattern":
		f.pattern = regexp.MustCompile(value)
	}
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("params tag: " + err.Error()) // a typing error in this package, found by the first test
	}
	return n
}

// decode checks raw and fills dst, a pointer to the type of the shape. Absent and null count as {}.
func (s *shape) decode(raw json.RawMessage, dst any) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	if raw[0] != '{' {
		return &paramError{text: "must be object"}
	}
	if len(raw) == len("{}") && s.optional {
		return nil
	}
	if err := s.fill(raw, reflect.ValueOf(dst).Elem(), ""); err != nil {
		return err
	}
	return nil
}

func (s *shape) fill(raw json.RawMessage, dst reflect.Value, at string) *paramError {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return &paramError{at: at, text: "must be object"}
	}
	if err := s.complete(members, at); err != nil {
		return err
	}
	for i := range s.fields {
		f := &s.fields[i]
		if err := f.fillNamed(members, dst.Field(f.index), at); err != nil {
			return err
		}
	}
	return nil
}

// fillNamed fills dst with the member that is called as the field, by whichever of its names.
func (f *field) fillNamed(members map[string]json.RawMessage, dst reflect.Value, at string) *paramError {
	value, given := members[f.name]
	if given {
		if err := f.fill(value, dst, at+"/"+f.name); err != nil {
			return err
		}
	}
	other, again := members[f.or]
	if f.or == "" || !again {
		return nil
	}
	first := dst.String()
	if err := f.fill(other, dst, at+"/"+f.or); err != nil {
		return err
	}
	if given && dst.String() != first {
		return &paramError{at: at + "/" + f.or, text: "must be the same as " + f.name + ", or absent"}
	}
	return nil
}

// complete checks which members are there: nothing missing, nothing unknown.
func (s *shape) complete(members map[string]json.RawMessage, at string) *paramError {
	known := 0
	for i := range s.fields {
		f := &s.fields[i]
		given := f.timesIn(members)
		if given == 0 && f.required {
			return &paramError{at: at, text: "must have required property '" + f.name + "'"}
		}
		known += given
	}
	if s.open || known == len(members) {
		return nil
	}
	return s.unexpected(members, at)
}

// is says whether a member with this name means the field.
func (f *field) is(name string) bool { return name == f.name || (f.or != "" && name == f.or) }

// timesIn counts the members that mean the field.
func (f *field) timesIn(members map[string]json.RawMessage) int {
	n := 0
	if _, given := members[f.name]; given {
		n++
	}
	if f.or == "" {
		return n
	}
	if _, given := members[f.or]; given {
		n++
	}
	return n
}

func (s *shape) unexpected(members map[string]json.RawMessage, at string) *paramError {
	var names []string
	for name := range members {
		if !slices.Contains(s.also, name) && !slices.ContainsFunc(s.fields, func(f field) bool { return f.is(name) }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if at == "" {
		at = "root"
	}
	return &paramError{at: at, text: "unexpected property '" + fault.CutName(slices.Min(names)) + "'"}
}

// cutName keeps a name that a client made up from filling an error message.
func badParams(method string, err error) *fault.Error {
	e := fault.Invalid("invalid " + method + " params: " + err.Error())
	var p *paramError
	if errors.As(err, &p) && p.over {
		e.Details = map[string]any{"code": string(chat.CodeLimit), "field": p.field, "limit": p.limit}
	}
	return e
}

func (f *field) fill(raw json.RawMessage, dst reflect.Value, at string) *paramError {
	if dst.Type() == reflect.TypeFor[json.RawMessage]() {
		dst.SetBytes(raw)
		return nil
	}
	if dst.Kind() == reflect.Pointer {
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	switch dst.Kind() {
	case reflect.String:
		return f.fillString(raw, dst, at)
	case reflect.Int64:
		return f.fillInteger(raw, dst, at)
	case reflect.Bool:
		return fillBool(raw, dst, at)
	case reflect.Slice:
		return f.fillList(raw, dst, at)
	case reflect.Struct:
		return f.fillObject(raw, dst, at)
	default:
		panic("params type: no rule for " + dst.Type().String())
	}
}

func (f *field) fillObject(raw json.RawMessage, dst reflect.Value, at string) *paramError {
	if raw[0] != '{' {
		return &paramError{at: at, text: "must be object"}
	}
	return f.object.fill(raw, dst, at)
}

func (f *field) fillString(raw json.RawMessage, dst reflect.Value, at string) *paramError {
	s, ok := strictjson.Unquote(raw)
	if !ok {
		return &paramError{at: at, text: "must be string"}
	}
	n, unit := int64(utf8.RuneCountInString(s)), "characters"
	if f.bytes {
		n, unit = int64(len(s)), "bytes"
	}
	if err := f.bounds(n, "must NOT have fewer than %d "+unit, "must NOT have more than %d "+unit, at); err != nil {
		return err
	}
	switch {
	case f.enum != nil && !slices.Contains(f.enum, s):
		return &paramError{at: at, text: "must be one of " + strings.Join(f.enum, ", ")}
	case f.pattern != nil && !f.pattern.MatchString(s):
		return &paramError{at: at, text: "must match pattern " + strconv.Quote(f.pattern.String())}
	}
	dst.SetString(s)
	return nil
}

// fillInteger takes JSON integers only: no fraction, no exponent, no text.
func (f *field) fillInteger(raw json.RawMessage, dst reflect.Value, at string) *paramError {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > maxInteger || n < -maxInteger {
		return &paramError{at: at, text: "must be integer"}
	}
	if err := f.bounds(n, "must be >= %d", "must be <= %d", at); err != nil {
		return err
	}
	dst.SetInt(n)
	return nil
}

func fillBool(raw json.RawMessage, dst reflect.Value, at string) *paramError {
	switch string(raw) {
	case "true":
		dst.SetBool(true)
	case "false":
		dst.SetBool(false)
	default:
		return &paramError{at: at, text: "must be boolean"}
	}
	return nil
}

func (f *field) fillList(raw json.RawMessage, dst reflect.Value, at string) *paramError {
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return &paramError{at: at, text: "must be array"}
	}
	if err := f.bounds(int64(len(items)), "must NOT have fewer than %d items", "must NOT have more than %d items", at); err != nil {
		return err
	}
	list := reflect.MakeSlice(dst.Type(), len(items), len(items))
	each := field{}
	for i, item := range items {
		if err := each.fill(item, list.Index(i), at+"/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	dst.Set(list)
	return nil
}

func (f *field) bounds(n int64, low, high, at string) *paramError {
	switch {
	case n < f.min:
		return &paramError{at: at, text: fmt.Sprintf(low, f.min)}
	case f.bounded && n > f.max:
		return &paramError{at: at, text: fmt.Sprintf(high, f.max), field: strings.TrimPrefix(at, "/"), limit: f.max, over: true}
	}
	return nil
}
