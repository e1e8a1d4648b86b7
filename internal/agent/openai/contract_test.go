package openai_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/secret"
	"laneway/internal/testmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-very-secret-0123456789"

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContract(t *testing.T) {
	var model *testmodel.Server
	agenttest.Run(t, agenttest.Subject{
		Open: func(t *testing.T, script agenttest.Script) agent.Runner {
			t.Helper()
			model = testmodel.Start(t)
			model.Answer(func(call testmodel.Call) testmodel.Reply { return reply(call, script) })
			return open(t, model, openai.Config{MaxAnswer: script.MaxAnswer, Retries: -1})
		},
		Alive: func() int { return model.Active() },
		Reasons: []chat.FailReason{
			chat.FailOverloaded, chat.FailServer, chat.FailRateLimit, chat.FailAuth, chat.FailContextLength, chat.FailBadRequest,
			chat.FailConnection, chat.FailBadResponse, chat.FailRefusal,
		},
		Usage: true,
		Asked: func() []agenttest.Asked { return asked(model) },
	})
}

// asked returns the requests that the model server received, in the types of the contract.
func asked(model *testmodel.Server) []agenttest.Asked {
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
func rounds(call testmodel.Call) int {
	n := 0
	for _, message := range call.Messages {
		if len(message.Calls) > 0 {
			n++
		}
	}
	return n
}

// reply plays a script of the contract. A script whose pieces are bytes is written byte by byte.
func reply(call testmodel.Call, script agenttest.Script) testmodel.Reply {
	out := testmodel.Reply{Pieces: script.Pieces, Hang: script.Hang, InputTokens: 5, OutputTokens: 7}
	if script.Repeat {
		out.Pieces = []string{call.Last()}
	}
	if len(script.Rounds) > 0 {
		pieces, calls := script.Turn(rounds(call))
		out.Pieces = pieces
		for _, c := range calls {
			out.Calls = append(out.Calls, testmodel.ToolCall{ID: c.ID, Name: c.Name, Args: c.Args})
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
		out.Finish = "content_filter"
	case "":
	default:
		out.StreamError = map[chat.FailReason]string{chat.FailOverloaded: "overloaded_error", chat.FailServer: "server_error"}[script.Fail]
		out.Status = status(script.Fail)
		out.Code = map[chat.FailReason]string{chat.FailContextLength: "context_length_exceeded"}[script.Fail]
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

// open returns a runner that calls the model server.
func open(t *testing.T, model *testmodel.Server, cfg openai.Config) *openai.Runner {
	t.Helper()
	cfg.BaseURL = model.URL() + "/v1"
	cfg.APIKey = secret.New(key)
	if cfg.Model == "" {
		cfg.Model = "test-model"
	}
	runner, err := openai.New(cfg, model.Transport(), nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(runner.Close)
	return runner
}
