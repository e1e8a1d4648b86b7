package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"laneway/internal/wire"
	"laneway/internal/wire/schema"
)

//go:embed protocol.md.tmpl
var texts string

// examples has, by method, a request and its answer as a gateway sent them. A test of the program
// records them.
//
//go:embed examples.json
var examples []byte

// page is a file below docs/protocol and what its template shows.
type page struct {
	protocol
	namespace

	Pages []*page
	All   []described // of every page

	// Methods, Events and Types are those of this page.
	Methods []described
	Events  []describedEvent
	Types   []*schema.Type
}

// pagesOf distributes methods, events and types over the pages. What is on no page, or a type on
// several, is an error.
func pagesOf(p protocol) ([]*page, error) {
	var all []*page
	claimed := map[string]*page{} // types by name
	for _, n := range namespaces() {
		pg := &page{protocol: p, namespace: n, All: p.Methods}
		for _, name := range n.Types {
			claimed[name] = pg
		}
		all = append(all, pg)
	}
	home := map[string][]*page{} // of each type
	methods, events := slices.Clone(p.Methods), slices.Clone(p.Events)
	for _, pg := range all {
		used := map[string]*schema.Type{}
		for name, of := range claimed { // their members are on their page
			if of != pg {
				used[name] = &schema.Type{}
			}
		}
		methods = slices.DeleteFunc(methods, func(m described) bool {
			if !slices.Contains(pg.namespace.Methods, m.Name) {
				return false
			}
			pg.Methods = append(pg.Methods, m)
			collect(used, m.Result)
			for _, f := range m.Params.Fields {
				collect(used, f.Type)
			}
			return true
		})
		events = slices.DeleteFunc(events, func(e describedEvent) bool {
			if !slices.Contains(pg.namespace.Events, e.Name) {
				return false
			}
			pg.Events = append(pg.Events, e)
			collect(used, e.Payload)
			return true
		})
		switch pg.File {
		case "methods.md":
			pg.Methods, pg.Events = p.Methods, p.Events
		case "connect.md":
			collect(used, p.Connect.Result)
		case "errors.md":
			collect(used, p.Error)
		}
		for _, t := range p.Types {
			if claimed[t.Name] == pg {
				collect(used, t)
			}
		}
		for name := range used {
			if of := claimed[name]; of == nil || of == pg {
				home[name] = append(home[name], pg)
			}
		}
	}
	if len(methods) > 0 || len(events) > 0 {
		return nil, fmt.Errorf("on no page of namespaces: %v, %v", methods, events)
	}
	inMethod := answersOnly(p)
	var faults []error
	for _, t := range p.Types {
		switch on := home[t.Name]; {
		case len(on) != 1:
			faults = append(faults, fmt.Errorf("the type %s is on %d pages; name it on one of namespaces", t.Name, len(on)))
		case !inMethod[t.Name]:
			on[0].Types = append(on[0].Types, t)
		}
	}
	for _, pg := range all {
		pg.Pages = all
	}
	return all, errors.Join(faults...)
}

// answersOnly names the objects that are the answer of one method and occur nowhere else. Their
// members stand with the method.
func answersOnly(p protocol) map[string]bool {
	count, answers := map[string]int{}, map[string]bool{}
	for _, m := range p.Methods {
		count[m.Result.Name]++
		answers[m.Result.Name] = m.Result.Kind == schema.Object
	}
	for _, e := range p.Events {
		count[e.Payload.Name]++
	}
	for _, t := range p.Types {
		for _, v := range t.Variants {
			count[v.Name]++
		}
		for _, f := range t.Fields {
			inner := f.Type
			for inner.Items != nil {
				inner = inner.Items
			}
			count[inner.Name]++
		}
	}
	maps.DeleteFunc(answers, func(name string, object bool) bool { return !object || count[name] != 1 })
	return answers
}

