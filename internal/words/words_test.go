package words_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"laneway/internal/words"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, text string) words.Query {
	t.Helper()
	q, err := words.Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return q
}

func TestAQueryFindsTextsOfAnyLanguage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		query, text string
		want        bool
	}{
		{"invoice", "Two INVOICES came today.", true},
		{"invoices", "One invoice came today.", false},
		{"came invoice", "One invoice came today.", true},
		{"invoice yesterday", "One invoice came today.", false},
		{"do", "I do.", true},
		{"do", "The dog.", false}, // a word of one or two letters finds itself only
		{"cafe", "Im Café am Platz", true},
		{"CAFÉ", "cafe", true},
		{"strasse", "Hauptstraße 7", false}, // words are found by their beginning
		{"hauptstrasse", "Hauptstraße 7", true},
		{"Øl", "et OL", true},
		{"привет", "Привет, как дела?", true},
		{"ёлка", "елка", true},
		{"θάλασσα", "ΘΑΛΑΣΣΑ", true},
		{"京都", "明日東京都に行きます", true},
		{"猫", "私は猫が好き", true},
		{"猫", "これは猫", true},
		{"犬", "私は猫が好き", false},
		{"สวัสดี", "กล่าวสวัสดีครับ", true},
		{"한국", "한국어로 말해요", true},
		{"GPT", "使用GPT模型", true},
		{"模型", "使用GPT模型", true},
		{"full width", "Ｆｕｌｌ Ｗｉｄｔｈ", true},
		{"order-4711", "Order 4711 is late", true},
		{"laneway/internal", "see laneway/internal/store", true},
		{"\u0915\u094d\u092f\u093e", "\u0915\u094d\u092f\u093e \u0939\u0948", true},
	} {
		if got := parse(t, tt.query).Finds(tt.text); got != tt.want {
			t.Errorf("%q finds %q: %v, want %v", tt.query, tt.text, got, tt.want)
		}
	}
}

func TestATextWithoutWordsIsNoQuery(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "?!", "* -", "\xff\xfe", "\x00"} {
		if _, err := words.Parse(text); err == nil {
			t.Errorf("%q is a query", text)
		}
	}
	many := make([]string, words.MaxTerms+1)
	for i := range many {
		many[i] = fmt.Sprintf("word%d", i)
	}
	if _, err := words.Parse(strings.Join(many, " ")); err == nil {
		t.Errorf("%d words are a query", len(many))
	}
	if _, err := words.Parse(strings.Join(many[1:], " ")); err != nil {
		t.Errorf("%d words are no query: %v", len(many)-1, err)
	}
}

// indexFinds reports whether a query finds a document by its index, as a store does.
func indexFinds(q words.Query, text string) bool {
	index := words.Index(text)
	for _, term := range q.Terms() {
		if !slices.ContainsFunc(index, func(w string) bool { return w == term.Word || term.Begins && strings.HasPrefix(w, term.Word) }) {
			return false
		}
	}
	return true
}

func TestTheIndexFindsWhatTheTextHas(t *testing.T) {
	t.Parallel()
	alphabet := []rune("abcAÉßøл猫京都อ가\u0301\u094d ,.-_\x00½ﬁ7٣")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom(alphabet)).Draw(t, "text")
		q, err := words.Parse(rapid.StringOfN(rapid.SampledFrom(alphabet), 1, 6, -1).Draw(t, "query"))
		if err != nil {
			return
		}
		if indexFinds(q, text) != q.Finds(text) {
			t.Fatalf("the index says %v", indexFinds(q, text))
		}
		for _, word := range words.Index(text) {
			if word == "" || len(word) > 64 || !utf8.ValidString(word) || strings.ContainsAny(word, " \x00'\"\\:") {
				t.Fatalf("the word %q", word)
			}
		}
	})
}

func TestOnlyTheBeginningOfAVeryLongTextIsIndexed(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&text, "word%05d ", i)
	}
	size := 0
	for _, w := range words.Index(text.String()) {
		size += len(w)
	}
	if size > 128<<10 || size < 127<<10 {
		t.Errorf("the index has %d bytes", size)
	}
	for query, want := range map[string]bool{"word00000": true, "word14000": true, "word39999": false} {
		q := parse(t, query)
		if q.Finds(text.String()) != want || indexFinds(q, text.String()) != want {
			t.Errorf("%s is found: %v in the text, %v in the index; want %v", query, q.Finds(text.String()), indexFinds(q, text.String()), want)
		}
	}
	if !parse(t, strings.Repeat("x", 100)).Finds(strings.Repeat("X", 90)) {
		t.Error("more than the first 64 bytes of a word count")
	}
}

func TestAnExcerptShowsThePlace(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("before ", 50) + "the Café\nis here " + strings.Repeat("after ", 50)
	got := parse(t, "cafe").Excerpt(long, 40)
	if !strings.HasPrefix(got, "…") || !strings.HasSuffix(got, "…") || !strings.Contains(got, "the Café is here") || utf8.RuneCountInString(got) > 42 {
		t.Errorf("the excerpt is %q", got)
	}
	if got := parse(t, "猫").Excerpt("私は猫が好き", 40); got != "私は猫が好き" {
		t.Errorf("the excerpt of a short text is %q", got)
	}
}

func TestMisspeltNamesAreSuggested(t *testing.T) {
	t.Parallel()
	names := []string{"main", "cron", "coder", "digest", "agent:main:main"}
	for given, want := range map[string]string{
		"mian": "main", "Main": "main", "corn": "cron", "codr": "coder", "digets": "digest", "dgst": "", "anna": "", "": "",
		"digest2": "digest", "degist": "digest", "agent:mian:mian": "agent:main:main",
	} {
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got := words.Meant(given, names); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}
