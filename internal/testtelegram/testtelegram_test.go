package testtelegram_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/testtelegram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type answer struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Description string          `json:"description"`
	Parameters  map[string]any  `json:"parameters"`
	status      int
}

// call makes one call as a client does, with name and value pairs.
func call(t *testing.T, rt http.RoundTripper, base, method string, pairs ...string) (answer, error) {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/"+method, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode}
	return a, json.Unmarshal(body, &a)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	srv := testtelegram.New(testtelegram.Config{})
	srv.AddPrivate(7, "Anna")
	srv.AddPrivate(8, "Bob")
	srv.Block(8)
	srv.AddGroup(-1, "old", 10)
	srv.AddGroup(-3, "forum", 10)
	srv.Migrate(-1, -2)
	base := "http://fake/bot" + srv.Token()
	long := strings.Repeat("x", 4097)
	for _, c := range []struct {
		want  int
		says  string
		pairs []string
	}{
		{200, "", []string{"chat_id", "7", "text", "hello"}},
		{200, "", []string{"chat_id", "7", "text", "<b>" + long[:4096] + "</b>", "parse_mode", "HTML"}},
		{200, "", []string{"chat_id", "-3", "text", "x", "message_thread_id", "10"}},
		{400, "too long", []string{"chat_id", "7", "text", long}},
		{400, "too long", []string{"chat_id", "7", "text", strings.Repeat("😀", 2049)}},
		{400, "text is empty", []string{"chat_id", "7", "text", " \n"}},
		{400, "can't parse entities", []string{"chat_id", "7", "text", "<b>x", "parse_mode", "HTML"}},
		{400, "can't parse entities", []string{"chat_id", "7", "text", "<b>x</i>", "parse_mode", "HTML"}},
		{400, "can't parse entities", []string{"chat_id", "7", "text", "1 < 2", "parse_mode", "HTML"}},
		{400, "can't parse entities", []string{"chat_id", "7", "text", "<div>x</div>", "parse_mode", "HTML"}},
		{400, "chat not found", []string{"chat_id", "9", "text", "x"}},
		{403, "blocked", []string{"chat_id", "8", "text", "x"}},
		{400, "upgraded", []string{"chat_id", "-1", "text", "x"}},
		{400, "thread not found", []string{"chat_id", "-3", "text", "x", "message_thread_id", "1"}},
	} {
		a, err := call(t, srv.Transport(), base, "sendMessage", c.pairs...)
		if err != nil || a.status != c.want || !strings.Contains(a.Description, c.says) || a.OK != (c.want == 200) {
			t.Errorf("%v: %d %q, %v", c.pairs, a.status, a.Description, err)
		}
	}
	for token, want := range map[string]int{"http://fake/bot1:wrong": 401, "http://fake/other": 404} {
		if a, err := call(t, srv.Transport(), token, "getMe"); err != nil || a.status != want {
			t.Errorf("%s: %d, %v", token, a.status, err)
		}
	}
	if v := srv.Violations(); len(v) != 0 {
		t.Errorf("violations: %q", v)
	}
	for _, bad := range [][]string{
		{"noSuchMethod"},
		{"sendMessage", "chat_id", "7", "text", "x", "disable_web_page_preview", "1"},
		{"sendMessage", "chat_id", "7", "text", "<code><b>x</b></code>", "parse_mode", "HTML"},
	} {
		before := len(srv.Violations())
		if _, err := call(t, srv.Transport(), base, bad[0], bad[1:]...); err != nil {
			t.Error(err)
		}
		if len(srv.Violations()) != before+1 {
			t.Errorf("%v is no violation", bad)
		}
	}
}

// formPart is a part of a form whose boundary is x.
func formPart(header, content string) string {
	return "--x\r\nContent-Disposition: form-data; " + header + "\r\n\r\n" + content + "\r\n"
}

// upload is one form and its expected result.
type upload struct {
	method, form string
	status       int
	shown        string
	violations   int
}

