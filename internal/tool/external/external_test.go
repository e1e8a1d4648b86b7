package external_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/secret"
	"laneway/internal/testmcp"
	"laneway/internal/testrun"
	"laneway/internal/tool"
	"laneway/internal/tool/external"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(testmcp.Variable); how != "" {
		testmcp.Serve(how)
		return
	}
	goleak.VerifyTestMain(m)
}

// open runs a set of one server until the test ends.
func open(t *testing.T, cfg external.Config) *external.Set {
	t.Helper()
	cfg.Name = "fake"
	set := external.New([]external.Config{cfg}, os.LookupEnv, &http.Transport{DisableKeepAlives: true}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); set.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return set
}

func program(t *testing.T, how string) external.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	offered := slices.DeleteFunc(testmcp.Tools(), func(s string) bool { return s == "secret" })
	return external.Config{
		Command: []string{self}, Env: map[string]string{testmcp.Variable: how, "KEY": "value"}, Tools: append(offered, "later"), ReadOnly: []string{"echo"},
		CallTime: 10 * time.Second,
	}
}

func connected(t *testing.T, set *external.Set) {
	t.Helper()
	testrun.Eventually(t, "the server is connected", func() bool { return set.Status()[0].State == external.StateConnected })
}

// call makes a call as a turn with the server does.
func call(t *testing.T, set *external.Set, name, args string) chat.ToolResult {
	t.Helper()
	table := tool.New(tool.Deps{External: set})
	return table.For(tool.Turn{Servers: []string{"fake"}}, []string{}).Call(t.Context(), "key", chat.ToolCall{Name: name, Args: args})
}

// TestListedToolsOfAProgramAreCalled also checks that a tool acts unless the operator has marked it
// as read-only: the server marks all its tools so.
func TestListedToolsOfAProgramAreCalled(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "good"))
	connected(t, set)
	if got := call(t, set, "fake_echo", `{"a":1}`); got.IsError || got.Text != `{"a":1} value` {
		t.Errorf("got %+v", got)
	}
	for _, name := range []string{"fake_secret", "secret", "echo", "other_echo"} {
		if got := call(t, set, name, `{}`); !got.IsError || !strings.Contains(got.Text, "the tool") && !strings.Contains(got.Text, "there is no tool") {
			t.Errorf("%s: got %+v, want a refusal", name, got)
		}
	}
	for _, one := range set.Tools([]string{"fake"}) {
		acts := one.Acts != nil && one.Acts([]byte(`{}`))
		if acts != (one.Name != "fake_echo") || one.Idempotent == acts || !one.Foreign([]byte(`{}`)) || !one.Askable {
			t.Errorf("%s: acts %t, idempotent %t", one.Name, acts, one.Idempotent)
		}
	}
	if len(set.Tools([]string{"another"})) != 0 {
		t.Error("an agent has tools of a server that it does not name")
	}
	if table := tool.New(tool.Deps{External: set}); !table.Outside("fake_gone") || table.Outside("remind") {
		t.Error("results of tools of other servers are not text from outside, or those of the gateway's are")
	}
}

// TestEachFaultIsOneSentence makes calls that a server fails in each possible way, and uses the
// server again after each. Only the tools that do not answer have a short time, so that no sentence
// depends on the speed of the machine.
func TestEachFaultIsOneSentence(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tool, want string
		time       time.Duration
	}{
		{"hang", "did not answer within 1s; the call may or may not have been made", time.Second},
		{"deaf", "did not answer within 1s; the call may or may not have been made", time.Second},
		{"huge", "failed on this call; the call may or may not have been made", external.MaxCallTime},
		{"long", "the result has 102400 bytes; the limit is 65536", external.MaxCallTime},
		{"garbage", "did not answer within 1s; the call may or may not have been made", time.Second}, // the line is skipped
		{"prints", "failed on this call; the call may or may not have been made", external.MaxCallTime},
		{"die", "failed on this call", external.MaxCallTime},
		{"strange", `refuses the call: unknown argument "color"`, external.MaxCallTime},
		{"elicit", "the client says: ", external.MaxCallTime},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			t.Parallel()
			cfg := program(t, "good")
			cfg.CallTime = tt.time
			set := open(t, cfg)
			connected(t, set)
			got := call(t, set, "fake_"+tt.tool, `{}`)
			if !strings.Contains(got.Text, tt.want) || (got.IsError == (tt.tool == "elicit")) || strings.Count(got.Text, "\n") > 0 {
				t.Errorf("got %+v, want %q in one sentence", got, tt.want)
			}
			if tt.tool == "deaf" { // it answers no ping, and is restarted
				testrun.Eventually(t, "the failure is known", func() bool { return set.Status()[0].LastError != "" })
			}
			testrun.Eventually(t, "the server is used again", func() bool { return !call(t, set, "fake_echo", `{}`).IsError })
		})
	}
}