// markdown returns the pages by the names of their files.
func markdown(p protocol) (map[string][]byte, error) {
	all, err := pagesOf(p)
	if err != nil {
		return nil, err
	}
	var recorded map[string]struct{ Request, Answer json.RawMessage }
	if err := json.Unmarshal(examples, &recorded); err != nil {
		return nil, fmt.Errorf("reading the examples: %w", err)
	}
	places := map[string]string{} // the page that has an anchor
	for _, pg := range all {
		if pg.File == "methods.md" {
			continue
		}
		for _, m := range pg.Methods {
			places[anchor(m.Name)] = pg.File
		}
		for _, e := range pg.Events {
			places[anchor("event-"+e.Name)] = pg.File
		}
		for _, t := range pg.Types {
			places[anchor(t.Name)] = pg.File
		}
	}
	inMethod := answersOnly(p)
	out := map[string][]byte{}
	for _, pg := range all {
		l := links{places: places, from: pg.File}
		t, err := template.New("").Funcs(template.FuncMap{
			"errors": errorNotes, "rule": rule, "shape": l.shapeOf, "paramShape": l.paramShape(jobMembers()), "answer": l.answer, "code": codes,
			"seconds": seconds, "number": number, "cell": cell, "brief": brief, "many": many, "place": l.place,
			"means": p.meanings.ofField, "about": p.meanings.ofType, "inMethod": func(t *schema.Type) bool { return inMethod[t.Name] },
			"more": func(m described) string { return moreOf(p.meanings.ofType(m.Result.Name), m) },
			"example": func(method string) (string, error) {
				return exchange(recorded[method].Request, recorded[method].Answer)
			},
		}).Parse(texts)
		if err != nil {
			return nil, fmt.Errorf("reading the pages: %w", err)
		}
		name := pg.File
		if t.Lookup(name) == nil {
			name = "namespace"
		}
		var b bytes.Buffer
		if err := t.ExecuteTemplate(&b, name, pg); err != nil {
			return nil, fmt.Errorf("writing %s: %w", pg.File, err)
		}
		text := strings.TrimRight(b.String(), "\n") + "\n"
		for strings.Contains(text, "\n\n\n") {
			text = strings.ReplaceAll(text, "\n\n\n", "\n\n")
		}
		out[pg.File] = []byte(text)
	}
	return out, p.meanings.err()
}

// moreOf returns what the comment of an answer says beyond which method it belongs to.
func moreOf(comment string, m described) string {
	comment, _ = strings.CutPrefix(comment, m.Result.Name+" is the result of "+m.Name)
	comment = strings.TrimLeft(comment, ".,: ")
	if comment == "" {
		return ""
	}
	return " " + strings.ToUpper(comment[:1]) + comment[1:]
}

// exchange returns a request and its answer; nothing for a method without an example.
func exchange(request, answer json.RawMessage) (string, error) {
	if request == nil {
		return "", nil
	}
	sent, err := folded(request)
	received, bad := folded(answer)
	return sent + "\n" + received, errors.Join(err, bad)
}

// folded returns JSON indented, with as many members and values on a line of 100 characters as fit.
func folded(text json.RawMessage) (string, error) {
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return "", fmt.Errorf("reading an example: %w", err)
	}
	var out []string
	depth := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	whole := func(line string) bool {
		return !strings.ContainsAny(line[len(line)-1:], "{[") && !strings.ContainsAny(line[depth(line):][:1], "}]")
	}
	for line := range strings.SplitSeq(indented.String(), "\n") {
		if n := len(out); n > 1 && !whole(line) && whole(out[n-1]) && !whole(out[n-2]) && depth(out[n-2]) == depth(line) { // the end of what is on one line
			if all := out[n-2] + strings.TrimSpace(out[n-1]) + strings.TrimSpace(line); len(all) <= foldAt {
				out, line = out[:n-2], all
			}
		}
		if n := len(out); n > 0 && whole(line) && whole(out[n-1]) && depth(out[n-1]) == depth(line) && len(out[n-1])+1+len(line)-depth(line) <= foldAt {
			out[n-1] += " " + line[depth(line):]
			continue
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n"), nil
}

const foldAt = 100

// links writes links from one page to the places of methods and types.
type links struct {
	places map[string]string // the page of an anchor
	from   string
}

// place returns the address of a method, an event or a type, as seen from the page.
func (l links) place(name string) string {
	at := anchor(name)
	if file := l.places[at]; file != l.from {
		return file + "#" + at
	}
	return "#" + at
}

// anchor returns the anchor that a heading gets in the rendered page.
func anchor(name string) string { return strings.ReplaceAll(strings.ToLower(name), ".", "") }

// brief returns the first sentence.
func brief(text string) string {
	for i := range text {
		if rest := text[i:]; strings.HasPrefix(rest, ". ") && len(rest) > 2 && rest[2] >= 'A' && rest[2] <= 'Z' || strings.HasPrefix(rest, ": ") && i > 30 {
			return text[:i] + "."
		}
	}
	return text
}

// shapeOf returns the type of a value, with a link to the table of its members.
func (l links) shapeOf(t *schema.Type) string {
	switch t.Kind {
	case schema.Array:
		return l.shapeOf(t.Items) + "[]"
	case schema.Map:
		return "object of " + l.shapeOf(t.Items)
	case schema.Object, schema.Variants:
		return "[" + t.Name + "](" + l.place(t.Name) + ")"
	case schema.String, schema.Integer, schema.Boolean, schema.Any:
	}
	return string(t.Kind)
}

// jobMembers has the types of the members of a job by name. The methods that edit jobs take these
// members as raw JSON, because package cron checks them, but a client sends the same types that it
// reads.
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

// paramShape returns the type of a parameter: a member of a job where the parameter is raw JSON and
// has the name of one.
func (l links) paramShape(job map[string]*schema.Type) func(schema.Field) string {
	return func(f schema.Field) string {
		switch t, ok := job[f.Name]; {
		case f.Type.Kind == schema.Any && f.Name == "patch":
			return "object"
		case f.Type.Kind == schema.Any && ok && f.Name != "state":
			return l.shapeOf(t)
		}
		return l.shapeOf(f.Type)
	}
}

// answer returns the name of a result or payload type. For a type with variants, it names all of
// them.
func (l links) answer(t *schema.Type) string {
	if t.Kind != schema.Variants {
		return l.shapeOf(t)
	}
	var parts []string
	for _, v := range t.Variants {
		parts = append(parts, l.shapeOf(v))
	}
	return strings.Join(parts, " or ")
}

// rule describes the constraints of a value beyond its type. Members of results are required unless
// the rule is optional; those of parameters are not.
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
	switch words := f.Type.Enum; {
	case many(words):
		parts = append(parts, "one of the words below")
	case words != nil:
		parts = append(parts, "one of "+codes(words))
	}
	if f.Type.Pattern != nil {
		parts = append(parts, "matches `"+f.Type.Pattern.String()+"`")
	}
	return cell(strings.Join(parts, "; "))
}

