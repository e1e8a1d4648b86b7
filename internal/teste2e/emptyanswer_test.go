package teste2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
)

// The model reaches its limit before the first word.
func TestAnEmptyAnswerIsShownAsEmptyToPeopleAndIsEmptyForPrograms(t *testing.T) {
	const sentence = "(empty answer: the model stopped at its length limit)"
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "", testtelegram.Config{})
		c.Model.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Finish: "length"} })
		c.Start()
		c.LetIn(anna)
		c.Telegram.Say(anna, anna, "write a novel")
		c.Says(anna, sentence)

		out, errs, code := c.CLI(t.Context(), "", "send", "write a novel")
		if out != "" || errs != "laneway: "+sentence+"\n" || code != 0 {
			t.Errorf("laneway send: %q, %q, %d", out, errs, code)
		}

		a := c.post("/v1/chat/completions", []byte(`{"model":"laneway","messages":[{"role":"user","content":"write a novel"}]}`), map[string]string{"Authorization": "Bearer " + c.Token()})
		var answer struct {
			Choices []struct {
				Message      struct{ Content *string }
				FinishReason string `json:"finish_reason"` //nolint:tagliatelle // OpenAI's name
			}
		}
		if err := json.Unmarshal([]byte(a.Body), &answer); err != nil || a.Status != http.StatusOK || len(answer.Choices) != 1 {
			t.Fatalf("%d %s (%v)", a.Status, a.Body, a.Err)
		}
		if got := answer.Choices[0]; got.Message.Content == nil || *got.Message.Content != "" || got.FinishReason != "length" {
			t.Errorf("/v1/chat/completions: %s", a.Body)
		}
	})
}
