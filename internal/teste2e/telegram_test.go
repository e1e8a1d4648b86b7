package teste2e

import (
	"encoding/base64"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
)

// storyteller is the model of these scenarios: what a person says last decides how it answers.
func storyteller(call testmodel.Call) testmodel.Reply {
	said := call.Last()
	switch {
	case strings.Contains(said, "tell me a story"):
		return testmodel.Reply{Pieces: []string{"Once ", "upon ", "a ", "time ", "there ", "was ", "a ", "lane."}, Pause: 3 * time.Millisecond, EachByte: true}
	case strings.HasSuffix(said, "think for ever"): // a later prompt quotes what was stopped
		return testmodel.Reply{Pieces: []string{"hm "}, Hang: true}
	case strings.Contains(said, "write a program"):
		return testmodel.Reply{Pieces: []string{longAnswer()}}
	default:
		return testmodel.Reply{Pieces: []string{"You said: **" + said + "**"}}
	}
}

// longAnswer is text and a block of code that together fill three messages.
func longAnswer() string {
	var b strings.Builder
	b.WriteString("Here it is.\n\n```go\n")
	for range 300 {
		b.WriteString("fmt.Println(\"a line of the program\")\n")
	}
	b.WriteString("```\n\nThat was the program.\n")
	return b.String()
}

