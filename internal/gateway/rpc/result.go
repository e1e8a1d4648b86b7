package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"laneway/internal/gateway/strictjson"
)

// ListBytes is where a list answer is cut, in bytes of its rows.
const ListBytes = 4 << 20

// Encoded is a result of type T that is JSON already.
type Encoded[T any] []byte

func (e Encoded[T]) json() json.RawMessage  { return json.RawMessage(e) }
func (Encoded[T]) resultType() reflect.Type { return reflect.TypeFor[T]() }

// Twice is a result of type T with two frames: First now, and what Then returns when it returns. Then gets a context that ends with the connection.
type Twice[T any] struct {
	First T
	Then  func(ctx context.Context) (T, error)
}

func (t Twice[T]) frames() (first any, then func(ctx context.Context) (any, error)) {
	return t.First, func(ctx context.Context) (any, error) { return t.Then(ctx) }
}

func (Twice[T]) resultType() reflect.Type { return reflect.TypeFor[T]() }

// Frames splits a result: what the first frame has, and what makes the second one; nil = there is one frame only.
func Frames(result any) (first any, then func(ctx context.Context) (any, error)) {
	if both, two := result.(interface {
		frames() (any, func(context.Context) (any, error))
	}); two {
		return both.frames()
	}
	return result, nil
}

// resultOf is the type of package wire that a handler answers with.
func resultOf[R any]() reflect.Type {
	var r R
	if wrapped, ok := any(r).(interface{ resultType() reflect.Type }); ok {
		return wrapped.resultType()
	}
	return reflect.TypeFor[R]()
}

// Encode turns the result of a method into JSON.
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
