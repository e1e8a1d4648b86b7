package gateway

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"laneway/internal/gateway/auth"
)

// MethodInfo describes one method to documentation and tests.
type MethodInfo struct {
	Name, Scope string
	// OwnerScope suffices on a session that the caller owns; "" = the owner needs Scope, too.
	OwnerScope string
	// Params are the names of its params; Required of them must be given (of a param with two names the first stands for both); Ignored are taken
	// without effect.
	Params, Required, Ignored []string
	// Fields are the same params with their types and bounds, in the order of Params.
	Fields []ParamInfo
	// Open is true when unknown params are ignored instead of refused.
	Open bool
	// Control methods have places of their own among the requests in flight.
	Control bool
	// Audited methods leave one row in the log of changes.
	Audited bool
	// Limit is the allowance that a call takes from, "" = none.
	Limit auth.LimitClass
}

// ParamInfo describes one param, or one member of a param that is an object.
type ParamInfo struct {
	Name string
	// Type is string, integer, boolean, array, object or any; Items is the type of an array's members.
	Type, Items string
	Required    bool
	// Or is another name of the same param, which is listed as well, "" = none: either will do, and both together must be equal.
	Or string
	// Min and Max bound an integer, the characters of a string (its bytes when Bytes is true) or the members of an array. Max
	// counts only when Bounded is true.
	Min, Max       int64
	Bounded, Bytes bool
	// Enum lists the only values, nil = no such list. Pattern is a regular expression, "" = none.
	Enum    []string
	Pattern string
	// Fields are the members of an object; Open says that others are ignored.
	Fields []ParamInfo
	Open   bool
}

// Methods lists the table by name. `connect` is not in it; see [Server.Connect].
func (s *Server) Methods() []MethodInfo {
	out := make([]MethodInfo, 0, len(s.methods))
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		m := s.methods[name]
		info := describe(m.name, m.params)
		if m.owner {
			info.OwnerScope = m.need().Least()
		}
		info.Scope, info.Control, info.Audited, info.Limit = m.scope, m.control, m.audited, m.limit
		out = append(out, info)
	}
	return out
}

// Connect describes the first request of every connection. It needs no scope.
func (s *Server) Connect() MethodInfo { return describe(methodConnect, shapeOf[connectParams]()) }

// Events lists the events that a client may get after `hello-ok`.
func (s *Server) Events() []string { return eventNames() }

func describe(name string, params *shape) MethodInfo {
	info := MethodInfo{Name: name, Open: params.open, Ignored: params.also, Fields: params.describe()}
	for _, f := range info.Fields {
		info.Params = append(info.Params, f.Name)
		if f.Required && !slices.Contains(info.Required, f.Or) {
			info.Required = append(info.Required, f.Name)
		}
	}
	return info
}

func (s *shape) describe() []ParamInfo {
	out := make([]ParamInfo, 0, len(s.fields))
	for i := range s.fields {
		p := s.fields[i].describe()
		out = append(out, p)
		if p.Or != "" {
			p.Name, p.Or = p.Or, p.Name
			out = append(out, p)
		}
	}
	return out
}

func (f *field) describe() ParamInfo {
	p := ParamInfo{
		Name: f.name, Type: f.kind, Items: f.items, Required: f.required, Or: f.or,
		Min: f.min, Max: f.max, Bounded: f.bounded, Bytes: f.bytes, Enum: f.enum,
	}
	if f.pattern != nil {
		p.Pattern = f.pattern.String()
	}
	if f.object != nil {
		p.Fields, p.Open = f.object.describe(), f.object.open
	}
	return p
}

// kindOf names what a value of a params type is on the wire; any when the handler looks at the JSON itself.
func kindOf(t reflect.Type) string {
	if t == reflect.TypeFor[json.RawMessage]() {
		return "any"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Int64:
		return "integer"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "array"
	case reflect.Struct:
		return "object"
	default:
		return "any"
	}
}

// Defaults is the configuration that stands for the zero value of every field.
func Defaults() Config { return Config{}.withDefaults() }
