package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"time"

	"laneway/internal/gateway"
)

//go:embed protocol.md.tmpl
var page string

func markdown(p protocol) ([]byte, error) {
	t, err := template.New("protocol.md").Funcs(template.FuncMap{
		"errors": errorNotes, "rule": rule, "type": typeOf, "code": codes, "seconds": seconds, "number": number, "cell": cell,
	}).Parse(page)
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("writing the page: %w", err)
	}
	return out.Bytes(), nil
}

func typeOf(f gateway.ParamInfo) string {
	if f.Type == "array" {
		return f.Items + "[]"
	}
	return f.Type
}

// rule says what a value must be like, beyond its type.
func rule(f gateway.ParamInfo) string {
	var parts []string
	switch {
	case f.Required && f.Or != "":
		parts = append(parts, "required, unless `"+f.Or+"` is given, which means the same; both must be equal")
	case f.Or != "":
		parts = append(parts, "the same as `"+f.Or+"`; both must be equal")
	case f.Required:
		parts = append(parts, "required")
	}
	if r := span(f); r != "" {
		parts = append(parts, r)
	}
	if f.Enum != nil {
		parts = append(parts, "one of "+codes(f.Enum))
	}
	if f.Pattern != "" {
		parts = append(parts, "matches `"+f.Pattern+"`")
	}
	return cell(strings.Join(parts, "; "))
}

func span(f gateway.ParamInfo) string {
	unit := map[string]string{"string": " characters", "array": " members"}[f.Type]
	if f.Bytes {
		unit = " bytes of UTF-8"
	}
	low := number(f.Min)
	switch {
	case f.Bounded:
		return low + " to " + number(f.Max) + unit
	case f.Min > 0:
		return "at least " + low + unit
	case f.Type == "integer":
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

// number writes 1048576 as 1,048,576; n is an integer of any type.
func number(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// cell keeps a bar in a text from ending a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
