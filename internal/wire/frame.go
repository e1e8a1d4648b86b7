package wire

import "encoding/json"

// Versions of the protocol.
const (
	// ProtocolVersion is the current version, MinProbeVersion the oldest that a probe may speak.
	ProtocolVersion = 4
	MinProbeVersion = 3
)

// The types of frames.
const (
	FrameRequest  = "req"
	FrameResponse = "res"
	FrameEvent    = "event"
)

// Request is a frame of a client.
type Request struct {
	Type   string `json:"type" rule:"enum=req"` // always req
	ID     string `json:"id"`                   // chosen by the client, 1 to 256 bytes; the response repeats it
	Method string `json:"method"`               // a name of the method table
	Params any    `json:"params,omitempty"`     // an object; absent means {}
}

// Frame is any frame of the gateway: a response or an event.
type Frame struct {
	Type         string          `json:"type" rule:"enum=res|event"` // what the frame is
	ID           string          `json:"id,omitempty"`               // response: the id of the request
	OK           bool            `json:"ok,omitempty"`               // response: whether it has a payload
	Event        string          `json:"event,omitempty"`            // event: its name
	Payload      json.RawMessage `json:"payload,omitempty"`          // the result of the method, or the payload of the event
	Error        *Error          `json:"error,omitempty"`            // response that is not ok: the error
	Seq          uint64          `json:"seq,omitempty"`              // event: counts from 1 on each connection; absent in the challenge
	StateVersion *StateVersion   `json:"stateVersion,omitempty"`     // event health: the version of the state that it describes
}

// StateVersion numbers the versions of state that clients cache.
type StateVersion struct {
	Presence int    `json:"presence"` // always 0
	Health   uint64 `json:"health"`   // increases with each event health
}
