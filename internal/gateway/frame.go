package gateway

import (
	"encoding/json"
	"errors"
	"fmt"

	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

// request is one frame of a client.
type request struct {
	id, method string
	params     json.RawMessage
	// badText is set when a string in it must be refused; the frame itself is valid.
	badText error
}

// malformed is the error for a frame that is not a request. id is the id of the answer.
type malformed struct {
	id, reason string
	// notObject: the frame is not a JSON object. This is the only fault that is not answered before authentication.
	notObject bool
}

// Error describes the fault of the frame in the terms of the protocol.
func (m *malformed) Error() string { return "invalid request frame: " + m.reason }

// parseRequest parses one message. Member names must match exactly, which decoding into a struct would not require.
func parseRequest(data []byte) (request, error) {
	strict := strictjson.Inspect(data)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return request{}, &malformed{id: "invalid", reason: "must be object", notObject: true}
	}
	req := request{params: members["params"]}
	id, idErr := frameString(members, "id", maxIDBytes)
	req.id = id
	refuse := func(reason string) (request, error) {
		if req.id == "" {
			return req, &malformed{id: "invalid", reason: reason}
		}
		return req, &malformed{id: req.id, reason: reason}
	}
	kind, kindErr := frameString(members, "type", 16)
	method, methodErr := frameString(members, "method", 256)
	_, traceErr := optionalString(members, "traceparent", 128)
	req.method = method
	switch err := errors.Join(kindErr); {
	case errors.Is(strict, strictjson.ErrTooDeep):
		return refuse(strict.Error())
	case err != nil:
		return refuse(err.Error())
	case kind != "req":
		return refuse("at /type: must be equal to constant")
	}
	for _, err := range []error{idErr, methodErr, traceErr} {
		if err != nil {
			return refuse(err.Error())
		}
	}
	req.badText = strict
	return req, nil
}

func frameString(members map[string]json.RawMessage, name string, limit int) (string, error) {
	if _, ok := members[name]; !ok {
		return "", fmt.Errorf("must have required property '%s'", name)
	}
	return optionalString(members, name, limit)
}

func optionalString(members map[string]json.RawMessage, name string, limit int) (string, error) {
	raw, ok := members[name]
	if !ok {
		return "", nil
	}
	s, ok := strictjson.Unquote(raw)
	if !ok {
		return "", fmt.Errorf("at /%s: must be string", name)
	}
	if s == "" && name != "traceparent" {
		return "", fmt.Errorf("at /%s: must NOT have fewer than 1 characters", name)
	}
	if len(s) > limit {
		return "", fmt.Errorf("at /%s: must NOT have more than %d bytes", name, limit)
	}
	return s, nil
}

// appendResponse writes a response frame. The payload is already JSON.
func appendResponse(dst []byte, id string, payload []byte) []byte {
	dst = append(dst, `{"type":"res","id":`...)
	dst = strictjson.AppendString(dst, id)
	dst = append(dst, `,"ok":true,"payload":`...)
	dst = append(dst, payload...)
	return append(dst, '}')
}

func appendFailure(dst []byte, id string, e *fault.Error) []byte {
	dst = append(dst, `{"type":"res","id":`...)
	dst = strictjson.AppendString(dst, id)
	dst = append(dst, `,"ok":false,"error":`...)
	dst = append(dst, strictjson.Encode(e)...)
	return append(dst, '}')
}
