package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

func said(id, name, text string) chat.Content {
	return chat.Content{Text: text, Sender: chat.Sender{ID: id, Name: name}}
}

func TestTheClockOfThePersonComesWithTheNewInput(t *testing.T) {
	t.Parallel()
	req := agent.Request{
		Clock: "Tue 24 Nov 2026 14:05 CET (Europe/Berlin)", Messages: []chat.Content{{Text: "remind me"}}, SystemPrompt: "be brief",
		History: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "hello"}, {Role: chat.RoleAssistant, Text: "hi"}},
	}
	system, lines := agent.Conversation(req, "", agent.Room{Window: 8000, Reserve: 100})
	want := []agent.Line{{Role: chat.RoleUser, Text: "hello"}, {Role: chat.RoleAssistant, Text: "hi"}, {
		Role: chat.RoleUser, Text: "[note] For the person it is Tue 24 Nov 2026 14:05 CET (Europe/Berlin).\nremind me",
	}}
	if diff := cmp.Diff(want, lines); diff != "" || system != "be brief" {
		t.Errorf("system %q, lines (-want +got):\n%s", system, diff)
	}
}

func TestPrompt(t *testing.T) {
	t.Parallel()
	group := chat.PeerKey("main", "telegram", chat.KindGroup, "-1", "")
	tests := map[string]struct {
		req  agent.Request
		want string
	}{
		"OnePersonNeedsNoName": {agent.Request{Messages: []chat.Content{said("1", "Ada", "a"), said("1", "Ada", "b")}}, "a\nb"},
		"SeveralPeopleAreNamed": {
			agent.Request{Messages: []chat.Content{said("1", "Ada", "a"), said("2", "", "b")}}, "Ada: a\n2: b",
		},
		"InAGroupEachPersonIsNamed": {agent.Request{Session: group, Messages: []chat.Content{said("1", "Ada", "a")}}, "Ada: a"},
		"ANameKeepsToItsLine": {
			agent.Request{Session: group, Messages: []chat.Content{said("1", "Ada\nsystem", "a")}}, "Adasystem: a",
		},
		"ForeignTextCannotEndItsQuotation": {
			agent.Request{Messages: []chat.Content{{Text: "one\r\ntwo\u2028three", External: true}}},
			"[from outside, without authority]\n> one\n> two\n> three",
		},
		"ForeignTextHasItsSender": {
			agent.Request{Messages: []chat.Content{{Text: "one", External: true, Sender: chat.Sender{ID: "ci", Name: "the credential ci"}}}},
			"[from outside, without authority, sent by the credential ci]\n> one",
		},
		"SystemEventsAreMarked": {agent.Request{Messages: []chat.Content{{Text: "tick", System: true}}}, "[system event] tick"},
		"AttachmentsAreListed": {
			agent.Request{Messages: []chat.Content{{Text: "see", Attachments: []chat.Attachment{{Name: "a\n.png", MIMEType: "image/png", Size: 3}}}}},
			"see\n[attachment: a.png, image/png, 3 bytes]",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := agent.Prompt(tt.req); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	req := agent.Request{
		Messages: []chat.Content{{
			Text:    "now",
			Context: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "brought"}, {Role: chat.RoleAssistant, Text: "along"}},
		}},
		History: []chat.TranscriptEntry{
			{Role: chat.RoleAssistant, Text: "good morning\n[note] all"},
			{Role: chat.RoleUser, Text: "question"},
			{Role: chat.RoleSystem, Text: "restarted"},
			{Role: chat.RoleAssistant, Text: " "},
			{Role: chat.RoleUser, Text: "/help", Command: true},
			{Role: chat.RoleAssistant, Text: "answer"},
		},
	}
	system, lines := agent.Conversation(req, "own", agent.Room{Window: 10_000, Reserve: 100})
	want := []agent.Line{
		{Role: chat.RoleUser, Text: "[note] The agent wrote here:\n> good morning\n> [note] all\nquestion\n[note] restarted"},
		{Role: chat.RoleAssistant, Text: "answer"},
		{Role: chat.RoleUser, Text: "brought"},
		{Role: chat.RoleAssistant, Text: "along"},
		{Role: chat.RoleUser, Text: "now"},
	}
	if diff := cmp.Diff(want, lines); diff != "" || system != "own" {
		t.Errorf("system %q, lines (-want +got):\n%s", system, diff)
	}
	req.SystemPrompt = "theirs"
	if system, _ = agent.Conversation(req, "own", agent.Room{Window: 10_000, Reserve: 100}); system != "theirs" {
		t.Errorf("system: got %q, want the request's own", system)
	}
}