// many reports whether words are too many for a cell of a table.
func many(words []string) bool { return len(codes(words)) > 100 }

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

// machine is docs/protocol.json.
type machine struct {
	Note     string                `json:"$comment"`
	Protocol int                   `json:"protocol"`
	Probe    int                   `json:"minimumProbeProtocol"`
	Limits   map[string]int        `json:"limits"`
	Connect  jsonSchema            `json:"connectParams"`
	HelloOK  jsonSchema            `json:"connectResult"`
	Methods  []machineMethod       `json:"methods"`
	Events   []machineEvent        `json:"events"`
	Error    jsonSchema            `json:"error"`
	Errors   []errorNote           `json:"errors"`
	Defs     map[string]jsonSchema `json:"$defs"`
}

type machineMethod struct {
	Name    string     `json:"name"`
	Scope   string     `json:"scope"`
	Owner   string     `json:"ownerScope,omitempty"`
	Does    string     `json:"does"`
	Params  jsonSchema `json:"params"`
	Ignored []string   `json:"ignoredParams,omitempty"`
	Result  jsonSchema `json:"result"`
	Errors  []string   `json:"errors,omitempty"`
	Limit   string     `json:"allowance,omitempty"`
}

type machineEvent struct {
	Name    string     `json:"name"`
	SentTo  string     `json:"sentTo"`
	Does    string     `json:"does"`
	Payload jsonSchema `json:"payload"`
}

// jsonSchema is the part of JSON Schema (2020-12) that the protocol needs. Limits in bytes are in
// maxBytes, and another name of the same member is in sameAs: the standard has neither keyword.
type jsonSchema struct {
	Ref         string                `json:"$ref,omitempty"`
	Description string                `json:"description,omitempty"`
	Type        any                   `json:"type,omitempty"` // a name, or two names of which one is null
	Required    []string              `json:"required,omitempty"`
	AnyOf       []jsonSchema          `json:"anyOf,omitempty"`
	Properties  map[string]jsonSchema `json:"properties,omitempty"`
	Additional  any                   `json:"additionalProperties,omitempty"` // a boolean or a schema
	Items       *jsonSchema           `json:"items,omitempty"`
	Enum        []any                 `json:"enum,omitempty"`
	Pattern     string                `json:"pattern,omitempty"`
	Minimum     *int64                `json:"minimum,omitempty"`
	Maximum     *int64                `json:"maximum,omitempty"`
	MinLength   *int64                `json:"minLength,omitempty"`
	MaxLength   *int64                `json:"maxLength,omitempty"`
	MaxBytes    *int64                `json:"maxBytes,omitempty"`
	SameAs      string                `json:"sameAs,omitempty"`
	MinItems    *int64                `json:"minItems,omitempty"`
	MaxItems    *int64                `json:"maxItems,omitempty"`
}

