package chat_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"laneway/internal/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ExampleParseSessionKey() {
	for _, text := range []string{"main", "agent:coder:telegram:group:-100:topic:7"} {
		key, err := chat.ParseSessionKey(text, "main")
		fmt.Println(key, key.Agent, key.Kind(), key.Channel(), err)
	}
	// Output:
	// agent:main:main main direct  <nil>
	// agent:coder:telegram:group:-100:topic:7 coder group telegram <nil>
}

func TestSessionKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "blank": "  ", "agent without name": "agent:main", "agent with nothing behind": "agent:main:", "bad agent": "agent:Main:x",
		"agent id too long": "agent:" + strings.Repeat("a", 65) + ":x", "too long": strings.Repeat("x", chat.MaxSessionKey), "newline": "a\nb",
		"nul": "a\x00b", "not utf-8": "a\xff", "right to left": "a\u202eb", "zero width mark": "a\u200fb",
	} {
		if key, err := chat.ParseSessionKey(text, "main"); !errors.Is(err, chat.ErrSessionKey) {
			t.Errorf("%s: %q was taken as %v, %v", name, text, key, err)
		}
	}
}

func FuzzParseSessionKey(f *testing.F) {
	for _, seed := range []string{"main", "agent:main:main", "agent:a:b:direct:c", "agent::x", "agent:main:agent:other:x", "ä", "a\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := chat.ParseSessionKey(text, "main")
		if err != nil {
			return
		}
		again, err := chat.ParseSessionKey(key.String(), "other")
		if err != nil || again != key {
			t.Errorf("%q became %v, and its text %v, %v", text, key, again, err)
		}
		if !chat.ValidAgentID(key.Agent) || utf8.RuneCountInString(key.String()) > chat.MaxSessionKey {
			t.Errorf("%q was taken as %v", text, key)
		}
	})
}

func TestErrorsAreEqualByCode(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("accepting: %w", &chat.Error{Code: chat.CodeQueueFull, Message: "too many", Cause: errors.New("secret")})
	if !errors.Is(err, chat.ErrQueueFull) || errors.Is(err, chat.ErrDraining) {
		t.Error("a wrapped error is not compared by its code")
	}
	for want, err := range map[chat.Code]error{"": nil, chat.CodeQueueFull: err, chat.CodeInternal: errors.New("defect")} {
		if got := chat.CodeOf(err); got != want {
			t.Errorf("code of %v is %q, want %q", err, got, want)
		}
	}
}

func TestTextsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"empty": "", "blank": " \t\n", "nul": "a\x00b", "not utf-8": "\xc3\x28", "long": strings.Repeat("ä", 6)} {
		if err := chat.CheckText("message", text, 10); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := chat.CheckText("message", strings.Repeat("ä", 5), 10); err != nil {
		t.Errorf("text of exactly the limit: %v", err)
	}
	for name, id := range map[string]string{"empty": "", "blank": "a b", "long": strings.Repeat("x", 129), "not ascii": "ü", "control": "a\n"} {
		if err := chat.CheckMessageID("id", id); err == nil {
			t.Errorf("id %s was taken", name)
		}
	}
}

func TestCutAndCleanKeepCharactersWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, n := rapid.String().Draw(t, "text"), rapid.IntRange(0, 40).Draw(t, "n")
		cut := chat.Cut(text, n)
		if len(cut) > n || !strings.HasPrefix(text, cut) || utf8.ValidString(text) && !utf8.ValidString(cut) {
			t.Fatalf("Cut(%q, %d) = %q", text, n, cut)
		}
		if len(text) > n && len(cut) < n-3 {
			t.Fatalf("Cut(%q, %d) = %q cuts more than a character", text, n, cut)
		}
		raw := string(rapid.SliceOf(rapid.Byte()).Draw(t, "raw"))
		clean := chat.CleanText(raw)
		if !utf8.ValidString(clean) || strings.ContainsRune(clean, 0) {
			t.Fatalf("CleanText(%q) = %q", raw, clean)
		}
	})
}

func TestForeignTextIsShownWithEscapes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                         "",
		"grüße, 日本 👩\u200d👧":       "grüße, 日本 👩\u200d👧",
		"a\x1b[2Jb":                `a\u001b[2Jb`,
		"a\u202eb\u2069":           `a\u202eb\u2069`,
		"a\nb\tc\rd":               "a\nb\tc" + `\u000dd`,
		"\ufeff\u2028\u0085\u007f": `\ufeff\u2028\u0085\u007f`,
	} {
		if got := chat.Escaped(text, "\n\t"); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestATargetHasTheAccountOfItsPerson(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key, principal string
		want           chat.Target
	}{
		{"agent:main:telegram:direct:7", "telegram:666:7", chat.Target{Channel: "telegram:666", ChatID: "7"}},
		{"agent:main:telegram:group:-5:topic:3", "telegram:666:7", chat.Target{Channel: "telegram:666", ChatID: "-5", Thread: "3"}},
		{"agent:main:telegram:direct:7", "telegram:7", chat.Target{Channel: "telegram", ChatID: "7"}},
		{"agent:main:telegram:direct:7", "gateway", chat.Target{Channel: "telegram", ChatID: "7"}},
		{"agent:main:telegram:direct:7", "matrix:x:7", chat.Target{Channel: "telegram", ChatID: "7"}},
		{"agent:main:main", "telegram:666:7", chat.Target{}},
	} {
		key, err := chat.ParseSessionKey(tt.key, "main")
		if err != nil {
			t.Fatal(err)
		}
		if got := key.TargetFor(tt.principal); got != tt.want {
			t.Errorf("%s for %s: got %+v, want %+v", tt.key, tt.principal, got, tt.want)
		}
	}
}

func TestAnsweredTextIsCutAtWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("wörter ", 400)
	a := (&chat.Answered{Selected: long, Text: "more"}).Bound()
	if n := utf8.RuneCountInString(a.Selected); n > 2000 || n < 1990 || !strings.HasSuffix(a.Selected, "wörter…") || n+len(a.Text) > 2000 {
		t.Errorf("%d characters, and %q", n, a.Text)
	}
	a = (&chat.Answered{Selected: "this", Text: long}).Bound()
	if n := utf8.RuneCountInString(a.Selected + a.Text); n > 2000 || n < 1990 {
		t.Errorf("%d characters", n)
	}
	if a = (&chat.Answered{Selected: "same", Text: " same\n"}).Bound(); a.Text != "" {
		t.Errorf("the text is repeated: %+v", a)
	}
}