// TestAMessageWithoutMeasureCostsNoMemory reads 50 MB from a program. It is not parallel: it
// measures the memory of the process.
//
//nolint:paralleltest // see above
func TestAMessageWithoutMeasureCostsNoMemory(t *testing.T) {
	cfg := program(t, "good")
	cfg.CallTime = external.MaxCallTime
	set := open(t, cfg)
	connected(t, set)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := call(t, set, "fake_huge", `{}`)
	runtime.ReadMemStats(&after)
	if !strings.Contains(got.Text, "failed on this call") {
		t.Errorf("got %+v", got)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// TestAConnectionThatHasFailedIsNotCalledConnected makes calls that end the connection: after each,
// either the state shows the failure or the next call succeeds.
func TestAConnectionThatHasFailedIsNotCalledConnected(t *testing.T) {
	t.Parallel()
	cfg := program(t, "good")
	cfg.CallTime = external.MaxCallTime
	set := open(t, cfg)
	for _, name := range []string{"prints", "die", "prints"} {
		connected(t, set)
		if got := call(t, set, "fake_"+name, `{}`); !strings.Contains(got.Text, "failed on this call") {
			t.Errorf("%s: got %+v", name, got)
		}
		if state := set.Status()[0].State; state == external.StateConnected {
			if got := call(t, set, "fake_echo", `{}`); got.IsError {
				t.Errorf("after %s: the state is %s and a call returns %+v", name, state, got)
			}
		}
	}
}

func TestAServerThatChangesItsListIsReadAgain(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "good"))
	connected(t, set)
	if got := call(t, set, "fake_change", `{}`); got.IsError {
		t.Fatalf("got %+v", got)
	}
	testrun.Eventually(t, "the list is read again", func() bool { return cmp.Equal(set.Status()[0].Tools, []string{"fake_later"}) })
	if got := call(t, set, "fake_echo", `{}`); got.Text != "the tool fake_echo is not available now; continue without it or try again later" {
		t.Errorf("a tool that is gone: %+v", got)
	}
}

