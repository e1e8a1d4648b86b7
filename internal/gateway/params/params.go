// Package params decodes and checks the parameters of calls.
//
// A [Decoder] is created once for each type of parameters of package wire. It accepts exactly what
// the type and its rules describe, fills a value of the type, and refuses everything else with an
// [Error] that names the place. The sentences of the errors are part of the protocol: clients
// compare them.
//
// The package does not know the call that it checks: [Refuse] makes the answer to it. Decoders are
// immutable and safe for concurrent use. The package keeps no state and starts no goroutine.
package params

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire/schema"
)

// maxInteger is the largest integer that every JSON implementation represents exactly.
const maxInteger = 1<<53 - 1

// Decoder checks and decodes one type of parameters.
type Decoder struct {
	object *schema.Type
	// optional: no member is required, so {} is valid.
	optional bool
}

// Of returns the decoder of a type of package wire. It panics when a tag of the type is invalid.
func Of[P any]() *Decoder {
	object := schema.Params(reflect.TypeFor[P]())
	return &Decoder{object: object, optional: object.Optional()}
}

// Type describes the parameters.
func (d *Decoder) Type() *schema.Type { return d.object }

// Error is a fault in parameters, in the terms of the protocol.
type Error struct {
	// At is the place as a JSON pointer; "" = the parameters as a whole.
	At, Text string

	field string
	limit int64
	over  bool // a limit was exceeded
}

// Error returns the place and the fault.
func (e *Error) Error() string {
	if e.At == "" {
		return e.Text
	}
	return "at " + e.At + ": " + e.Text
}

// Refuse returns the answer to a call with a fault in its parameters.
func Refuse(method string, err error) *fault.Error {
	e := fault.Invalid("invalid " + method + " params: " + err.Error())
	var p *Error
	if errors.As(err, &p) && p.over {
		e.Details = map[string]any{"code": string(chat.CodeLimit), "field": p.field, "limit": p.limit}
	}
	return e
}

// Decode checks raw and fills dst, a pointer to the type of the decoder. Absent and null count as
// {}. The error is an [*Error].
func (d *Decoder) Decode(raw json.RawMessage, dst any) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	if raw[0] != '{' {
		return &Error{Text: "must be object"}
	}
	if len(raw) == len("{}") && d.optional {
		return nil
	}
	if err := fillObject(d.object, raw, reflect.ValueOf(dst).Elem(), ""); err != nil {
		return err
	}
	return nil
}

// fillObject fills a struct with the members of an object.
func fillObject(t *schema.Type, raw json.RawMessage, dst reflect.Value, at string) *Error {
	if raw[0] != '{' {
		return &Error{At: at, Text: "must be object"}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return &Error{At: at, Text: "must be object"}
	}
	if err := complete(t, members, at); err != nil {
		return err
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		if err := fillNamed(f, members, dst.FieldByIndex(f.Index), at); err != nil {
			return err
		}
	}
	return nil
}

// fillNamed fills dst with the member that has one of the names of the field.
func fillNamed(f *schema.Field, members map[string]json.RawMessage, dst reflect.Value, at string) *Error {
	value, given := members[f.Name]
	if given {
		if err := fill(f.Type, value, dst, at+"/"+f.Name); err != nil {
			return err
		}
	}
	other, again := members[f.Or]
	if f.Or == "" || !again {
		return nil
	}
	first := dst.String()
	if err := fill(f.Type, other, dst, at+"/"+f.Or); err != nil {
		return err
	}
	if given && dst.String() != first {
		return &Error{At: at + "/" + f.Or, Text: "must be the same as " + f.Name + ", or absent"}
	}
	return nil
}

// complete checks that no member is missing or unknown.
func complete(t *schema.Type, members map[string]json.RawMessage, at string) *Error {
	known := 0
	for i := range t.Fields {
		f := &t.Fields[i]
		given := timesIn(f, members)
		if given == 0 && f.Required {
			return &Error{At: at, Text: "must have required property '" + f.Name + "'"}
		}
		known += given
	}
	if t.Open || known == len(members) {
		return nil
	}
	return unexpected(t, members, at)
}

