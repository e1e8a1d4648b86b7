package external_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"laneway/internal/secret"
	"laneway/internal/testrun"
	"laneway/internal/tool/external"
)

// hugeSize is the size of the answers of the tools huge and stream.
const hugeSize = 50 << 20

// address is a server with an address. Its tool huge announces the length of its answer, stream does not.
type address struct {
	*httptest.Server

	server *mcp.Server
	sdk    http.Handler
	taken  atomic.Int64  // bytes of the last huge answer that were written
	ended  chan struct{} // the huge answer has ended
}

func openAddress(t *testing.T) *address {
	t.Helper()
	a := &address{server: mcp.NewServer(&mcp.Implementation{Name: "http", Version: "1"}, nil), ended: make(chan struct{}, 2)}
	for _, name := range []string{"echo", "huge", "stream"} {
		a.server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	}
	a.sdk = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return a.server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// ServeHTTP writes the huge answers itself: the SDK would need seconds for them under the race detector.
func (a *address) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Authorization") != "Bearer key" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &m) == nil && (m.Params.Name == "huge" || m.Params.Name == "stream") {
		a.huge(w, m.ID, m.Params.Name == "huge")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	a.sdk.ServeHTTP(w, r)
}

func (a *address) huge(w http.ResponseWriter, id json.RawMessage, announced bool) {
	defer func() { a.ended <- struct{}{} }()
	begin, end := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, id), `"}]}}`
	w.Header().Set("Content-Type", "application/json")
	if announced {
		w.Header().Set("Content-Length", strconv.Itoa(len(begin)+hugeSize+len(end)))
	}
	a.taken.Store(0)
	_, err := io.WriteString(w, begin)
	for piece := strings.Repeat("x", 64<<10); err == nil && a.taken.Load() < hugeSize; a.taken.Add(int64(len(piece))) {
		_, err = io.WriteString(w, piece)
	}
	_, _ = io.WriteString(w, end)
}

// TestAnAddressIsAServer also checks that the rest of an answer over the limit is not read: the server cannot write it.
func TestAnAddressIsAServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	web := openAddress(t)
	cfg := external.Config{
		URL: web.URL, Token: secret.New("key"), Tools: []string{"echo", "huge", "stream"}, CallTime: external.MaxCallTime, Relist: 100 * time.Millisecond,
	}
	set := open(t, cfg)
	connected(t, set)
	if got := call(t, set, "fake_echo", `{"a":1}`); got.IsError || got.Text != `{"a":1}` {
		t.Errorf("got %+v", got)
	}
	for _, name := range []string{"huge", "stream"} {
		if got := call(t, set, "fake_"+name, `{}`); !got.IsError || !strings.Contains(got.Text, "failed on this call") {
			t.Errorf("%s: %.200v", name, got)
		}
		<-web.ended
		if taken := web.taken.Load(); taken > hugeSize/2 {
			t.Errorf("%s: %d MB were taken", name, taken>>20)
		} else {
			t.Logf("%s: %d KB were taken", name, taken>>10)
		}
		testrun.Eventually(t, "the server is used again", func() bool { return !call(t, set, "fake_echo", `{}`).IsError })
	}
	web.server.RemoveTools("huge", "stream")
	testrun.Eventually(t, "the list is read again", func() bool { return cmp.Equal(set.Status()[0].Tools, []string{"fake_echo"}) })
	web.CloseClientConnections()
	web.Close()
	testrun.Eventually(t, "the end of the server is known", func() bool { return set.Status()[0].State == external.StateFailed })
	if last := set.Status()[0].LastError; last == "" || strings.Contains(last, web.URL) {
		t.Errorf("the last error is %q", last)
	}
}

// TestAnAddressThatIsGoneIsAFailure makes a call before the end of the server is noticed: the call is not refused by a server, it cannot be sent.
func TestAnAddressThatIsGoneIsAFailure(t *testing.T) {
	t.Parallel()
	web := openAddress(t)
	set := open(t, external.Config{URL: web.URL, Token: secret.New("key"), Tools: []string{"echo"}, Relist: time.Hour})
	connected(t, set)
	web.CloseClientConnections()
	web.Close()
	if got := call(t, set, "fake_echo", `{}`); !got.IsError || !strings.Contains(got.Text, "failed on this call") {
		t.Errorf("got %+v", got)
	}
	testrun.Eventually(t, "the end of the server is known", func() bool { return set.Status()[0].State == external.StateFailed })
}