// TestAFloodIsReadAtABoundedRate lets a server write notifications without end. Its calls are still
// answered, and the cost of reading is bounded.
func TestAFloodIsReadAtABoundedRate(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "good"))
	connected(t, set)
	for _, name := range []string{"fake_flood", "fake_echo"} {
		if got := call(t, set, name, `{}`); got.IsError {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestAProgramThatDoesNotReadIsEnded writes more to a program than a pipe holds: the calls end in
// time although nothing reads them.
func TestAProgramThatDoesNotReadIsEnded(t *testing.T) {
	t.Parallel()
	cfg := program(t, "good")
	cfg.CallTime = time.Second
	set := open(t, cfg)
	connected(t, set)
	args := `{"text":"` + strings.Repeat("x", 100<<10) + `"}`
	for range 2 {
		began := time.Now()
		if got := call(t, set, "fake_deaf", args); !got.IsError || time.Since(began) > 15*time.Second {
			t.Errorf("after %s: got %+v", time.Since(began), got)
		}
	}
	testrun.Eventually(t, "the server is used again", func() bool { return !call(t, set, "fake_echo", `{}`).IsError })
}

// TestAFloodOfLogMessagesIsNotDecoded counts the allocations of the reader of a flood. The SDK
// would allocate 100 KB for each log message of 90 bytes, and 12,000 of them are read at once. It
// is not parallel: the allocations are those of the process.
//
//nolint:paralleltest // see above
func TestAFloodOfLogMessagesIsNotDecoded(t *testing.T) {
	set := open(t, program(t, "good"))
	connected(t, set)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 5 { // each answer comes after what was written before it
		if got := call(t, set, []string{"fake_flood", "fake_echo"}[min(i, 1)], `{}`); got.IsError {
			t.Errorf("call %d: got %+v", i, got)
		}
	}
	runtime.ReadMemStats(&after)
	took := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d MiB", took>>20)
	if took > 128<<20 {
		t.Errorf("the calls after the flood allocated %d MiB", took>>20)
	}
}

// TestAListThatChangesAllTheTimeIsReadSeldom changes the list after each reading.
func TestAListThatChangesAllTheTimeIsReadSeldom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	set := open(t, program(t, "restless"))
	connected(t, set)
	testrun.Eventually(t, "the list was read again", func() bool { return call(t, set, "fake_lists", `{}`).Text != "1" })
	if got := call(t, set, "fake_lists", `{}`); got.Text != "2" {
		t.Errorf("the list was read %s times in a few seconds", got.Text)
	}
}

// TestAToolWithASchemaThatCannotBeUsedIsLeftOut offers schemas that a model's endpoint would refuse
// with all tools, or on which the SDK panics.
func TestAToolWithASchemaThatCannotBeUsedIsLeftOut(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "schemas"))
	connected(t, set)
	if got := set.Status()[0].Tools; !cmp.Equal(got, []string{"fake_echo"}) {
		t.Errorf("the tools are %q", got)
	}
}

// TestNamesThatModelsDoNotTakeAreMapped also checks that the names are the same in another process,
// whose list has another order.
func TestNamesThatModelsDoNotTakeAreMapped(t *testing.T) {
	t.Parallel()
	cfg := program(t, "names")
	cfg.Tools = append(testmcp.Names(), "gone")
	set := open(t, cfg)
	connected(t, set)
	status := set.Status()[0]
	if len(status.Tools) != len(testmcp.Names()) {
		t.Errorf("offered: %q", status.Tools)
	}
	form := regexp.MustCompile("^[A-Za-z0-9_-]{1,64}$")
	for i, name := range status.Tools {
		if !form.MatchString(name) || slices.Contains(status.Tools[:i], name) {
			t.Errorf("%q cannot be used", name)
		}
	}
	if !slices.Contains(status.Tools, "fake_calendar_listEvents") || !slices.Contains(status.Tools, "fake_a_b") {
		t.Errorf("%q lacks the names that need no hash", status.Tools)
	}
	if want := []chat.LeftOutTool{{Name: "gone", Why: "the server has no tool of this name"}}; !cmp.Equal(status.LeftOut, want) {
		t.Errorf("left out: %+v", status.LeftOut)
	}
	at := slices.IndexFunc(status.Renamed, func(one chat.RenamedTool) bool { return one.Own == "calendar.listEvents" })
	if at < 0 {
		t.Fatalf("renamed: %+v", status.Renamed)
	}
	if got := call(t, set, status.Renamed[at].Name, `{}`); got.Text != "called as calendar.listEvents" {
		t.Errorf("got %+v", got)
	}
	slices.Reverse(cfg.Tools)
	again := open(t, cfg)
	connected(t, again)
	if diff := cmp.Diff(status.Renamed, again.Status()[0].Renamed); diff != "" {
		t.Errorf("other names after a restart:\n%s", diff)
	}
}