// is reports whether a member with this name belongs to the field.
func is(f *schema.Field, name string) bool { return name == f.Name || (f.Or != "" && name == f.Or) }

// timesIn counts the members that belong to the field.
func timesIn(f *schema.Field, members map[string]json.RawMessage) int {
	n := 0
	if _, given := members[f.Name]; given {
		n++
	}
	if f.Or == "" {
		return n
	}
	if _, given := members[f.Or]; given {
		n++
	}
	return n
}

func unexpected(t *schema.Type, members map[string]json.RawMessage, at string) *Error {
	var names []string
	for name := range members {
		if !slices.Contains(t.Also, name) && !slices.ContainsFunc(t.Fields, func(f schema.Field) bool { return is(&f, name) }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	at = cmp.Or(at, "root")
	return &Error{At: at, Text: "unexpected property '" + fault.CutName(slices.Min(names)) + "'"}
}

// fill decodes one value.
func fill(t *schema.Type, raw json.RawMessage, dst reflect.Value, at string) *Error {
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
		return fillString(t, raw, dst, at)
	case reflect.Int64:
		return fillInteger(t, raw, dst, at)
	case reflect.Bool:
		return fillBool(raw, dst, at)
	case reflect.Slice:
		return fillList(t, raw, dst, at)
	case reflect.Struct:
		return fillObject(t, raw, dst, at)
	default:
		panic("params type: no rule for " + dst.Type().String())
	}
}

func fillString(t *schema.Type, raw json.RawMessage, dst reflect.Value, at string) *Error {
	s, ok := strictjson.Unquote(raw)
	if !ok {
		return &Error{At: at, Text: "must be string"}
	}
	n, unit := int64(utf8.RuneCountInString(s)), "characters"
	if t.Bytes {
		n, unit = int64(len(s)), "bytes"
	}
	if err := bounds(t, n, "must NOT have fewer than %d "+unit, "must NOT have more than %d "+unit, at); err != nil {
		return err
	}
	switch {
	case t.Enum != nil && !slices.Contains(t.Enum, s):
		return &Error{At: at, Text: "must be one of " + strings.Join(t.Enum, ", ")}
	case t.Pattern != nil && !t.Pattern.MatchString(s):
		return &Error{At: at, Text: "must match pattern " + strconv.Quote(t.Pattern.String())}
	}
	dst.SetString(s)
	return nil
}

// fillInteger accepts only JSON integers: no fraction, no exponent, no string.
func fillInteger(t *schema.Type, raw json.RawMessage, dst reflect.Value, at string) *Error {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > maxInteger || n < -maxInteger {
		return &Error{At: at, Text: "must be integer"}
	}
	if err := bounds(t, n, "must be >= %d", "must be <= %d", at); err != nil {
		return err
	}
	dst.SetInt(n)
	return nil
}

func fillBool(raw json.RawMessage, dst reflect.Value, at string) *Error {
	switch string(raw) {
	case "true":
		dst.SetBool(true)
	case "false":
		dst.SetBool(false)
	default:
		return &Error{At: at, Text: "must be boolean"}
	}
	return nil
}

func fillList(t *schema.Type, raw json.RawMessage, dst reflect.Value, at string) *Error {
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return &Error{At: at, Text: "must be array"}
	}
	if err := bounds(t, int64(len(items)), "must NOT have fewer than %d items", "must NOT have more than %d items", at); err != nil {
		return err
	}
	list := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if err := fill(t.Items, item, list.Index(i), at+"/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	dst.Set(list)
	return nil
}

func bounds(t *schema.Type, n int64, low, high, at string) *Error {
	switch {
	case n < t.Min:
		return &Error{At: at, Text: fmt.Sprintf(low, t.Min)}
	case t.Bounded && n > t.Max:
		return &Error{At: at, Text: fmt.Sprintf(high, t.Max), field: strings.TrimPrefix(at, "/"), limit: t.Max, over: true}
	}
	return nil
}