// TestUploads checks that forms are read as Telegram reads them, and that every other body is
// refused or a violation.
func TestUploads(t *testing.T) {
	t.Parallel()
	chat := formPart(`name="chat_id"`, "7")
	for name, tt := range map[string]upload{
		"ADocument":          {"sendDocument", chat + formPart(`name="document"; filename="ä b.txt"`, "content"), 200, "ä b.txt: content", 0},
		"APhoto":             {"sendPhoto", chat + formPart(`name=photo; filename=a.png`, "\x89PNG\r\n\x1a\n"), 200, "a.png: \x89PNG\r\n\x1a\n", 0},
		"QuotesHoldNothing":  {"sendDocument", chat + formPart(`name="document"; filename="a;b"`, "content"), 200, `"a: content`, 0},
		"AnEncodedName":      {"sendDocument", chat + formPart(`name="document"; filename*=utf-8''a.txt`, "content"), 400, "", 1},
		"AnotherField":       {"sendDocument", chat + formPart(`name="photo"; filename="a.txt"`, "content"), 400, "", 0},
		"NoFile":             {"sendDocument", chat, 400, "", 0},
		"TwoFiles":           {"sendDocument", chat + formPart(`name="document"; filename="a"`, "a") + formPart(`name="document"; filename="b"`, "b"), 400, "", 0},
		"AnEmptyFile":        {"sendDocument", chat + formPart(`name="document"; filename="a"`, ""), 400, "", 0},
		"NoPicture":          {"sendPhoto", chat + formPart(`name="photo"; filename="a.png"`, "content"), 400, "", 0},
		"AnUnknownParameter": {"sendDocument", chat + formPart(`name="colour"`, "red") + formPart(`name="document"; filename="a"`, "content"), 200, "a: content", 1},
		"NoMethodForFiles":   {"sendChatAction", chat + formPart(`name="action"`, "typing") + formPart(`name="document"; filename="a"`, "content"), 200, "", 1},
		"NoEnd":              {"sendDocument", chat + "--x\r\nContent-Disposition: form-data; name=\"document\"; filename=\"a\"\r\n\r\ncontent", 400, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.check(t, name != "NoEnd")
		})
	}
}

// check sends the form, with or without its end.
func (tt upload) check(t *testing.T, whole bool) {
	t.Helper()
	srv := testtelegram.New(testtelegram.Config{})
	srv.AddPrivate(7, "Anna")
	body := tt.form
	if whole {
		body += "--x--\r\n"
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://fake/bot"+srv.Token()+"/"+tt.method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	resp, err := srv.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	shown := ""
	if list := srv.Messages(7); len(list) > 0 {
		shown = list[0].File.Name + ": " + string(list[0].File.Content)
	}
	if resp.StatusCode != tt.status || shown != tt.shown || len(srv.Violations()) != tt.violations {
		t.Errorf("status %d, shown %q, violations %q; want %d, %q, %d", resp.StatusCode, shown, srv.Violations(), tt.status, tt.shown, tt.violations)
	}
}

func TestALeakedTokenIsFoundWhereverItIsCut(t *testing.T) {
	t.Parallel()
	token := testtelegram.New(testtelegram.Config{}).Token()
	if !strings.Contains(token, testtelegram.Marker) {
		t.Fatalf("the token of the tests, %q, has no marker", token)
	}
	for cut := range len(token) {
		var l testtelegram.Leak
		var b strings.Builder
		w := l.Through("the log", &b)
		fmt.Fprint(w, "some words ", token[:cut])
		fmt.Fprint(w, token[cut:], " more words")
		if err := l.Verdict(); err == nil || !strings.Contains(err.Error(), "the log") {
			t.Errorf("cut at %d: %v", cut, err)
		}
		if b.String() != "some words "+token+" more words" {
			t.Errorf("passed on was %q", b.String())
		}
	}
	var l testtelegram.Leak
	if l.Verdict() == nil {
		t.Error("a search that saw nothing is content")
	}
	fmt.Fprint(l.Through("x", io.Discard), "123456789:", strings.ToLower(testtelegram.Marker))
	if err := l.Verdict(); err != nil {
		t.Error(err)
	}
}

func TestTheStreamsOfTheProcessAreSearched(t *testing.T) { //nolint:paralleltest // the streams belong to the process
	var l testtelegram.Leak
	restore, err := l.Streams()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, "this line of the test has a part of a token:", testtelegram.Marker)
	restore()
	if err := l.Verdict(); err == nil || !strings.Contains(err.Error(), "standard error") {
		t.Errorf("verdict %v", err)
	}
}
