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
