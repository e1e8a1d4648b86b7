package testtelegram_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

func TestEdits(t *testing.T) {
	t.Parallel()
	srv := testtelegram.New(testtelegram.Config{})
	srv.AddPrivate(7, "Anna")
	base := "http://fake/bot" + srv.Token()
	if _, err := call(t, srv.Transport(), base, "sendMessage", "chat_id", "7", "text", "one"); err != nil {
		t.Fatal(err)
	}
	id := "1"
	for _, c := range []struct{ id, text, says string }{{id, "one", "not modified"}, {"99", "two", "not found"}, {id, "two", ""}} {
		a, err := call(t, srv.Transport(), base, "editMessageText", "chat_id", "7", "message_id", c.id, "text", c.text)
		if err != nil || !strings.Contains(a.Description, c.says) || a.OK != (c.says == "") {
			t.Errorf("%+v: %+v, %v", c, a, err)
		}
	}
	if got := srv.Messages(7); len(got) != 1 || got[0].Text != "two" || !slices.Equal(got[0].Edits, []string{"one"}) {
		t.Errorf("got %+v", got)
	}
}

func TestLongPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := testtelegram.New(testtelegram.Config{})
		srv.AddPrivate(7, "Anna")
		base := "http://fake/bot" + srv.Token()
		began := time.Now()
		if a, err := call(t, srv.Transport(), base, "getUpdates", "timeout", "30"); err != nil || string(a.Result) != "[]" || time.Since(began) != 30*time.Second {
			t.Errorf("an empty poll: %s after %s, %v", a.Result, time.Since(began), err)
		}
		answers := make(chan answer, 2)
		poll := func() {
			a, err := call(t, srv.Transport(), base, "getUpdates", "timeout", "30")
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}
		go poll()
		synctest.Wait()
		go poll() // ends the first one
		if a := <-answers; a.status != 409 {
			t.Errorf("the older poll got %d", a.status)
		}
		first := srv.Say(7, 7, "hello")
		if a := <-answers; !strings.Contains(string(a.Result), "hello") {
			t.Errorf("the newer poll got %s", a.Result)
		}
		srv.Say(7, 7, "again")
		a, err := call(t, srv.Transport(), base, "getUpdates")
		if err != nil || !strings.Contains(string(a.Result), "hello") || len(srv.Confirmed()) != 0 {
			t.Errorf("without an offset nothing is confirmed: %s, %v", a.Result, err)
		}
		a, err = call(t, srv.Transport(), base, "getUpdates", "offset", "1001")
		if err != nil || strings.Contains(string(a.Result), "hello") || !slices.Equal(srv.Confirmed(), []int{first}) {
			t.Errorf("with an offset: %s, confirmed %v, %v", a.Result, srv.Confirmed(), err)
		}
		if _, err := call(t, srv.Transport(), base, "setWebhook", "url", "https://example.org"); err != nil {
			t.Fatal(err)
		}
		if a, err := call(t, srv.Transport(), base, "getUpdates"); err != nil || a.status != 409 {
			t.Errorf("with a webhook: %d, %v", a.status, err)
		}
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := testtelegram.New(testtelegram.Config{})
		srv.AddPrivate(7, "Anna")
		base := "http://fake/bot" + srv.Token()
		send := func() (answer, error) {
			return call(t, srv.Transport(), base, "sendMessage", "chat_id", "7", "text", "hello")
		}
		for name, f := range map[string]testtelegram.Fault{"garbage": {Garbage: true}, "cut": {Cut: true}, "html": {HTML: 502}, "reset": {Reset: true}, "huge": {Huge: 1 << 20}} {
			srv.Break("sendMessage", f)
			if _, err := send(); err == nil {
				t.Errorf("%s did not show", name)
			}
		}
		srv.Break("sendMessage", testtelegram.Flood(3))
		if a, err := send(); err != nil || a.status != 429 || a.Parameters["retry_after"] != 3.0 {
			t.Errorf("flood: %+v, %v", a, err)
		}
		typing := func() error {
			_, err := call(t, srv.Transport(), base, "sendChatAction", "chat_id", "7", "action", "typing")
			return err
		}
		if err := typing(); err != nil || len(srv.Violations()) != 0 {
			t.Errorf("a call beside the refused one: %v, %q", err, srv.Violations())
		}
		if _, err := send(); err != nil || len(srv.Violations()) != 1 {
			t.Errorf("a call inside of the window is no violation: %v", err)
		}
		time.Sleep(101 * time.Millisecond)
		if err := typing(); err != nil || len(srv.Violations()) != 2 {
			t.Errorf("a call of another method inside of the window is no violation: %v", err)
		}
		if n := len(srv.Messages(7)); n != 1 {
			t.Errorf("%d messages arrived", n)
		}
		srv.Break("sendMessage", testtelegram.Fault{Reset: true, After: true})
		if _, err := send(); err == nil || len(srv.Messages(7)) != 2 {
			t.Errorf("a lost answer: %v, %d messages", err, len(srv.Messages(7)))
		}
		srv.Break("sendMessage", testtelegram.Fault{Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/sendMessage", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := srv.Transport().RoundTrip(r); err == nil {
			_ = resp.Body.Close()
			t.Error("it did not hang")
		}
	})
}

// TestOverSockets: the same server with a real listener.
func TestOverSockets(t *testing.T) {
	t.Parallel()
	srv := testtelegram.New(testtelegram.Config{})
	srv.AddPrivate(7, "Anna")
	srv.AddFile("f", []byte("content"))
	ts := httptest.NewServer(srv)
	defer ts.Close()
	rt := ts.Client().Transport
	if a, err := call(t, rt, ts.URL+"/bot"+srv.Token(), "getMe"); err != nil || !a.OK {
		t.Errorf("getMe: %+v, %v", a, err)
	}
	srv.Break("getMe", testtelegram.Fault{Cut: true}, testtelegram.Fault{Reset: true})
	for range 2 {
		if _, err := call(t, rt, ts.URL+"/bot"+srv.Token(), "getMe"); err == nil {
			t.Error("the fault did not show")
		}
	}
	resp, err := ts.Client().Get(ts.URL + "/file/bot" + srv.Token() + "/files/f")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "content" {
		t.Errorf("the file holds %q, %v", body, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		_, _ = call(t, rt, ts.URL+"/bot"+srv.Token(), "sendMessage", "chat_id", "7", "text", "hi")
	}()
	if err := srv.Await(ctx, func() bool { return len(srv.Messages(7)) == 1 }); err != nil {
		t.Error(err)
	}
	rt.(*http.Transport).CloseIdleConnections()
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

func TestLargeUploads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	chat := formPart(`name="chat_id"`, "7")
	for name, tt := range map[string]upload{
		"TooLargeForAPhoto": {"sendPhoto", chat + formPart(`name="photo"; filename="a.png"`, "\x89PNG\r\n\x1a\n"+strings.Repeat("x", testtelegram.MaxPhoto)), 400, "", 0},
		"TooLarge":          {"sendDocument", chat + formPart(`name="document"; filename="a"`, strings.Repeat("x", testtelegram.MaxUpload+1)), 413, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.check(t, true)
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
