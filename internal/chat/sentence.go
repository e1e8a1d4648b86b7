package chat

import (
	"context"
	"errors"
)

// EmptyAnswer returns the sentence that replaces an answer without text. stop is its stop reason, see [RunEnd].
func EmptyAnswer(stop string) string {
	if stop == "length" {
		return "(empty answer: the model stopped at its length limit)"
	}
	return "(empty answer)"
}

// SentenceOf returns the part of an error that a person may see: the sentence of an [Error], never its cause.
func SentenceOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within a second"
	}
	return "internal error"
}
