package main

import (
	"errors"
	"fmt"
	"time"

	"laneway/internal/gateway"
)

// protocol is everything that both files show.
type protocol struct {
	Methods []described
	Connect described
	Events  []eventNote
	Config  gateway.Config
	Bounds  bounds
}

// described is a row of the table with its note.
type described struct {
	gateway.MethodInfo
	note
}

type bounds struct {
	Version, ProbeVersion                  int
	HandshakeLimit, MinPayload, MaxPayload int64
	Tick                                   time.Duration
}

func describe(srv *gateway.Server) (protocol, error) {
	all := protocol{
		Config: gateway.Defaults(),
		Bounds: bounds{
			gateway.ProtocolVersion, gateway.MinProbeVersion,
			gateway.HandshakeLimit, gateway.MinPayload, gateway.MaxPayload, gateway.TickEvery,
		},
	}
	known := notes()
	var faults []error
	find := func(m gateway.MethodInfo) described {
		n, ok := known[m.Name]
		if !ok || n.Does == "" || n.Result == "" {
			faults = append(faults, fmt.Errorf("method %s has no note in notes.go that says what it does and answers", m.Name))
		}
		return described{m, n}
	}
	for _, m := range srv.Methods() {
		all.Methods = append(all.Methods, find(m))
	}
	all.Connect = find(srv.Connect())
	for _, name := range srv.Events() {
		e, ok := eventNotes()[name]
		if !ok {
			faults = append(faults, fmt.Errorf("event %s has no note in events.go", name))
		}
		e.Name = name
		all.Events = append(all.Events, e)
	}
	return all, errors.Join(faults...)
}
