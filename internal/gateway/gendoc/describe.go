package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"laneway/internal/gateway"
	"laneway/internal/wire"
	"laneway/internal/wire/schema"
)

// protocol has the content of the generated files.
type protocol struct {
	Methods []described
	Connect described
	Events  []describedEvent
	Error   *schema.Type
	// Types are the named types of results and payloads, sorted by name.
	Types  []*schema.Type
	Config gateway.Config
	Bounds bounds

	meanings meanings
}

// described is a row of the table with its note.
type described struct {
	gateway.MethodInfo
	note
}

// describedEvent is an event with its note.
type describedEvent struct {
	gateway.EventInfo
	eventNote
}

type bounds struct {
	Version, ProbeVersion                  int
	HandshakeLimit, MinPayload, MaxPayload int64
	Tick                                   time.Duration
}

func describe(srv *gateway.Server, texts meanings) (protocol, error) {
	all := protocol{
		Config: gateway.Defaults(), Error: schema.Result(reflect.TypeFor[wire.Error]()), meanings: texts,
		Bounds: bounds{
			wire.ProtocolVersion, wire.MinProbeVersion, gateway.HandshakeLimit, gateway.MinPayload, gateway.MaxPayload, gateway.TickEvery,
		},
	}
	known := notes()
	var faults []error
	find := func(m gateway.MethodInfo) described {
		n, ok := known[m.Name]
		if !ok || n.Does == "" {
			faults = append(faults, fmt.Errorf("method %s has no note in notes.go that says what it does", m.Name))
		}
		return described{m, n}
	}
	found := map[string]*schema.Type{}
	for _, m := range srv.Methods() {
		all.Methods = append(all.Methods, find(m))
		collect(found, m.Result)
		for _, f := range m.Params.Fields {
			collect(found, f.Type)
		}
	}
	all.Connect = find(srv.Connect())
	collect(found, all.Connect.Result)
	collect(found, all.Error)
	for _, info := range srv.Events() {
		e, ok := eventNotes()[info.Name]
		if !ok {
			faults = append(faults, fmt.Errorf("event %s has no note in events.go", info.Name))
		}
		all.Events = append(all.Events, describedEvent{info, e})
		collect(found, info.Payload)
	}
	for _, t := range found {
		all.Types = append(all.Types, t)
	}
	slices.SortFunc(all.Types, func(a, b *schema.Type) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(faults...)
}

// collect adds a type and the types of its members to the named types.
func collect(found map[string]*schema.Type, t *schema.Type) {
	if t == nil || t.Name != "" && found[t.Name] != nil {
		return
	}
	if t.Name != "" {
		found[t.Name] = t
	}
	collect(found, t.Items)
	for _, v := range t.Variants {
		collect(found, v)
	}
	for _, f := range t.Fields {
		collect(found, f.Type)
	}
}