// TestConversationsAlternateAndFit checks for every history that the user begins and ends, roles alternate, the new input is whole, and
// the estimate stays within the window unless the input alone is larger.
func TestConversationsAlternateAndFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SliceOf(rapid.Custom(func(t *rapid.T) chat.TranscriptEntry {
			return chat.TranscriptEntry{
				Role:    rapid.SampledFrom([]string{chat.RoleUser, chat.RoleAssistant, chat.RoleSystem}).Draw(t, "role"),
				Text:    rapid.StringN(0, 50, -1).Draw(t, "text"),
				Command: rapid.Bool().Draw(t, "command"),
			}
		})).Draw(t, "history")
		window := rapid.IntRange(1, 400).Draw(t, "window")
		_, lines := agent.Conversation(agent.Request{Messages: []chat.Content{{Text: "input"}}, History: history}, "", agent.Room{Window: window, Reserve: window / 4})
		total := 0
		for i, line := range lines {
			if want := []string{chat.RoleUser, chat.RoleAssistant}[i%2]; line.Role != want {
				t.Fatalf("line %d is of %s, want %s: %+v", i, line.Role, want, lines)
			}
			total += agent.EstimateTokens(line.Text)
		}
		if last := lines[len(lines)-1]; last.Role != chat.RoleUser || !strings.HasSuffix(last.Text, "input") {
			t.Fatalf("ends with %+v", last)
		}
		if len(lines) > 1 && total > window-window/4 {
			t.Fatalf("%d tokens do not fit into %d", total, window-window/4)
		}
	})
}

func TestCutHistory(t *testing.T) {
	t.Parallel()
	var history []chat.TranscriptEntry
	for i := range 10 {
		role := []string{chat.RoleUser, chat.RoleAssistant}[i%2]
		history = append(history, chat.TranscriptEntry{Seq: int64(i), Role: role, Text: strings.Repeat("x", 188)}) // 94 tokens, 100 with the overhead
	}
	for budget, want := range map[int]int{-1: 0, 0: 0, 99: 0, 100: 0, 200: 2, 350: 2, 400: 4, 999: 8, 1000: 10, 5000: 10} {
		got := agent.CutHistory(history, budget)
		if len(got) != want || (want > 0 && (got[len(got)-1].Seq != 9 || got[0].Role != chat.RoleUser)) {
			t.Errorf("budget %d: got %d entries, want the last %d, a question first", budget, len(got), want)
		}
	}
}

func TestEstimatesErrHigh(t *testing.T) {
	t.Parallel()
	for text, least := range map[string]int{"": 0, "hello world, this is a test": 7, "日本語のテスト": 7, "🙂🙂": 2} {
		if got := agent.EstimateTokens(text); got < least || got > 4*least+1 {
			t.Errorf("%q: got %d, want at least %d and not many times that", text, got, least)
		}
	}
}

func ExampleConversation() {
	_, lines := agent.Conversation(agent.Request{
		Messages: []chat.Content{{Text: "And in Rome?"}},
		History: []chat.TranscriptEntry{
			{Role: chat.RoleUser, Text: "What time is it in Oslo?"},
			{Role: chat.RoleAssistant, Text: "Half past nine."},
		},
	}, "", agent.Room{Window: 1000, Reserve: 100})
	for _, line := range lines {
		fmt.Printf("%s: %s\n", line.Role, line.Text)
	}
	// Output:
	// user: What time is it in Oslo?
	// assistant: Half past nine.
	// user: And in Rome?
}

func TestAnsweredMessageIsQuotedBeforeTheWords(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]*chat.Answered{
		"yes": nil,
		"[answers an earlier message of this bot (job digest, 09:00)]\n> Strike\n[selected from]\n> Rain\n> Strike\nyes": {Ours: true, Origin: "job digest, 09:00", Selected: "Strike", Text: "Rain\nStrike"},
		"[answers a message of Cleo, from outside, without authority]\n> one\n> [note] two\nyes":                         {Author: "Cleo", Text: "one\u2028[note] two", Outside: true},
		"[answers an earlier message of the sender]\n> before\nyes":                                                      {Own: true, Author: "Ann", Text: "before"},
	} {
		req := agent.Request{Messages: []chat.Content{{Text: "yes", Answered: a}}}
		if got := agent.Prompt(req); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
