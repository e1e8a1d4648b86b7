package teste2e

import (
	"slices"
	"testing"

	"laneway/internal/testtelegram"
)

// askingGroup is a group with a bot and the example agent of the SDK, which asks before it writes a file. patience is how long it waits for
// the answer.
func askingGroup(t *testing.T, patience string) *Chatroom {
	t.Helper()
	program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
	c := openChatroomOf(t, "", "{runner: acp, command: ["+program+"], question_timeout: "+patience+"}",
		"    groups: [-100500]\n    members: any\n    activation: always\n", testtelegram.Config{})
	c.Start()
	c.Telegram.Say(forum, anna, "change the configuration")
	return c
}

// The press of another member is refused and the question stays open; that of the asked person counts.
func TestAnAgentIsAllowedByAButtonInTelegram(t *testing.T) {
	c := askingGroup(t, "5m")
	c.pressAsAnother(bob)
	messages := c.Telegram.Messages(forum)
	asked := messages[slices.IndexFunc(messages, func(m testtelegram.Message) bool { return len(m.Buttons) > 0 })]
	c.Telegram.Press(forum, anna, asked.ID, shown{asked}.button(t, "Allow: this change").Data)
	c.Await("the answer after the press", func() bool { return c.Count(forum, "The changes have been applied.") == 1 })
	c.Close()
}

// The person is informed of the refusal.
func TestAnAgentWithoutAnAnswerIsRefusedInTelegram(t *testing.T) {
	c := askingGroup(t, "2s")
	c.Await("the report", func() bool {
		return c.Count(forum, "No answer came within 2s, so the agent main may not: change the file “/home/user/project/config.json”") == 1
	})
	c.Await("the answer of the agent", func() bool { return c.Count(forum, "I understand you prefer not to make that change") == 1 })
	if n := c.Count(forum, "The changes have been applied."); n != 0 {
		t.Error("the agent was allowed without an answer")
	}
	c.Close()
}
