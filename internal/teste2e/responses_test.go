package teste2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"laneway/internal/testmodel"
)

// rounds describes the input of a model, one word for each message.
func rounds(call testmodel.Call) string {
	var out []string
	for _, m := range call.Messages {
		out = append(out, m.Role[:1]+":"+m.Content)
	}
	return strings.Join(out, " ")
}

// respondTo calls POST /v1/responses and returns the id and the text of the answer.
func (g *Gateway) respondTo(t *testing.T, members map[string]any) (id, text string) {
	t.Helper()
	members["model"] = "laneway"
	body, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	a := g.post("/v1/responses", body, map[string]string{"Authorization": "Bearer " + g.Token()})
	var r struct {
		ID     string
		Output []struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal([]byte(a.Body), &r); err != nil || a.Status != http.StatusOK || len(r.Output) != 1 {
		t.Fatalf("%d %s (%v)", a.Status, a.Body, a.Err)
	}
	return r.ID, r.Output[0].Content[0].Text
}

// echoModel answers "re:" and the last message.
func echoModel(t *testing.T) *testmodel.Server {
	t.Helper()
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Pieces: []string{"re:" + call.Last()}}
	})
	return model
}

// An early response of a long conversation is continued repeatedly: the disk grows by the content of the requests, not by copies of the
// conversation, and each branch has all of it. Before, 152 such requests of 18 KB used 329 MB.
func TestABranchOfAResponseCostsWhatItSends(t *testing.T) {
	const turns, branches, size = 20, 40, 18 << 10
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Pieces: []string{"yes"}} })
		g := Install(t, database, strings.Replace(providersConfig(model), "model: test,", "model: test, context_window: 1000000,", 1))
		g.Start()
		o := OpenOracle(t, g, database)
		used := func() int {
			t.Helper()
			if database == "" {
				return o.Count("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
			}
			return o.Count(`SELECT CAST(sum(pg_total_relation_size(c.oid)) AS bigint) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE n.nspname = current_schema() AND c.relkind = 'r'`)
		}
		id, early := "", ""
		for i := range turns {
			members := map[string]any{"input": fmt.Sprintf("turn %d ", i) + strings.Repeat("word ", size/5)}
			if id != "" {
				members["previous_response_id"] = id
			}
			early = id
			id, _ = g.respondTo(t, members)
		}
		before := used()
		for i := range branches {
			g.respondTo(t, map[string]any{"input": fmt.Sprintf("branch %d ", i) + strings.Repeat("word ", size/5), "previous_response_id": early})
			calls := model.Calls()
			told := rounds(calls[len(calls)-1])
			if n := strings.Count(told, "turn "); n != turns-1 || strings.Count(told, "branch ") != 1 {
				t.Fatalf("branch %d was told %d turns, want %d", i, n, turns-1)
			}
		}
		if grown, sent := used()-before, branches*size; grown > 10*sent {
			t.Errorf("the disk grew by %d bytes for %d that were sent, want at most ten times that", grown, sent)
		} else {
			t.Logf("the disk grew by %d bytes for %d that were sent", grown, sent)
		}
	})
}

// Before, a request without a session passed its conversation to the model twice.
func TestACompletionAddsToItsConversationOnce(t *testing.T) {
	model := echoModel(t)
	g := Install(t, "", providersConfig(model))
	g.Start()
	for _, agent := range []string{"main", "sister"} {
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"a"}]}`, agent)
		if a := g.post("/v1/chat/completions", []byte(body), map[string]string{"Authorization": "Bearer " + g.Token()}); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		calls := model.Calls()
		if got := rounds(calls[len(calls)-1]); got != "u:x a:y u:a" {
			t.Errorf("%s was told %s", agent, got)
		}
	}
}
