package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"text/template"
	"time"

	"laneway/internal/wire"
	"laneway/internal/wire/schema"
)

//go:embed protocol.md.tmpl
var page string

func markdown(p protocol) ([]byte, error) {
	t, err := template.New("protocol.md").Funcs(template.FuncMap{
		"errors": errorNotes, "rule": rule, "shape": shapeOf, "paramShape": paramShape(jobMembers()), "answer": answer, "code": codes, "seconds": seconds, "number": number, "cell": cell, "lower": strings.ToLower,
		"means": p.meanings.ofField, "about": p.meanings.ofType,
	}).Parse(page)
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("writing the page: %w", err)
	}
	return out.Bytes(), p.meanings.err()
}

// shapeOf returns the type of a value, with a link to the table of its members.
func shapeOf(t *schema.Type) string {
	switch t.Kind {
	case schema.Array:
		return shapeOf(t.Items) + "[]"
	case schema.Map:
		return "object of " + shapeOf(t.Items)
	case schema.Object, schema.Variants:
		return link(t)
	case schema.String, schema.Integer, schema.Boolean, schema.Any:
	}
	return string(t.Kind)
}

// jobMembers has the types of the members of a job by name. The methods that edit jobs take these members as raw
// JSON, because package cron checks them, but a client sends the same types that it reads.
func jobMembers() map[string]*schema.Type {
	members := map[string]*schema.Type{}
	for _, f := range schema.Result(reflect.TypeFor[wire.Job]()).Fields {
		members[f.Name] = f.Type
	}
	text := &schema.Type{Kind: schema.String}
	for _, name := range []string{"ifNameExists", "message", "sessionKey"} { // of a call, not of a job
		members[name] = text
	}
	return members
}

// paramShape returns the type of a parameter: a member of a job where the parameter is raw JSON and has the name of one.
func paramShape(job map[string]*schema.Type) func(schema.Field) string {
	return func(f schema.Field) string {
		switch t, ok := job[f.Name]; {
		case f.Type.Kind == schema.Any && f.Name == "patch":
			return "object"
		case f.Type.Kind == schema.Any && ok && f.Name != "state":
			return shapeOf(t)
		}
		return shapeOf(f.Type)
	}
}

func link(t *schema.Type) string { return "[" + t.Name + "](#" + strings.ToLower(t.Name) + ")" }

// answer returns the name of a result or payload type. For a type with variants, it names all of them.
func answer(t *schema.Type) string {
	if t.Kind != schema.Variants {
		return shapeOf(t)
	}
	var parts []string
	for _, v := range t.Variants {
		parts = append(parts, shapeOf(v))
	}
	return strings.Join(parts, " or ")
}

// rule describes the constraints of a value beyond its type. Members of results are required unless the rule is optional; those of
// parameters are not.
func rule(f schema.Field, result bool) string {
	var parts []string
	switch {
	case f.Required && f.Or != "":
		parts = append(parts, "required, unless `"+f.Or+"` is given, which means the same; both must be equal")
	case f.Or != "":
		parts = append(parts, "the same as `"+f.Or+"`; both must be equal")
	case f.Required && !result:
		parts = append(parts, "required")
	case !f.Required && result:
		parts = append(parts, "optional")
	}
	if f.Nullable {
		parts = append(parts, "or null")
	}
	if r := span(f.Type, result); r != "" {
		parts = append(parts, r)
	}
	if f.Type.Enum != nil {
		parts = append(parts, "one of "+codes(f.Type.Enum))
	}
	if f.Type.Pattern != nil {
		parts = append(parts, "matches `"+f.Type.Pattern.String()+"`")
	}
	return cell(strings.Join(parts, "; "))
}

func span(t *schema.Type, result bool) string {
	unit := map[schema.Kind]string{schema.String: " characters", schema.Array: " members"}[t.Kind]
	if t.Bytes {
		unit = " bytes of UTF-8"
	}
	low := number(t.Min)
	switch {
	case t.Bounded:
		return low + " to " + number(t.Max) + unit
	case t.Min > 0:
		return "at least " + low + unit
	case t.Kind == schema.Integer && !result:
		return "not below 0"
	default:
		return ""
	}
}

func codes(names []string) string {
	quoted := make([]string, 0, len(names))
	for _, n := range names {
		quoted = append(quoted, "`"+n+"`")
	}
	return strings.Join(quoted, ", ")
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s" }

// number formats 1048576 as 1,048,576; n is an integer of any type.
func number(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// cell escapes the bar, which would end a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
