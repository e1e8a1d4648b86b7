package chat_test

import (
	"errors"
	"fmt"
	"math"
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

func TestTheAudienceOfATurnIsAtThePlaceOfItsAnswer(t *testing.T) {
	t.Parallel()
	const person = "telegram:666:7"
	at := func(channel, chatID, thread string) chat.Target {
		return chat.Target{Channel: channel, ChatID: chatID, Thread: thread}
	}
	for name, tt := range map[string]struct {
		principal, session, owner string
		to                        chat.Target
		conversation, readers     string // "" = private
	}{
		"private chat":                       {person, "telegram:direct:7", person, at("telegram:666", "7", ""), "", ""},
		"topic of a private chat":            {person, "telegram:direct:7:topic:3", person, at("telegram:666", "7", "3"), "", ""},
		"group":                              {person, "telegram:group:-5", person, at("telegram:666", "-5", ""), "telegram:group:-5", "everyone in this group (telegram -5)"},
		"topic":                              {person, "telegram:group:-5:topic:3", person, at("telegram:666", "-5", "3"), "telegram:group:-5:topic:3", "everyone in this group (telegram -5, topic 3)"},
		"group without an address":           {person, "telegram:group:-5", person, chat.Target{}, "telegram:group:-5", "everyone in this group"},
		"own web session":                    {"ann", "notes", "ann", chat.Target{}, "", ""},
		"new web session":                    {"ann", "notes", "", chat.Target{}, "", ""},
		"web session of another":             {"bob", "notes", "ann", chat.Target{}, "notes", "ann, who owns this session,"},
		"main":                               {"gateway", "main", "gateway", chat.Target{}, "", ""},
		"operator in a private chat":         {"gateway", "telegram:direct:7", person, chat.Target{}, "telegram:direct:7", "the person in the chat telegram 7"},
		"job for the own chat":               {person, "cron:j:at-1", person, at("telegram:666", "7", ""), "", ""},
		"job for a group":                    {person, "cron:j:at-1", person, at("telegram:666", "-5", "3"), "telegram:group:-5:topic:3", "everyone in this group"},
		"job of a group for itself":          {"telegram:666:-5", "cron:j:at-1", "telegram:666:-5", at("telegram:666", "-5", ""), "telegram:group:-5", "everyone in this group"},
		"job of an operator for a chat":      {"gateway", "cron:j:at-1", "gateway", at("telegram:666", "7", ""), "telegram:group:7", "everyone in this group"},
		"job that answers nowhere":           {"ann", "cron:j:at-1", "ann", chat.Target{}, "", ""},
		"job with a webhook":                 {"ann", "cron:j:at-1", "ann", at("webhook", "https://ann.example.org", ""), "", ""},
		"job for a web session of its owner": {"ann", "cron:j:at-1", "ann", at("web", "agent:main:notes", ""), "", ""},
		"completion":                         {"ann", "api:ann:phone", "ann", chat.Target{}, "", ""},
	} {
		key, err := chat.ParseSessionKey(tt.session, "main")
		if err != nil {
			t.Fatal(err)
		}
		got := chat.AudienceOf(tt.principal, chat.ConversationOf(key, tt.to, tt.principal), tt.owner)
		if got.Conversation.Rest != tt.conversation || got.Shared() != (tt.conversation != "") || !strings.HasPrefix(got.Readers, tt.readers) || got.Shared() != (got.Readers != "") {
			t.Errorf("%s: got %+v, want the readers of %q, %q", name, got, tt.conversation, tt.readers)
		}
	}
}

func TestANeedPassesWhoHasItOrMayOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		need   chat.Need
		passes map[string]bool
	}{
		{chat.Need{}, nil},
		{chat.Need{Owner: true}, nil},
		{chat.Need{Scope: "operator.root", Owner: true}, nil},
		{chat.Need{Scope: chat.ScopeRead, Owner: true}, map[string]bool{chat.ScopeRead: true, chat.ScopeWrite: true, chat.ScopeAdmin: true}},
		{chat.Need{Scope: chat.ScopeWrite}, map[string]bool{chat.ScopeWrite: true, chat.ScopeAdmin: true}},
		{chat.Need{Scope: chat.ScopeAdmin}, map[string]bool{chat.ScopeAdmin: true}},
		{chat.Need{Scope: chat.ScopeAdmin, Owner: true}, map[string]bool{chat.ScopeWrite: true, chat.ScopeAdmin: true}},
	} {
		for _, scope := range []string{"", "admin", "operator.root", chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin} {
			if got := c.need.Passes(scope); got != c.passes[scope] {
				t.Errorf("%+v passes %q: %t", c.need, scope, got)
			}
		}
	}
}