func jsonOf(p protocol) ([]byte, error) {
	w := writer{meanings: p.meanings, defs: map[string]jsonSchema{}}
	out := machine{
		Note:     "Generated by internal/gateway/gendoc from the method table and package wire; do not edit.",
		Protocol: p.Bounds.Version, Probe: p.Bounds.ProbeVersion, Errors: errorNotes(),
		Connect: w.params(p.Connect.Params), HelloOK: w.result(p.Connect.Result), Error: w.result(p.Error), Defs: w.defs,
		Limits: map[string]int{
			"handshakeBytes": int(p.Bounds.HandshakeLimit), "maxPayload": int(p.Config.MaxPayload), "maxBufferedBytes": p.Config.MaxBuffered,
			"maxSockets": p.Config.MaxSockets, "maxUnauthenticated": p.Config.MaxUnauthenticated, "maxUnauthenticatedPerAddress": p.Config.MaxUnauthenticatedPerAddr,
			"maxUnauthenticatedShared": p.Config.MaxUnauthenticatedShared,
			"maxPerPrincipal":          p.Config.MaxPerPrincipal, "chatsPerMinute": p.Config.ChatsPerMinute,
			"cronWritesPerMinute": p.Config.CronWritesPerMinute, "requestsPerSecond": p.Config.RequestsPerSecond,
			"tickIntervalMs": int(p.Bounds.Tick.Milliseconds()),
		},
	}
	for _, m := range p.Methods {
		out.Methods = append(out.Methods, machineMethod{
			m.Name, m.Scope, m.OwnerScope, m.Does, w.params(m.Params), m.Params.Also, w.result(m.Result), m.Errors, string(m.Limit),
		})
	}
	for _, e := range p.Events {
		out.Events = append(out.Events, machineEvent{e.Name, e.SentTo, e.Does, w.result(e.Payload)})
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the description: %w", err)
	}
	return append(data, '\n'), nil
}

// writer converts types to JSON Schema. Named types of results become definitions, which are
// written once; those of parameters are written where they are used.
type writer struct {
	meanings meanings
	defs     map[string]jsonSchema
	inPlace  bool
}

func (w writer) params(t *schema.Type) jsonSchema {
	w.inPlace = true
	return w.schemaOf(t)
}

func (w writer) result(t *schema.Type) jsonSchema { return w.schemaOf(t) }

func (w writer) schemaOf(t *schema.Type) jsonSchema {
	if t.Name == "" || w.inPlace {
		return w.whole(t)
	}
	if _, known := w.defs[t.Name]; !known {
		w.defs[t.Name] = jsonSchema{} // it may contain itself
		def := w.whole(t)
		def.Description = w.meanings.ofType(t.Name)
		w.defs[t.Name] = def
	}
	return jsonSchema{Ref: "#/$defs/" + t.Name}
}

func (w writer) whole(t *schema.Type) jsonSchema {
	switch t.Kind {
	case schema.Object:
		return w.object(t)
	case schema.Map:
		return jsonSchema{Type: "object", Additional: w.schemaOf(t.Items)}
	case schema.Array:
		items := w.schemaOf(t.Items)
		return jsonSchema{Type: "array", Items: &items, MinItems: w.atLeast(t), MaxItems: atMost(t)}
	case schema.Variants:
		var out jsonSchema
		for _, v := range t.Variants {
			out.AnyOf = append(out.AnyOf, w.schemaOf(v))
		}
		return out
	case schema.Integer:
		return jsonSchema{Type: "integer", Minimum: w.atLeast(t), Maximum: atMost(t)}
	case schema.String:
		return w.text(t)
	case schema.Boolean:
		return jsonSchema{Type: "boolean"}
	case schema.Any:
	}
	return jsonSchema{}
}

func (w writer) text(t *schema.Type) jsonSchema {
	s := jsonSchema{Type: "string", MinLength: w.atLeast(t), MaxLength: atMost(t)}
	for _, word := range t.Enum {
		s.Enum = append(s.Enum, word)
	}
	if t.Pattern != nil {
		s.Pattern = t.Pattern.String()
	}
	if t.Bytes {
		s.MaxLength, s.MaxBytes = nil, atMost(t)
	}
	return s
}

