package teste2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// TestMessagesOfATurnArriveInTheOrderOfItsCalls lets a model send three messages in each of five rounds, and then answer.
func TestMessagesOfATurnArriveInTheOrderOfItsCalls(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const turns, rounds, calls = 3, 5, 3
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			sent := len(call.Results())
			if sent >= rounds*calls {
				return testmodel.Reply{Pieces: []string{"done"}}
			}
			var reply testmodel.Reply
			for i := range calls {
				args, err := json.Marshal(map[string]string{"text": fmt.Sprintf("text %02d", sent+i)})
				if err != nil {
					panic(err)
				}
				reply.Calls = append(reply.Calls, testmodel.ToolCall{ID: fmt.Sprintf("c%d", sent+i), Name: "message", Args: string(args)})
			}
			return reply
		})
		w, c, _ := startWatched(t, database, toolsConfig(model))
		var want []string
		for i := range rounds * calls {
			want = append(want, fmt.Sprintf("assistant: text %02d", i))
		}
		want = append(want, "assistant: done")
		for turn := range turns {
			session := fmt.Sprintf("agent:main:order-%d", turn)
			id := fmt.Sprintf("order-%d", turn)
			say(t, c, session, id, "send them")
			w.await(t, id)
			var got []string
			testrun.Eventually(t, "the messages are delivered", func() bool {
				got = nil
				for line := range strings.Lines(historyOf(t, c, session)) {
					if line = strings.TrimSpace(line); strings.HasPrefix(line, "assistant: ") {
						got = append(got, line)
					}
				}
				return len(got) == len(want)
			})
			if !slices.Equal(got, want) {
				t.Errorf("turn %d: %q", turn, got)
			}
		}
	})
}
