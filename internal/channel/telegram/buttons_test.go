package telegram_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

func (b *bot) ask(id string, target chat.Target, text string, choice *chat.Choice) error {
	_, err := b.ch.Ask(b.t.Context(), b.claims.known(chat.Reply{ID: id, Target: target, Kind: "command", Text: text, Choice: choice, Attempt: 1}), b.claims.of(id))
	return err
}

// offer sends anna a choice and returns the message that she sees.
func (b *bot) offer(choice *chat.Choice) testtelegram.Message {
	b.t.Helper()
	if err := b.ask("a", to(anna, ""), "?", choice); err != nil {
		b.t.Fatal(err)
	}
	return b.srv.Messages(anna)[0]
}

func TestButtons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Members = "any" })
		b.start()
		asked := 0
		ask := func() testtelegram.Message {
			t.Helper()
			asked++
			choice := &chat.Choice{For: "7", Rows: [][]chat.Button{{{Label: "Yes\u202e", Text: "/cron pause 1"}, {Label: "No", Text: "/cron list"}}}}
			if err := b.ask(fmt.Sprint("ask", asked), to(group, "10"), "Pause **it**?", choice); err != nil {
				t.Fatal(err)
			}
			all := b.srv.Messages(group)
			return all[len(all)-1]
		}
		m := ask()
		yes, no := m.Buttons[0][0], m.Buttons[0][1]
		if yes.Text != `Yes\u202e` || strings.Contains(yes.Data, "cron") || len(yes.Data) > 64 || m.Thread != 10 {
			t.Errorf("message %+v", m)
		}
		press := func(chatID, user int64, data string) {
			b.srv.Press(chatID, user, m.ID, data)
			after(time.Second)
		}
		press(group, bob, yes.Data)  // another person
		press(anna, anna, yes.Data)  // another chat
		press(group, anna, "forged") // never offered
		wantTexts(t, "received", b.texts())
		press(group, anna, yes.Data)
		press(group, anna, yes.Data) // used
		press(group, anna, no.Data)  // of the same message
		wantTexts(t, "received", b.texts(), "/cron pause 1")
		if got := b.messages()[0]; got.Content.Sender.ID != "7" || got.Session.Rest != "telegram:group:-100500" && !strings.HasPrefix(got.Session.Rest, "telegram:group:-100500") {
			t.Errorf("message %+v", got)
		}
		all := b.srv.Messages(group)
		if kept := all[len(all)-1].Buttons; len(kept) != 0 {
			t.Errorf("the used buttons are still shown: %v", kept)
		}
		m = ask()
		after(11 * time.Minute)
		press(group, anna, m.Buttons[0][0].Data) // too late
		wantTexts(t, "received", b.texts(), "/cron pause 1")
		if n := len(b.srv.Calls("answerCallbackQuery")); n != 7 {
			t.Errorf("%d of 7 presses were answered", n)
		}
		for i, bad := range []*chat.Choice{
			nil, {}, {Rows: [][]chat.Button{{{Label: "x"}}}}, {Rows: [][]chat.Button{{{Text: "x"}}}}, {For: "@anna", Rows: [][]chat.Button{{{Label: "x", Text: "x"}}}},
		} {
			err := b.ask(fmt.Sprint("bad", i), to(group, ""), "?", bad)
			if failed, ok := errors.AsType[*channel.SendError](err); !ok || !failed.Permanent {
				t.Errorf("%v: %v", bad, err)
			}
		}
		b.stop()
	})
}

func TestPressSurvivesTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		m := b.offer(&chat.Choice{Rows: [][]chat.Button{{{Label: "Go", Text: "go"}}}})
		b.fail(chat.ErrStoreUnavailable, chat.ErrStoreUnavailable)
		b.srv.Press(anna, anna, m.ID, m.Buttons[0][0].Data)
		after(10 * time.Second)
		wantTexts(t, "received", b.texts(), "go")
		b.stop()
	})
}

// The process crashes after a button was used up and before its message was stored: Telegram
// delivers the press again, and it has the same text.
func TestAPressSurvivesACrashBeforeItsMessageIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		m := b.offer(&chat.Choice{For: "7", Rows: [][]chat.Button{{{Label: "Go", Text: "go"}, {Label: "Stay", Text: "stay"}}}})
		for range 1000 { // until the end of the process
			b.fail(chat.ErrStoreUnavailable)
		}
		b.srv.Press(anna, anna, m.ID, m.Buttons[0][0].Data)
		after(5 * time.Second)
		b.stop()
		wantTexts(t, "received", b.texts())
		b.clearFailures()
		b.start()
		after(5 * time.Second)
		wantTexts(t, "received by the next process", b.texts(), "go")
		b.srv.Press(anna, anna, m.ID, m.Buttons[0][0].Data)
		b.srv.Press(anna, anna, m.ID, m.Buttons[0][1].Data)
		after(5 * time.Second)
		wantTexts(t, "received after further presses", b.texts(), "go")
		b.stop()
	})
}