func TestServerThatPrintsIsUsed(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "noisy"))
	connected(t, set)
	for range 3 {
		if got := call(t, set, "fake_echo", `{"a":1}`); got.IsError || got.Text != `{"a":1} value` {
			t.Errorf("got %+v", got)
		}
	}
	if status := set.Status()[0]; status.State != external.StateConnected || status.LastError != "" {
		t.Errorf("the server is %+v", status)
	}
	call(t, set, "fake_prints", `{}`)
	testrun.Eventually(t, "the flood is a reason", func() bool { return strings.Contains(set.Status()[0].LastError, `first "Weather server`) })
}

func TestAResultWithANulIsCleaned(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "good"))
	connected(t, set)
	if got := call(t, set, "fake_zero", `{}`); got.IsError || strings.Contains(got.Text, "\x00") || !strings.HasPrefix(got.Text, "a") {
		t.Errorf("got %q", got.Text)
	}
}

func TestAListWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "endless"))
	testrun.Eventually(t, "the failure is known", func() bool { return strings.Contains(set.Status()[0].LastError, "does not end") })
	if len(set.Tools([]string{"fake"})) != 0 {
		t.Error("its tools are offered")
	}
}

func TestAProgramThatDoesNotStartIsAState(t *testing.T) {
	t.Parallel()
	set := open(t, external.Config{Command: []string{"/does/not/exist"}, Tools: []string{"echo"}})
	testrun.Eventually(t, "the failure is known", func() bool { s := set.Status()[0]; return s.State == external.StateFailed && s.LastError != "" })
	if got := call(t, set, "fake_echo", `{}`); got.Text != "the tool fake_echo is not available now; continue without it or try again later" {
		t.Errorf("got %+v", got)
	}
}

// TestTheCircuitOpens lets every call of a server time out: after five the server receives no
// further calls.
func TestTheCircuitOpens(t *testing.T) {
	t.Parallel()
	cfg := program(t, "good")
	cfg.CallTime = 50 * time.Millisecond
	set := open(t, cfg)
	connected(t, set)
	for i := range 6 {
		want := "did not answer within 50ms"
		if i == 5 {
			want = "has failed several times and receives no calls for a while"
		}
		if got := call(t, set, "fake_hang", `{}`); !strings.Contains(got.Text, want) {
			t.Errorf("call %d: %q, want %q", i+1, got.Text, want)
		}
	}
	testrun.Eventually(t, "the server is connected again and not asked", func() bool { return set.Status()[0].State == external.StateSuspended })
}

// transport is a function that implements http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTurnsWaitForTheFirstAttemptToConnectOnce(t *testing.T) {
	t.Parallel()
	hangs := transport(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})
	refuses := transport(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	for name, tt := range map[string]struct {
		by   transport
		want time.Duration
	}{"Hangs": {hangs, 10 * time.Second}, "Refuses": {refuses, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				set := external.New([]external.Config{{Name: "one", URL: "http://one.test"}, {Name: "other", URL: "http://other.test"}}, os.LookupEnv, tt.by, nil)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); set.Run(ctx) }()
				for turn, want := range []time.Duration{tt.want, 0} {
					start := time.Now()
					set.Await(t.Context(), []string{"one", "other"})
					if took := time.Since(start); took != want {
						t.Errorf("turn %d waited for %s, want %s", turn, took, want)
					}
				}
				cancel()
				<-done
			})
		})
	}
}

func TestATurnWaitsForNoServerOfOtherAgents(t *testing.T) {
	t.Parallel()
	set := external.New([]external.Config{{Name: "one", URL: "http://one.test"}}, os.LookupEnv, nil, nil) // it does not run
	set.Await(t.Context(), []string{"other"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	set.Await(ctx, []string{"one"})
}

func TestAServerThatAnswersNoUnknownMethodIsConnected(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "silent"))
	start := time.Now()
	set.Await(t.Context(), []string{"fake"})
	if state := set.Status()[0].State; state != external.StateConnected {
		t.Fatalf("after %s the server is %s", time.Since(start), state)
	}
	if got := call(t, set, "fake_echo", `{"a":1}`); got.IsError || got.Text != `{"a":1} value` {
		t.Errorf("got %+v, want the answer of the server", got)
	}
}