// forgetful is a server with sessions, which it forgets on demand. Its tools now (read-only) and book count their calls.
type forgetful struct {
	form func(w http.ResponseWriter, id string) // answers a request of a forgotten session
	late bool                                   // it forgets after the call instead of before it

	mu       sync.Mutex
	sessions int
	live     string
	calls    map[string]int
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	reply := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	if m.Method == "initialize" {
		f.sessions++
		f.live = "s" + strconv.Itoa(f.sessions)
		w.Header().Set("Mcp-Session-Id", f.live)
		reply(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}`)
		return
	}
	known := r.Header.Get("Mcp-Session-Id") == f.live
	if m.Method == "tools/call" && (known || f.late) {
		f.calls[m.Params.Name]++
	}
	switch {
	case !known:
		f.form(w, string(m.ID))
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "tools/list":
		reply(`{"tools":[{"name":"now","inputSchema":{"type":"object"}},{"name":"book","inputSchema":{"type":"object"}}]}`)
	case m.Method == "tools/call":
		reply(`{"content":[{"type":"text","text":"14:00 dentist"}]}`)
	default:
		reply(`{}`)
	}
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = ""
}

func (f *forgetful) called(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

// openForgetful runs a set of a forgetful server.
func openForgetful(t *testing.T, f *forgetful) *external.Set {
	t.Helper()
	f.calls = map[string]int{}
	web := httptest.NewServer(f)
	t.Cleanup(web.Close)
	set := open(t, external.Config{URL: web.URL, Tools: []string{"now", "book"}, ReadOnly: []string{"now"}, Relist: time.Hour})
	connected(t, set)
	return set
}

func rpcError(status, code int, message string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
	}
}

func TestForgottenSessionBeginsAnewAndCallsOnce(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]func(http.ResponseWriter, string){
		"Error":     rpcError(http.StatusNotFound, -32001, "Session not found"),
		"ErrorNull": func(w http.ResponseWriter, _ string) { rpcError(http.StatusNotFound, -32600, "gone")(w, "null") },
		"Unnamed":   rpcError(http.StatusNotFound, -32601, "Method not found"),
		"Empty":     func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusNotFound) },
		"Text":      func(w http.ResponseWriter, _ string) { http.Error(w, "session not found", http.StatusNotFound) },
		"Stream": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusNotFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &forgetful{form: form}
			set := openForgetful(t, f)
			for round := range 2 {
				f.forget()
				for _, one := range []string{"book", "now"} {
					if got := call(t, set, "fake_"+one, `{}`); got.IsError || got.Text != "14:00 dentist" {
						t.Errorf("round %d, %s: got %+v", round, one, got)
					}
					if n := f.called(one); n != round+1 {
						t.Errorf("round %d: %s was called %d times", round, one, n)
					}
				}
			}
		})
	}
}

// TestSessionEndedInOtherWordsRepeatsReadingOnly lets the server make the call and then deny the session: only a tool that reads is called again.
func TestSessionEndedInOtherWordsRepeatsReadingOnly(t *testing.T) {
	t.Parallel()
	for _, form := range []func(http.ResponseWriter, string){
		rpcError(http.StatusBadRequest, -32000, "Bad Request: No valid session ID provided"), rpcError(http.StatusBadRequest, -32000, "Bad Request: Server not initialized"),
		rpcError(http.StatusOK, -32001, "Session not found"), rpcError(http.StatusGone, -32600, "Session has been terminated"), rpcError(http.StatusOK, -32000, "Invalid session ID"),
		rpcError(http.StatusOK, -32602, "Received request before initialization was complete"), rpcError(http.StatusUnauthorized, -32000, "session expired"),
	} {
		f := &forgetful{form: form, late: true}
		set := openForgetful(t, f)
		f.forget()
		if got := call(t, set, "fake_now", `{}`); got.IsError || got.Text != "14:00 dentist" || f.called("now") != 2 {
			t.Errorf("a tool that reads: %+v, called %d times", got, f.called("now"))
		}
		f.forget()
		if got := call(t, set, "fake_book", `{}`); !strings.Contains(got.Text, "the call may or may not have been made") || f.called("book") != 1 {
			t.Errorf("a tool that acts: %+v, called %d times", got, f.called("book"))
		}
		testrun.Eventually(t, "the server is used again", func() bool { return !call(t, set, "fake_now", `{}`).IsError })
	}
}

// TestServerThatKeepsNoSessionIsNotHammered lets the server forget each session after the list: a call makes at most one session more.
func TestServerThatKeepsNoSessionIsNotHammered(t *testing.T) {
	t.Parallel()
	f := &forgetful{calls: map[string]int{}}
	f.form = rpcError(http.StatusNotFound, -32001, "Session not found")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "tools/call") {
			f.forget()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	set := open(t, external.Config{URL: web.URL, Tools: []string{"now", "book"}, Relist: time.Hour})
	connected(t, set)
	if got := call(t, set, "fake_book", `{}`); got.Text != "the server fake is not connected; continue without it or try again later" {
		t.Errorf("got %+v", got)
	}
	connected(t, set)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sessions > 3 || f.calls["book"] > 0 {
		t.Errorf("%d sessions, %d calls", f.sessions, f.calls["book"])
	}
}

// TestInterruptedStreamIsResumed closes the stream of a call after an event without the answer: the client asks for the rest with the id of that event.
func TestInterruptedStreamIsResumed(t *testing.T) {
	t.Parallel()
	f := &forgetful{calls: map[string]int{}}
	var waiting atomic.Value // the id of the call
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case strings.Contains(string(body), "tools/call"):
			var m struct {
				ID json.RawMessage `json:"id"`
			}
			_ = json.Unmarshal(body, &m)
			waiting.Store(string(m.ID))
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "id: e1\nretry: 20\ndata:\n\n")
		case r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "e1":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"late\"}]}}\n\n", waiting.Load())
		default:
			f.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(web.Close)
	set := open(t, external.Config{URL: web.URL, Tools: []string{"now"}, Relist: time.Hour})
	connected(t, set)
	if got := call(t, set, "fake_now", `{}`); got.IsError || got.Text != "late" {
		t.Errorf("got %+v", got)
	}
}
