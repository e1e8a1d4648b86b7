package external_test

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/chat"
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

// TestListedToolsOfAProgramAreCalled also checks that a tool acts unless the operator has marked it as read-only: the server marks all its tools so.
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

// TestEachFaultIsOneSentence makes calls that a server fails in each possible way, and uses the server again after each. Only the tools that do not
// answer have a short time, so that no sentence depends on the speed of the machine.
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

// TestAMessageWithoutMeasureCostsNoMemory reads 50 MB from a program. It is not parallel: it measures the memory of the process.
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

// TestAConnectionThatHasFailedIsNotCalledConnected makes calls that end the connection: after each, either the state shows the failure or the next
// call succeeds.
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

// TestAFloodIsReadAtABoundedRate lets a server write notifications without end. Its calls are still answered, and the cost of reading is bounded.
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

// TestAProgramThatDoesNotReadIsEnded writes more to a program than a pipe holds: the calls end in time although nothing reads them.
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

// TestAFloodOfLogMessagesIsNotDecoded counts the allocations of the reader of a flood. The SDK would allocate 100 KB for each log message of 90
// bytes, and 12,000 of them are read at once. It is not parallel: the allocations are those of the process.
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

// TestAToolWithASchemaThatCannotBeUsedIsLeftOut offers schemas that a model's endpoint would refuse with all tools, or on which the SDK panics.
func TestAToolWithASchemaThatCannotBeUsedIsLeftOut(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "schemas"))
	connected(t, set)
	if got := set.Status()[0].Tools; !cmp.Equal(got, []string{"fake_echo"}) {
		t.Errorf("the tools are %q", got)
	}
}

// TestNamesThatModelsDoNotTakeAreMapped also checks that the names are the same in another process, whose list has another order.
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

// TestTheCircuitOpens lets every call of a server time out: after five the server receives no further calls.
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
