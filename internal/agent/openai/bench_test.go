package openai_test

import (
	"strings"
	"testing"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/openai"
	"laneway/internal/testmodel"
)

// BenchmarkAThousandDeltas measures a whole turn over loopback, including the model server.
func BenchmarkAThousandDeltas(b *testing.B) {
	model := testmodel.Start(b)
	model.Answer(func(testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Pieces: strings.SplitAfter(strings.Repeat("token ", 1000), " ")}
	})
	runner, err := openai.New(openai.Config{BaseURL: model.URL() + "/v1", Model: "m"}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer runner.Close()
	for b.Loop() {
		deltas := 0
		_, err := runner.Run(b.Context(), agenttest.Request("hi"), func(agent.Event) { deltas++ })
		if err != nil || deltas < 1000 {
			b.Fatalf("got %d deltas and %v", deltas, err)
		}
	}
}