// hugeSize is the size of the answers of the tools huge and stream.
const hugeSize = 50 << 20

// address is a server with an address. Its tool huge announces the length of its answer, stream
// does not.
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

// ServeHTTP writes the huge answers itself: the SDK would need seconds for them under the race
// detector.
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

// TestAnAddressIsAServer also checks that the rest of an answer over the limit is not read: the
// server cannot write it.
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

// TestAnAddressThatIsGoneIsAFailure makes a call before the end of the server is noticed: the call
// is not refused by a server, it cannot be sent.
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

// forgetful is a server with sessions, which it forgets on demand. Its tools now (read-only) and
// book count their calls.
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

func plainError(status int, text string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
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

// TestSessionEndedInOtherWordsRepeatsReadingOnly lets the server make the call and then deny the
// session: only a tool that reads is called again.
func TestSessionEndedInOtherWordsRepeatsReadingOnly(t *testing.T) {
	t.Parallel()
	for _, form := range []func(http.ResponseWriter, string){
		rpcError(http.StatusBadRequest, -32000, "Bad Request: No valid session ID provided"), rpcError(http.StatusBadRequest, -32000, "Bad Request: Server not initialized"),
		rpcError(http.StatusOK, -32001, "Session not found"), rpcError(http.StatusGone, -32600, "Session has been terminated"), rpcError(http.StatusOK, -32000, "Invalid session ID"),
		rpcError(http.StatusOK, -32602, "Received request before initialization was complete"), rpcError(http.StatusUnauthorized, -32000, "session expired"),
		rpcError(http.StatusBadRequest, -32000, "Bad Request: A new session can only be created by an initialize request"), rpcError(http.StatusBadRequest, -32600, "Session ID missing"),
		rpcError(http.StatusBadRequest, -32600, "Session is closed"), rpcError(http.StatusOK, -32002, "Server must be initialized first"), rpcError(http.StatusConflict, -32000, "session abc is not active"),
		plainError(http.StatusBadRequest, "Invalid session ID"), plainError(http.StatusUnauthorized, "Unauthorized: Session not found"), plainError(http.StatusBadRequest, ""),
		plainError(http.StatusGone, ""), plainError(http.StatusGone, "<html>Gone</html>"), plainError(http.StatusInternalServerError, "unknown session"),
		func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32001,\"message\":\"Session not found\"}}\n\n", id)
		},
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

// TestFailureOfAToolThatDeniesTheSession has a server whose tools report the lost session as their
// own failure: what reads is called again in a new session, what acts is told as it is.
func TestFailureOfAToolThatDeniesTheSession(t *testing.T) {
	t.Parallel()
	for _, says := range []string{"Session not found", "Error: invalid session ID, please reinitialize", "MCP error -32001: Session not found", "Server not initialized"} {
		f := &forgetful{late: true, form: func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"isError":true,"content":[{"type":"text","text":%q}]}}`, id, says)
		}}
		set := openForgetful(t, f)
		f.forget()
		if got := call(t, set, "fake_now", `{}`); got.IsError || got.Text != "14:00 dentist" || f.called("now") != 2 {
			t.Errorf("%s: a tool that reads: %+v, called %d times", says, got, f.called("now"))
		}
		f.forget()
		if got := call(t, set, "fake_book", `{}`); !got.IsError || !strings.Contains(got.Text, says) || f.called("book") != 1 {
			t.Errorf("%s: a tool that acts: %+v, called %d times", says, got, f.called("book"))
		}
		testrun.Eventually(t, "the server is used again", func() bool { return !call(t, set, "fake_now", `{}`).IsError })
	}
}

// TestServerThatKeepsNoSessionIsNotHammered lets the server forget each session after the list: a
// call makes at most one session more.
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

// TestInterruptedStreamIsResumed closes the stream of a call after an event without the answer: the
// client asks for the rest with the id of that event.
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
