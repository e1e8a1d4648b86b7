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
	// badText is set when some string of it must be refused; the frame itself is sound.
	badText error
}

// malformed is a frame that is not a request. id is what the answer carries.
type malformed struct {
	id, reason string
	// notObject: there is no JSON object at all, the one fault that is not even answered before authentication.
	notObject bool
}

// Error is what is wrong with the frame, in the words of the protocol.
func (m *malformed) Error() string { return "invalid request frame: " + m.reason }

// parseRequest reads one message. Member names count exactly as written, which decoding into a struct would not do.
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

// appendResponse writes a response frame. The payload is JSON already.
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
