package teste2e

import (
	"strings"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
)

// callsWhatItReads is a model that makes the call that follows the word "call" in the last message, and answers with the result.
func callsWhatItReads(call testmodel.Call) testmodel.Reply {
	if results := call.Results(); len(results) > 0 {
		return testmodel.Reply{Pieces: []string{"Got: " + results[len(results)-1].Text}}
	}
	_, order, asked := strings.Cut(call.Last(), "call ")
	if !asked {
		return testmodel.Reply{Pieces: []string{"Noted."}}
	}
	name, args, _ := strings.Cut(order, " ")
	return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "a", Name: name, Args: args}}}
}

// TestAGroupReadsAPrivateChatOnlyWhenItsPersonAllowsIt has a private chat and a topic of a group. In the topic, the model lists and reads sessions; messages go from each
// chat to the other.
func TestAGroupReadsAPrivateChatOnlyWhenItsPersonAllowsIt(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    groups: [-100500]\n    members: any\n    activation: always\n    allow: [7, 8]\n", testtelegram.Config{})
		c.Model.Answer(callsWhatItReads)
		c.Start()
		const private, topic = "agent:main:telegram:direct:7", "agent:main:telegram:group:-100500:topic:10"
		inTopic := func(text string) { c.Telegram.Say(forum, anna, text, testtelegram.InTopic(10)) }
		press := func(asked shown, who int64) { c.Telegram.Press(forum, who, asked.ID, asked.button(t, "Allow").Data) }
		question := func(part string) (asked shown) {
			t.Helper()
			c.Await("the question about "+part, func() bool {
				for _, m := range c.Telegram.Messages(forum) {
					if strings.Contains(m.Text, "wants to do this for you: ") && strings.Contains(m.Text, part) {
						asked = shown{m}
					}
				}
				return asked.ID != 0
			})
			return asked
		}

		c.Telegram.Say(anna, anna, "the password is tulip")
		c.Await("the private chat is answered", func() bool { return c.Count(anna, "Noted.") == 1 })
		inTopic(`call sessions {"action":"list"}`)
		c.Await("the sessions of the topic", func() bool { return c.Count(forum, "Got: "+topic) == 1 })
		if n := c.Count(forum, private); n != 0 {
			t.Errorf("the group reads that there is a private chat: %q", c.Telegram.Texts(forum))
		}
		inTopic(`call sessions {"action":"history","session":"` + private + `"}`)
		asked := question("history")
		if !strings.Contains(asked.Text, "everyone in this group (telegram -100500, topic 10) will see the result") {
			t.Errorf("the question does not say who will read it: %q", asked.Text)
		}
		press(asked, bob)
		c.Await("the press of another person is refused", func() bool { return c.pressAnswers("This button is for somebody else.") == 1 })
		c.rest()
		if n := c.Count(forum, "tulip"); n != 0 {
			t.Errorf("the group reads the private chat: %q", c.Telegram.Texts(forum))
		}
		press(asked, anna)
		c.Await("what the person shows", func() bool { return c.Count(forum, "the password is tulip") == 1 })

		c.Telegram.Say(anna, anna, `call message {"text":"a word to all","session":"`+topic+`"}`)
		c.Await("the text from the private chat", func() bool { return c.Count(forum, "a word to all") == 1 })
		c.Telegram.Say(anna, anna, `call sessions {"action":"send","text":"sum it up","session":"`+topic+`"}`)
		c.Await("the answer to the text that the topic was given", func() bool { return c.Count(forum, "Noted.") == 1 })
		inTopic(`call message {"text":"a word to one","session":"` + private + `"}`)
		press(question("a word to one"), anna)
		c.Await("the text from the group", func() bool { return c.Count(anna, "a word to one") == 1 })
		for _, m := range c.Telegram.Messages(forum) {
			if strings.Contains(m.Text, "a word to all") && m.Thread != 10 {
				t.Errorf("%q is in topic %d", m.Text, m.Thread)
			}
		}
		c.Close()
	})
}