func TestAChoiceThatIsSentAgainKeepsItsButtons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		long := strings.Repeat("a line of the list\n\n", 300) // two messages
		choice := &chat.Choice{For: "7", Rows: [][]chat.Button{{{Label: "Go", Text: "go"}}}}
		b.srv.Break("sendMessage", testtelegram.Fault{Delay: time.Millisecond}, testtelegram.Flood(30))
		err := b.ask("a", to(anna, ""), long, choice)
		if failed, ok := errors.AsType[*channel.SendError](err); !ok || failed.Permanent || failed.RetryAfter != 30*time.Second {
			t.Fatalf("the second part: %v", err)
		}
		after(31 * time.Second)
		if err := b.ask("a", to(anna, ""), long, choice); err != nil {
			t.Fatal(err)
		}
		all := b.srv.Messages(anna)
		if len(all) != 2 || len(all[0].Buttons) != 0 || len(all[1].Buttons) != 1 {
			t.Fatalf("%d messages; the buttons belong below the last one: %+v", len(all), all)
		}
		var tried []string
		for _, call := range b.srv.Calls("sendMessage") {
			if markup := call.Params.Get("reply_markup"); markup != "" {
				tried = append(tried, markup)
			}
		}
		if len(tried) != 2 || tried[0] != tried[1] {
			t.Errorf("the attempts had the keyboards %q", tried)
		}
		b.stop()
	})
}

func TestAChoiceIsPutIntoWordsWhenNoMoreButtonsCanBeKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		full := channel.ButtonSet{Peer: channel.Peer{Channel: b.ch.Name(), UserID: bob, ChatID: bob}, Texts: map[string]string{}}
		for i := range channel.MaxButtons {
			full.Texts[strconv.Itoa(i)] = "x"
		}
		if err := b.records.PutButtons(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		if err := b.ask("a", to(anna, ""), "Which one?", &chat.Choice{Rows: [][]chat.Button{{{Label: "Go", Text: "go"}}}, Typed: "Write go."}); err != nil {
			t.Fatal(err)
		}
		wantTexts(t, "anna reads", b.srv.Texts(anna), "Which one?\n\nWrite go.")
		b.breakRecords(chat.ErrStoreUnavailable)
		err := b.ask("b", to(anna, ""), "?", &chat.Choice{Rows: [][]chat.Button{{{Label: "Go", Text: "go"}}}})
		if failed, ok := errors.AsType[*channel.SendError](err); !ok || failed.Permanent {
			t.Errorf("without the store: %v; want a failure that is tried again", err)
		}
		b.stop()
	})
}

// An anonymous administrator writes as an anonymous user and presses as a person; the choice is for
// every person who may talk there.
func TestAChoiceForAHiddenAdministratorCanBePressed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		choice := &chat.Choice{For: "1087968824", Rows: [][]chat.Button{{{Label: "Go", Text: "go"}}}}
		if err := b.ask("a", to(group, ""), "?", choice); err != nil {
			t.Fatal(err)
		}
		m := b.srv.Messages(group)[0]
		b.srv.Press(group, bob, m.ID, m.Buttons[0][0].Data) // may not talk here
		b.srv.Press(group, anna, m.ID, m.Buttons[0][0].Data)
		after(time.Second)
		wantTexts(t, "received", b.texts(), "go")
		b.stop()
	})
}

// A question to the anonymous administrators of a group, who act for it, is answered in words: they
// would press as persons, who may not answer it.
func TestQuestionToTheGroupIsAnsweredInWords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		defer b.stop()
		choice := &chat.Choice{For: strconv.FormatInt(group, 10), Rows: [][]chat.Button{{{Label: "Allow", Text: "/allow q"}}}, Typed: "Write /allow q."}
		if err := b.ask("a", to(group, ""), "Allow it?", choice); err != nil {
			t.Fatal(err)
		}
		if got := b.srv.Messages(group); len(got) != 1 || got[0].Text != "Allow it?\n\nWrite /allow q." || len(got[0].Buttons) != 0 {
			t.Errorf("the group reads %+v", got)
		}
	})
}