func (w writer) object(t *schema.Type) jsonSchema {
	s := jsonSchema{Type: "object", Properties: map[string]jsonSchema{}, Additional: t.Open}
	for _, name := range t.Also {
		s.Properties[name] = jsonSchema{}
	}
	for _, f := range t.Members() {
		s.Properties[f.Name] = w.member(f)
		switch {
		case f.Required && f.Or != "": // either name; a method has at most one such param
			s.AnyOf = append(s.AnyOf, jsonSchema{Required: []string{f.Name}})
		case f.Required:
			s.Required = append(s.Required, f.Name)
		}
	}
	return s
}

func (w writer) member(f schema.Field) jsonSchema {
	s := w.schemaOf(f.Type)
	s.SameAs = f.Or
	if f.Nullable {
		if s.Ref != "" {
			s = jsonSchema{AnyOf: []jsonSchema{s, {Type: "null"}}}
		} else {
			s.Type = []any{s.Type, "null"}
		}
	}
	s.Description = w.meanings.ofField(f)
	return s
}

// atLeast returns nil when the lower limit has no effect: a size is never below zero, and results
// have no such limit.
func (w writer) atLeast(t *schema.Type) *int64 {
	if t.Min == 0 && (t.Kind != schema.Integer || !w.inPlace) {
		return nil
	}
	return &t.Min
}

func atMost(t *schema.Type) *int64 {
	if !t.Bounded {
		return nil
	}
	return &t.Max
}

// typesOf returns internal/dashboard/types/wire.d.ts: the same types for the type checker of the
// dashboard. Calls and Events map names to the types of each method and event, so that a call is
// typed by its name.
func typesOf(p protocol) []byte {
	var b strings.Builder
	b.WriteString("// Generated by internal/gateway/gendoc from the method table and package wire; do not edit.\n\ndeclare namespace wire {\n")
	for _, t := range p.Types {
		if t.Kind == schema.Variants {
			fmt.Fprintf(&b, "  type %s = %s;\n", t.Name, union(t, "  ", false))
			continue
		}
		fmt.Fprintf(&b, "  interface %s %s\n", t.Name, object(t, "  ", false))
	}
	b.WriteString("\n  interface Calls {\n")
	for _, m := range append([]described{p.Connect}, p.Methods...) {
		fmt.Fprintf(&b, "    %s: { params: %s; result: %s };\n", strconv.Quote(m.Name), object(m.Params, "    ", true), typescript(m.Result, "    ", false))
	}
	b.WriteString("  }\n\n  interface Events {\n")
	for _, e := range p.Events {
		fmt.Fprintf(&b, "    %s: %s;\n", strconv.Quote(e.Name), typescript(e.Payload, "    ", false))
	}
	b.WriteString("  }\n}\n")
	return []byte(b.String())
}

// typescript returns the expression for a type. Types of results are referred to by name, those of
// parameters are written in full, as in docs/protocol.json.
func typescript(t *schema.Type, indent string, inPlace bool) string {
	if t.Name != "" && !inPlace {
		return t.Name
	}
	switch t.Kind {
	case schema.Object:
		return object(t, indent, inPlace)
	case schema.Map:
		return "Record<string, " + typescript(t.Items, indent, inPlace) + ">"
	case schema.Array:
		return "Array<" + typescript(t.Items, indent, inPlace) + ">"
	case schema.Variants:
		return union(t, indent, inPlace)
	case schema.Integer:
		return "number"
	case schema.String:
		if len(t.Enum) == 0 {
			return "string"
		}
		return strings.Join(quoted(t.Enum), " | ")
	case schema.Boolean:
		return "boolean"
	case schema.Any:
	}
	return "any"
}

func union(t *schema.Type, indent string, inPlace bool) string {
	parts := make([]string, len(t.Variants))
	for i, v := range t.Variants {
		parts[i] = typescript(v, indent, inPlace)
	}
	return strings.Join(parts, " | ")
}

func quoted(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strconv.Quote(w)
	}
	return out
}

// object returns the members of a type. A member with two names is optional under both; the gateway
// checks that one is given.
func object(t *schema.Type, indent string, inPlace bool) string {
	var b strings.Builder
	b.WriteString("{\n")
	for _, f := range t.Members() {
		mark := "?"
		if f.Required && f.Or == "" {
			mark = ""
		}
		null := ""
		if f.Nullable {
			null = " | null"
		}
		fmt.Fprintf(&b, "%s  %s%s: %s%s;\n", indent, f.Name, mark, typescript(f.Type, indent+"  ", inPlace), null)
	}
	if t.Open {
		fmt.Fprintf(&b, "%s  [name: string]: any;\n", indent)
	}
	if b.Len() == len("{\n") {
		return "{}"
	}
	return b.String() + indent + "}"
}