// TestATelegramEvening follows two people through an evening with a bot that runs as the real binary: they are let in, answered while the
// answer grows, heard when they type fast, obeyed when they say stop, and found again after a crash.
func TestATelegramEvening(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    groups: [-100500]\n    members: any\n", testtelegram.Config{})
		c.Model.Answer(storyteller)
		c.Start()

		// No person is let in without a code, and before that no model is called.
		c.LetIn(anna)
		if n := len(c.Model.Calls()); n != 0 {
			t.Errorf("the model was called %d times for an unknown person", n)
		}

		// An answer grows in one message, with the sign of typing beside it.
		c.Telegram.Say(anna, anna, "Please tell me a story")
		c.Says(anna, "there was a lane.")
		story := c.Telegram.Messages(anna)
		if last := story[len(story)-1]; len(last.Edits) == 0 {
			t.Errorf("the answer did not grow: %+v", last)
		}
		if len(c.Telegram.Calls("sendChatAction")) == 0 {
			t.Error("typing was not shown")
		}

		// Three messages that are typed fast are one question.
		before := len(c.Model.Calls())
		for _, text := range []string{"Good evening.", "I am Anna.", "Who are you?"} {
			c.Telegram.Say(anna, anna, text)
		}
		c.Says(anna, "Who are you?")
		if calls := c.Model.Calls(); len(calls) != before+1 || !strings.Contains(string(calls[before].Body), "I am Anna.") {
			t.Errorf("fast typing made %d turns", len(calls)-before)
		}

		// /stop in the middle of an answer acts at once.
		c.Telegram.Say(anna, anna, "think for ever")
		c.Says(anna, "hm")
		began := time.Now()
		c.Telegram.Say(anna, anna, "/stop")
		c.Await("the answer of /stop", func() bool { return c.Count(anna, "Stopped the running turn") == 1 })
		t.Logf("/stop was answered after %s", time.Since(began).Round(time.Millisecond))

		// In the forum the bot answers when it is mentioned, in the topic in which it is asked; topics are conversations of their own.
		c.Telegram.Say(forum, bob, "Did you see the match?", testtelegram.InTopic(10))
		c.Telegram.Say(forum, bob, "@lane_bot apples", testtelegram.Mentioning(9), testtelegram.InTopic(10))
		c.Telegram.Say(forum, anna, "@lane_bot pears", testtelegram.Mentioning(9), testtelegram.InTopic(20))
		c.Await("both topics are answered", func() bool { return c.Count(forum, "apples") == 1 && c.Count(forum, "pears") == 1 })
		for _, m := range c.Telegram.Messages(forum) {
			if want := map[bool]int{true: 10, false: 20}[strings.Contains(m.Text, "apples")]; m.Thread != want {
				t.Errorf("%q stands in topic %d, want %d", m.Text, m.Thread, want)
			}
		}
		for _, call := range c.Model.Calls() {
			if body := string(call.Body); strings.Contains(body, "apples") && strings.Contains(body, "pears") || strings.Contains(body, "the match") {
				t.Errorf("topics are mixed, or the bot listened: %s", body)
			}
		}

		// A photo with a caption is kept and shown to the model, and its caption answered.
		const cat = "\xff\xd8\xffa photo of a cat"
		c.Telegram.AddFile("cat", []byte(cat))
		c.Telegram.Say(anna, anna, "", testtelegram.With("caption", "what is this?"), testtelegram.With("photo", []any{
			map[string]any{"file_id": "cat", "file_unique_id": "ucat", "width": 9, "height": 9, "file_size": len(cat)},
		}))
		c.Says(anna, "what is this?")
		kept := c.attachments()
		if len(kept) != 1 {
			t.Fatalf("kept are %q", kept)
		}
		if content, err := os.ReadFile(kept[0]); err != nil || string(content) != cat {
			t.Errorf("the photo holds %q, %v", content, err)
		}
		asked := c.Model.Calls()
		if body := string(asked[len(asked)-1].Body); !strings.Contains(body, "data:image/jpeg;base64,"+base64.StdEncoding.EncodeToString([]byte(cat))) {
			t.Errorf("the model was asked %s", body)
		}

		// A long answer arrives whole, in parts that each close their block of code.
		from := len(c.Telegram.Messages(anna))
		c.Telegram.Say(anna, anna, "write a program")
		c.Says(anna, "That was the program.")
		parts := c.Telegram.Messages(anna)[from:]
		lines := 0
		for _, m := range parts {
			lines += strings.Count(m.Text, "a line of the program")
			if strings.Count(m.HTML, "<pre>") != strings.Count(m.HTML, "</pre>") {
				t.Errorf("a part has an open block: %.80q", m.HTML)
			}
		}
		if lines != 300 || len(parts) < 3 {
			t.Errorf("%d lines arrived in %d parts", lines, len(parts))
		}

		// A reminder is planned in words and comes by itself, without any model.
		calls := len(c.Model.Calls())
		c.Telegram.Say(anna, anna, "/remind in 3s the tea is ready")
		c.Says(anna, "I will remind you")
		c.Await("the reminder", func() bool { return c.Count(anna, "the tea is ready") == 2 })
		if n := len(c.Model.Calls()); n != calls {
			t.Errorf("the reminder called the model %d times", n-calls)
		}

		// The list of jobs is buttons: one for the closer look, one to pause, one to remove. Each works once, and for her alone.
		c.Telegram.Say(anna, anna, "/cron add every 2h water the plants")
		c.Says(anna, "Planned: water the plants")
		c.Telegram.Say(anna, anna, "/jobs")
		c.Says(anna, "1. water the plants (every 2h)")
		list := c.last(anna)
		c.Telegram.Press(anna, bob, list.ID, list.button(t, "1. water the plants").Data)
		c.Press(anna, list, "1. water the plants", "water the plants (every 2h), next")
		closer := c.last(anna)
		c.rest()
		c.Restart() // what buttons mean outlives the process
		c.Press(anna, closer, "Pause", "Paused: water the plants.")
		c.Await("the buttons that were used are gone", func() bool {
			return !slices.ContainsFunc(c.Telegram.Messages(anna), func(m testtelegram.Message) bool { return len(m.Buttons) > 0 })
		})
		c.Telegram.Press(anna, anna, closer.ID, closer.button(t, "Remove").Data)
		c.Await("a press of a used button is told so", func() bool { return c.pressAnswers("used or is too old") == 1 })
		if n := c.pressAnswers("You may not use this"); n != 1 {
			t.Errorf("the press of an unknown user was refused %d times", n)
		}
		c.Telegram.Say(anna, anna, "/cron rm")
		c.Says(anna, "Which one?")
		c.Press(anna, c.last(anna), "1. water the plants", "Removed: water the plants.")

		// The process is killed and comes back: what was written meanwhile is answered, and nothing twice.
		c.Kill()
		c.remember()
		c.Telegram.Say(anna, anna, "are you back?")
		c.Start()
		c.Says(anna, "are you back?")
		if n := c.Count(anna, "are you back?"); n != 1 {
			t.Errorf("answered %d times", n)
		}

		// Anna is put out again; her next message makes a code and no turn.
		if out, errs, code := c.CLI(withTimeout(t, 30*time.Second), "", "pair", "revoke", "7"); code != 0 {
			t.Errorf("pair revoke: %q %q", out, errs)
		}
		calls = len(c.Model.Calls())
		c.Telegram.Say(anna, anna, "still here?")
		c.Says(anna, "laneway pair approve")
		if n := len(c.Model.Calls()); n != calls {
			t.Error("a person whose access was revoked still reaches the model")
		}
		c.Close()
	})
}
