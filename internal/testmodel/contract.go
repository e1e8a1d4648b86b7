package testmodel

import (
	"net/http"
	"testing"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
)

// Words are those of an API for failures that each API names in its own way.
type Words struct {
	// Refusal is the reason of an end by a filter, ServerError the type of a failure of the server.
	Refusal, ServerError string
	// TooLong changes the reply to a conversation that is too long.
	TooLong func(*Reply)
}

// Subject is a runner of models for the contract of runners. open returns a runner that calls the
// server.
func Subject(w Words, open func(t *testing.T, model *Server, maxAnswer int) agent.Runner) agenttest.Subject {
	var model *Server
	return agenttest.Subject{
		Open: func(t *testing.T, script agenttest.Script) agent.Runner {
			t.Helper()
			model = Start(t)
			model.Answer(func(call Call) Reply { return w.reply(call, script) })
			return open(t, model, script.MaxAnswer)
		},
		Alive: func() int { return model.Active() },
		Reasons: []chat.FailReason{
			chat.FailOverloaded, chat.FailServer, chat.FailRateLimit, chat.FailAuth, chat.FailContextLength, chat.FailBadRequest,
			chat.FailConnection, chat.FailBadResponse, chat.FailRefusal,
		},
		Usage: true,
		Asked: func() []agenttest.Asked { return asked(model) },
	}
}

// asked returns the requests that the model server received, in the types of the contract.
func asked(model *Server) []agenttest.Asked {
	var all []agenttest.Asked
	for _, call := range model.Calls() {
		one := agenttest.Asked{Tools: call.Tools, Forbidden: call.ToolChoice == "none", Last: call.Last()}
		for _, message := range call.Messages {
			for _, made := range message.Calls {
				one.Calls = append(one.Calls, made.ID)
			}
			for _, result := range message.Results {
				one.Results = append(one.Results, result.Text)
			}
		}
		all = append(all, one)
	}
	return all
}

// rounds counts the rounds whose results a request contains.
func rounds(call Call) int {
	n := 0
	for _, message := range call.Messages {
		if len(message.Calls) > 0 {
			n++
		}
	}
	return n
}

// reply plays a script of the contract. A script whose pieces are bytes is written byte by byte.
func (w Words) reply(call Call, script agenttest.Script) Reply {
	out := Reply{Pieces: script.Pieces, Hang: script.Hang, InputTokens: 5, OutputTokens: 7}
	if script.Repeat {
		out.Pieces = []string{call.Last()}
	}
	if len(script.Rounds) > 0 {
		pieces, calls := script.Turn(rounds(call))
		out.Pieces = pieces
		for _, c := range calls {
			out.Calls = append(out.Calls, ToolCall{ID: c.ID, Name: c.Name, Args: c.Args})
		}
	}
	if text := script.Text(); len(script.Pieces) > 1 && len(script.Pieces) == len(text) {
		out.Pieces, out.EachByte = []string{text}, true
	}
	switch script.Fail {
	case chat.FailConnection:
		out.Cut = true
	case chat.FailBadResponse:
		out.Garbage = "data: {not json\n\n"
	case chat.FailRefusal:
		out.Finish = w.Refusal
	case "":
	default:
		out.StreamError = map[chat.FailReason]string{chat.FailOverloaded: "overloaded_error", chat.FailServer: w.ServerError}[script.Fail]
		out.Status = status(script.Fail)
		if script.Fail == chat.FailContextLength {
			w.TooLong(&out)
		}
	}
	if len(script.Pieces) > 0 {
		out.Status = 0 // the failure comes in the middle of the stream
	}
	return out
}

func status(reason chat.FailReason) int {
	return map[chat.FailReason]int{
		chat.FailRateLimit: http.StatusTooManyRequests, chat.FailOverloaded: http.StatusServiceUnavailable,
		chat.FailServer: http.StatusInternalServerError, chat.FailAuth: http.StatusUnauthorized,
		chat.FailContextLength: http.StatusBadRequest, chat.FailBadRequest: http.StatusNotFound,
	}[reason]
}