func TestASessionIsChangedByItsOwnerOrAnAdministrator(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		principal, scope, key, owner string
		absent, may                  bool
	}{
		{principal: "gateway", scope: chat.ScopeAdmin, key: "agent:main:main", owner: "write", may: true},
		{principal: "telegram:7", scope: chat.ScopeAdmin, key: "agent:main:telegram:group:-5", owner: "telegram:8", may: true},
		{principal: "write", scope: chat.ScopeWrite, key: "agent:main:main", owner: "write", may: true},
		{principal: "write", scope: chat.ScopeWrite, key: "agent:main:main", owner: "gateway"},
		{principal: "write", scope: chat.ScopeRead, key: "agent:main:main", owner: "write"},
		{principal: "write", scope: "", key: "agent:main:main", owner: "write"},
		{principal: "write", scope: chat.ScopeWrite, key: "agent:main:new", absent: true, may: true},
		{principal: "telegram:7", scope: chat.ScopeWrite, key: "agent:main:telegram:direct:7", owner: "telegram:7", may: true},
		{principal: "telegram:7", scope: chat.ScopeWrite, key: "agent:main:telegram:direct:7", absent: true, may: true},
		{principal: "telegram:7", scope: chat.ScopeWrite, key: "agent:main:telegram:group:-5", owner: "telegram:7"},
		{principal: "telegram:7", scope: chat.ScopeWrite, key: "agent:main:main", owner: "telegram:7"},
		{principal: "hook:ci", scope: chat.ScopeWrite, key: "agent:main:hook:ci", owner: "hook:ci"},
	} {
		key, err := chat.ParseSessionKey(c.key, "main")
		if err != nil {
			t.Fatal(err)
		}
		by := chat.Caller{Principal: c.principal, Scopes: []string{c.scope}}
		if got := by.MayChange(key, c.owner, !c.absent); got != c.may {
			t.Errorf("%s with %q on %s of %q: %t", c.principal, c.scope, c.key, c.owner, got)
		}
	}
}

func TestAKeySaysByItselfWhoseItIs(t *testing.T) {
	t.Parallel()
	const free, mine, made, none = chat.RightFree, chat.RightMine, chat.RightMade, chat.RightNone
	for _, tc := range []struct {
		rest, principal string
		want            chat.Right
	}{
		{"main", "ann", none},
		{"notes", "ann", free},
		{"web:direct:ann", "ann", free},
		{"hook", "ann", free},
		{"api", "ann", free},
		{"cron:nightly", "ann", made},
		{"mcp-ann", "ann", mine},
		{"mcp-ann", "an", none},
		{"mcp-ann", "telegram:7", none},
		{"mcp-ann-x", "ann", none},
		{"mcp-ann:x", "bob", free},
		{"mcp-", "ann", free},
		{"mcp", "ann", free},
		{"xmcp-ann", "bob", free},
		{"main:2", "ann", free},
		{"hooks:x", "ann", free},
		{"telegram:direct:7", "ann", none},
		{"telegram:group:-7:topic:3", "ann", none},
		{"telegram:direct:7", "telegram", none},
		{"telegram:direct:7", "telegram:7", mine},
		{"telegram:group:-7", "telegram:work:8", mine},
		{"box:direct:7", "ann", none},
		{"hook:deploy", "ann", none},
		{"hook:deploy", "hook:deploy", mine},
		{"hook:deploy", "hook:other", none},
		{"hook:deploy:x", "hook:deploy", none},
		{"api:ann:u", "ann", mine},
		{"api:ann:u", "an", none},
		{"api:ann", "ann", made},
		{"api:ann:u:v", "ann", mine},
		{"api::u", "ann", none},
		{"cron:j:manual-1", "ann", made},
	} {
		key := chat.SessionKey{Agent: "main", Rest: tc.rest}
		if got := key.RightOf(tc.principal); got != tc.want {
			t.Errorf("%s for %s: %d, want %d", key, tc.principal, got, tc.want)
		}
		usable := [3]bool{key.UsableBy(tc.principal, "", false), key.UsableBy(tc.principal, tc.principal, true), key.UsableBy(tc.principal, "otto", true)}
		want := map[chat.Right][3]bool{free: {true, true}, mine: {true, true}, made: {false, true}}[tc.want]
		if usable != want {
			t.Errorf("%s is usable by %s when absent, theirs, another's: %v, want %v", key, tc.principal, usable, want)
		}
	}
}

