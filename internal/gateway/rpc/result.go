package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"laneway/internal/gateway/strictjson"
)

// ListBytes is the limit of a list answer, in bytes of its rows.
const ListBytes = 4 << 20

// Encoded is a result of type T that is already JSON.
type Encoded[T any] []byte

func (e Encoded[T]) json() json.RawMessage  { return json.RawMessage(e) }
func (Encoded[T]) resultType() reflect.Type { return reflect.TypeFor[T]() }

// Twice is a result of type T with two frames: First is sent at once, the result of Then when it returns. The context of Then ends with the
// connection.
type Twice[T any] struct {
	First T
	Then  func(ctx context.Context) (T, error)
}

func (t Twice[T]) frames() (first any, then func(ctx context.Context) (any, error)) {
	return t.First, func(ctx context.Context) (any, error) { return t.Then(ctx) }
}

func (Twice[T]) resultType() reflect.Type { return reflect.TypeFor[T]() }

// Frames splits a result into the first frame and the function for the second one; nil = there is only one frame.
func Frames(result any) (first any, then func(ctx context.Context) (any, error)) {
	if both, two := result.(interface {
		frames() (any, func(context.Context) (any, error))
	}); two {
		return both.frames()
	}
	return result, nil
}

// resultOf returns the type of package wire of a handler's answer.
func resultOf[R any]() reflect.Type {
	var r R
	if wrapped, ok := any(r).(interface{ resultType() reflect.Type }); ok {
		return wrapped.resultType()
	}
	return reflect.TypeFor[R]()
}

// Encode encodes the result of a method as JSON.
func Encode(result any) (json.RawMessage, error) {
	if raw, ok := result.(interface{ json() json.RawMessage }); ok {
		return raw.json(), nil
	}
	if of, ok := result.(interface{ Variant() any }); ok {
		result = of.Variant()
	}
	payload := strictjson.Encode(result)
	if string(payload) == "null" && result != nil {
		return nil, fmt.Errorf("encoding a %s", reflect.TypeOf(result))
	}
	return payload, nil
}
