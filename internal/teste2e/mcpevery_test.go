package teste2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"laneway/internal/testtelegram"
	"laneway/internal/tool"
)

// toolCall is a call with a part of its result.
type toolCall struct{ name, args, want string }

// everyTool is a successful call of each tool; note is what message sends and history_search finds. Calls that create or send are first:
// after a result that may contain text from outside, a person would be asked.
// text from outside, a person would be asked.
func everyTool(note string) []toolCall {
	return []toolCall{
		{"remind", `{"when":"tomorrow 15:00","text":"call Ada"}`, "Reminder "},
		{"cron", `{"action":"list"}`, "call Ada"},
		{"message", fmt.Sprintf(`{"text":%q}`, note), "The text is on its way."},
		{"sessions", `{"action":"list"}`, "agent:main:"},
		{"send_file", `{"name":"list.txt","text":"apples and pears"}`, "The file list.txt is on its way."},
		{"history_search", fmt.Sprintf(`{"query":%q}`, note), ": " + note},
		{"spawn", `{"task":"print spawned and done","wait":true}`, "spawned and done"},
		{"delegate", `{"agent":"sister","task":"the sister repeats it"}`, "the sister repeats it"},
	}
}

// A program calls each tool of its turn with the official client, for a person in Telegram, and the test checks the effects.
func TestTheProgramOfAnAgentCallsEveryTool(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		self := ownBinary(t)
		c := openChatroomOf(t, database, fmt.Sprintf("{runner: command, command: [%q], env: {%s: \"1\"}}, sister: {runner: echo}", self, programVariable), "    allow: [7]\n", testtelegram.Config{})
		c.Start()
		c.Telegram.Say(anna, anna, "print remember: a note of Anna")
		c.Says(anna, "remember: a note of Anna")
		c.rest()

		const note = "a note of Anna" // history_search finds her earlier message
		calls := everyTool(note)
		steps := []string{"tools"}
		for _, call := range calls {
			steps = append(steps, call.name+" "+call.args)
		}
		c.Telegram.Say(anna, anna, strings.Join(steps, "\n"))
		c.Await("the answer", func() bool { return c.Count(anna, "the sister repeats it") == 1 })
		c.rest()

		texts := c.Telegram.Texts(anna)
		at := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(text, "the sister repeats it") })
		offered, results, _ := strings.Cut(texts[at], "\n")
		names := slices.Sorted(slices.Values(tool.Names()))
		if offered != strings.Join(names, " ") {
			t.Errorf("the program was offered %q, want %q", offered, names)
		}
		for _, name := range names {
			if !slices.ContainsFunc(calls, func(call toolCall) bool { return call.name == name }) {
				t.Errorf("%s was not called", name)
			}
		}
		for _, call := range calls {
			before, rest, found := strings.Cut(results, call.want)
			if !found || strings.Contains(before, "refused:") || strings.Contains(before, "error:") {
				t.Errorf("%s %s: no %q in order in\n%s", call.name, call.args, call.want, results)
			}
			results = rest
		}
		c.wantToolEffects(note)
		c.Close()
	})
}

// wantToolEffects checks the effects of the calls of everyTool for Anna.
func (c *Chatroom) wantToolEffects(note string) {
	c.t.Helper()
	for _, shown := range []string{note, "sendDocument list.txt: apples and pears"} {
		if n := len(slices.DeleteFunc(c.seen(anna), func(text string) bool { return text != shown })); n != 1 {
			c.t.Errorf("Anna sees %q %d times in %q", shown, n, c.seen(anna))
		}
	}
	o := OpenOracle(c.t, c.Gateway, c.database)
	for query, want := range map[string]int{
		countReminders: 1,
		"SELECT count(*) FROM inbox WHERE parent IS NOT NULL": 2,
		"SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND lane = 'subagent' AND outcome = 'answered' AND session_key LIKE 'agent:main:task:%'": 1,
		"SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND lane = 'team' AND outcome = 'answered' AND session_key LIKE 'agent:sister:task:%'":   1,
		"SELECT count(*) FROM tool_questions":                                                0,
		"SELECT count(*) FROM outbox WHERE payload = '" + note + "' AND state = 'delivered'": 1,
	} {
		if n := o.Count(query); n != want {
			c.t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
}