func TestARunIsShownByTheKeyThatNamedIt(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, principal := range []string{"gateway", "write", "anna", "otto", "schedule"} {
		for _, key := range []string{"k", "0b6c1f7e-90a1-4c55-8a0e-1f2d3c4b5a69", "gateway"} {
			id := chat.RunIDOf(principal, key)
			if shown := chat.ShownRunID(id); shown != key || seen[id] {
				t.Errorf("%s of %s is %s, which is shown as %s", key, principal, id, shown)
			}
			seen[id] = true
		}
		if id := chat.RunIDOf(principal, ""); id != "" {
			t.Errorf("no key of %s is %q", principal, id)
		}
	}
	for _, id := range []string{"", "0b6c1f7e", "schedule:job:1803974400000", "manual:a:1", ":::"} {
		if shown := chat.ShownRunID(id); shown != id {
			t.Errorf("%q is shown as %q", id, shown)
		}
	}
}

func TestUsageIsClamped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ reported, want chat.Usage }{
		"Plausible": {chat.Usage{InputTokens: 7, OutputTokens: 3, CachedTokens: 2, Model: "m"}, chat.Usage{InputTokens: 7, OutputTokens: 3, CachedTokens: 2, Model: "m"}},
		"Absurd":    {chat.Usage{InputTokens: 1 << 62, OutputTokens: math.MaxInt, CachedTokens: 1 << 62}, chat.Usage{InputTokens: 1e9, OutputTokens: 1e9, CachedTokens: 1e9}},
		"Negative":  {chat.Usage{InputTokens: -1, OutputTokens: math.MinInt, CachedTokens: -7}, chat.Usage{}},
		"Cached":    {chat.Usage{InputTokens: 5, CachedTokens: 9}, chat.Usage{InputTokens: 5, CachedTokens: 5}},
	} {
		if got := tt.reported.Clamped(); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
	if got := chat.Tokens(1<<62, 1<<62, -5); got != chat.MaxTokens {
		t.Errorf("a sum of absurd counts: got %d, want %d", got, chat.MaxTokens)
	}
}

func TestSumsOfUsageSaturate(t *testing.T) {
	t.Parallel()
	sum := chat.Usage{InputTokens: math.MaxInt - 1, Model: "a", Provider: "p"}
	sum.Add(chat.Usage{InputTokens: 1e9, OutputTokens: 3})
	if want := (chat.Usage{InputTokens: math.MaxInt, OutputTokens: 3, Model: "a", Provider: "p"}); sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}

// A character that cannot be seen is a part of a name only where a grapheme needs it: otherwise two
// names that look alike would be different.
func TestNamesHaveNoInvisibleCharacters(t *testing.T) {
	t.Parallel()
	tags := strings.Repeat("\U000e0061", 40)
	for in, want := range map[string]string{
		"anna": "anna", "Änna Ünal": "Änna Ünal", "安娜": "安娜", "😀": "😀",
		"an\u200bna": "anna", "an\u200dna": "anna", "ан\u200cна": "анна", "\u200danna\u200d": "anna", "anna\ufe0f": "anna", "a\u00adnna": "anna", "\u2060anna\ufeff": "anna",
		"an\u3164na": "anna", "\u2800": "", "\u115f\u1160\uffa0anna\u034f": "anna", "anna\U000e0061\U000e007f": "anna", "\u202eanna": "anna",
		"👩\u200d👩\u200d👧":     "👩\u200d👩\u200d👧",
		"👩🏽\u200d🚀":           "👩🏽\u200d🚀",
		"❤\ufe0f\u200d🔥":      "❤\ufe0f\u200d🔥",
		"1\ufe0f\u20e3":       "1\ufe0f\u20e3",
		"👩\u200danna":         "👩anna",
		"می\u200cخواهم":       "می\u200cخواهم",
		"क्\u200dष":           "क्\u200dष",
		"می\u200c":            "می",
		"می\u200c\u200cخواهم": "می\u200cخواهم",
		"🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
		"🏴" + tags: "🏴" + tags[:7*len("\U000e0061")],
		"😀" + tags: "😀",
	} {
		if got := chat.Name(in); got != want {
			t.Errorf("%+q becomes %+q, want %+q", in, got, want)
		}
	}
	if _, err := chat.ParseSessionKey("agent:main:vic\u200btim", "main"); err == nil {
		t.Error("the key of a session may look like another one")
	}
}