// TestRefusedButtonsAreWrittenAsWords: a question whose keyboard Telegram does not accept arrives
// with the words that answer it.
func TestRefusedButtonsAreWrittenAsWords(t *testing.T) {
	t.Parallel()
	for name, refusals := range map[string][]string{"named": {"BUTTON_DATA_INVALID"}, "not named": {"SOMETHING_INVALID", "SOMETHING_INVALID"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				defer b.stop()
				for _, text := range refusals {
					b.srv.Break("sendMessage", testtelegram.Refuse(400, "Bad Request: "+text))
				}
				choice := &chat.Choice{For: "7", Rows: [][]chat.Button{{{Label: "Yes", Text: "yes"}}}, Typed: "Write yes or no."}
				if err := b.ask("a", to(anna, ""), "Pause it?", choice); err != nil {
					t.Fatal(err)
				}
				got := b.srv.Messages(anna)
				if len(got) != 1 || got[0].Text != "Pause it?\n\nWrite yes or no." || len(got[0].Buttons) != 0 {
					t.Errorf("anna reads %+v", got)
				}
			})
		})
	}
}

// steps streams a turn in a chat that writes text and then makes three calls of 15 seconds.
func (b *bot) steps(run string, chatID int64, text string) {
	for n := range 3 {
		b.ch.Update(to(chatID, ""), run, channel.Preview{Text: text, Step: fmt.Sprintf("go test ./%d <x>", n), Since: time.Now(), Steps: n + 1})
		after(15 * time.Second)
	}
}

// TestAStepIsOneLineThatTheAnswerReplaces in a group and in a private chat, with and without text
// above it.
func TestAStepIsOneLineThatTheAnswerReplaces(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"alone": "", "below a text": "I look at it."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				for id, chatID := range map[string]int64{"1": anna, "2": group} {
					b.steps("run-"+id, chatID, text)
					before := text
					if text != "" {
						before += "\n\n"
					}
					want := []string{"go test ./0 <x>…", "go test ./0 <x>… 10 s", "go test ./1 <x>… 2 tools", "go test ./1 <x>… 10 s, 2 tools", "go test ./2 <x>… 3 tools", "go test ./2 <x>… 10 s, 3 tools"}
					got := b.srv.Messages(chatID)
					if len(got) != 1 {
						t.Fatalf("got %+v, want one message", got)
					}
					shown := append(got[0].Edits, got[0].Text)
					for i := range want {
						want[i] = before + want[i]
					}
					wantTexts(t, "states", shown, want...)
					b.ch.Finish(to(chatID, ""), "run-"+id, true)
					b.mustSend(id, to(chatID, ""), "final")
					wantTexts(t, "in the end", b.srv.Texts(chatID), "final")
				}
				b.stop()
			})
		})
	}
}

// TestWithoutAReplyNothingOfAStepRemains: a stopped turn leaves its text, or nothing if it has no
// text. This also holds after the previews of a process have ended, as in a drain.
func TestWithoutAReplyNothingOfAStepRemains(t *testing.T) {
	t.Parallel()
	for name, drained := range map[string]bool{"stopped": false, "drained": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				b.steps("run-1", group, "")
				b.steps("run-2", anna, "I look at it.")
				if drained {
					b.ch.EndPreviews(t.Context())
				}
				b.ch.Finish(to(group, ""), "run-1", false)
				b.ch.Finish(to(anna, ""), "run-2", false)
				after(5 * time.Second)
				wantTexts(t, "the group reads", b.srv.Texts(group))
				wantTexts(t, "anna reads", b.srv.Texts(anna), "I look at it.")
				b.stop()
			})
		})
	}
}

// TestTheTimeOfAStepKeepsTheLimits: a step of twenty minutes in a group leaves room for messages,
// and the draft of a private chat does not expire.
func TestTheTimeOfAStepKeepsTheLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.srv.Drafts = true })
		b.start()
		p := channel.Preview{Text: strings.Repeat("A rather long answer. ", 500), Step: strings.Repeat("long ", 100), Since: time.Now(), Steps: 1}
		b.ch.Update(to(group, ""), "run-1", p)
		b.ch.Update(to(anna, ""), "run-2", p)
		after(20*time.Minute - 5*time.Second)
		wantMost(t, "edits in a minute", b.srv.Calls("editMessageText"), time.Minute, 7)
		drafts := b.srv.Calls("sendMessageDraft")
		for i := 1; i < len(drafts); i++ {
			if gap := drafts[i].At.Sub(drafts[i-1].At); gap > 15*time.Second {
				t.Fatalf("no draft for %s", gap)
			}
		}
		last := drafts[len(drafts)-1].Params.Get("text")
		if !strings.HasSuffix(last, "long… 19 min 50 s</i>") || !strings.Contains(last, "A rather long answer.") || len(b.srv.Texts(anna)) != 0 {
			t.Errorf("the last draft is %q", last)
		}
		if got := b.srv.Texts(group); len(got) != 1 || !strings.HasSuffix(got[0], "long… 19 min 50 s") {
			t.Errorf("the group reads %q", got)
		}
		b.stop()
	})
}
