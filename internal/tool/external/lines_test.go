package external

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const logLine = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}` + "\n"

// passed are lines that pass, also those that resemble log messages.
func passed() []string {
	return []string{
		`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"notifications/message"}]}}` + "\n",
		`{"jsonrpc":"2.0","id":7,"method":"notifications/message"}` + "\n",
		`{"jsonrpc":"2.0","id":null,"method":"notifications/message"}` + "\n",
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"of":"notifications/message"}}` + "\n",
		`{"jsonrpc":"2.0","method":"notifications/messages"}` + "\n",
		`{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"x"}}` + "\n",
	}
}

// skipped are lines that programs print and that are no messages.
func skipped() []string {
	return []string{
		"Weather server 1.4 listening on stdio\n", "[info] cache miss\n", `{"level":"info","msg":"ready"}` + "\n", "42\n", `"ready"` + "\n", "null\n", "[]\n", "[1]\n", "[[]]\n",
		`{"jsonrpc":"2.0"}` + "\n", `{"jsonrpc":"1.0","id":1,"result":{}}` + "\n", `{"method":"notifications/message"` + "\n", "notifications/message\n", "\xff\xfe\x00\n",
		`{"jsonrpc":"2.0","id":1,"result":{}} done` + "\n", `{"jsonrpc":"2.0","id":{},"result":{}}` + "\n",
	}
}

func TestLinesThatAreNoMessagesAreSkipped(t *testing.T) {
	t.Parallel()
	for _, line := range skipped() {
		var warned []string
		l := lines{noise: func(s string) { warned = append(warned, s) }}
		got, err := l.take([]byte(passed()[0] + line + passed()[3] + line))
		if err != nil || string(got) != passed()[0]+passed()[3] {
			t.Errorf("with %q: passed %q, %v", line, got, err)
		}
		if len(warned) != 1 || warned[0] == "" {
			t.Errorf("with %q: warnings %q, want one that quotes it", line, warned)
		}
	}
}

func TestMessagesOfEachFormPass(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]string{
		"\ufeff" + passed()[0]: passed()[0], "\n\r\n" + strings.TrimSpace(passed()[1]) + "\r\n": passed()[1], "  " + passed()[3]: passed()[3],
		"[" + strings.TrimSpace(passed()[0]) + "," + strings.TrimSpace(logLine) + ", " + strings.TrimSpace(passed()[5]) + "]\n": passed()[0] + passed()[5],
		logLine + logLine: "", "\x1b[0m" + strings.TrimSpace(passed()[0]) + "\x1b[0m\n": passed()[0], "\x1b]0;week\x07\ufeff" + passed()[5]: passed()[5], "\x00" + passed()[1]: passed()[1],
		" \r" + strings.TrimSpace(passed()[0]) + "\r" + passed()[3]: passed()[0] + passed()[3],
	} {
		l := lines{noise: func(s string) { t.Errorf("%q is called no message", s) }}
		if got, err := l.take([]byte(give)); err != nil || string(got) != want {
			t.Errorf("of %q passed %q, %v, want %q", give, got, err, want)
		}
	}
	l := lines{noise: func(string) {}}
	if got, _ := l.take([]byte(strings.TrimSpace(passed()[0]))); len(got) != 0 || string(l.end()) != passed()[0] {
		t.Errorf("a last message without a newline: %q before the end, or not at it", got)
	}
}

func TestSchemasWithoutArgumentsAreCompleted(t *testing.T) {
	t.Parallel()
	const none = `{"properties":{},"type":"object"}`
	for give, want := range map[string]string{
		"null": none, "{}": none, `{"type":"object"}`: none, `{"type":"object","properties":null}`: none, `{"type":"object","additionalProperties":false}`: `{"additionalProperties":false,"properties":{},"type":"object"}`,
		`{"type":"array"}`: `{"type":"array"}`, `{"properties":{"a":{}},"type":"object"}`: `{"properties":{"a":{}},"type":"object"}`, "true": "true",
	} {
		var schema any
		if err := json.Unmarshal([]byte(give), &schema); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(completed(schema)); err != nil || string(got) != want {
			t.Errorf("%s became %s, %v, want %s", give, got, err, want)
		}
	}
}

// TestMessageAfterProgressPasses: a bar of progress has no newline, so the message is in its line.
func TestMessageAfterProgressPasses(t *testing.T) {
	t.Parallel()
	var warned []string
	l := lines{noise: func(s string) { warned = append(warned, s) }}
	got, err := l.take([]byte("\x1b[2K\rLoading 10%\rLoading 90%\r" + passed()[0]))
	if err != nil || string(got) != passed()[0] || len(warned) != 1 || !strings.Contains(warned[0], "Loading 10%") {
		t.Errorf("passed %q, %v, warned %q", got, err, warned)
	}
	quoted := "[debug] sent " + passed()[0] // what a program logs of its own messages is no message
	if got, err := l.take([]byte(quoted)); err != nil || len(got) != 0 {
		t.Errorf("passed %q, %v", got, err)
	}
}

func TestFloodOfOtherLinesEndsTheServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		line  string
		pause time.Duration
		lines int // until the end; 0 = none
	}{
		"Lines": {"x\n", 50 * time.Millisecond, 100}, "Bytes": {strings.Repeat("x", 9<<10) + "\n", 0, 8}, "Slow": {"x\n", 200 * time.Millisecond, 0},
		"OneLongLine": {strings.Repeat("x", 9<<10), 0, 8}, "LongMessageThatMayEnd": {`{"a":"` + strings.Repeat("x", 9<<10), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				warnings, ended := 0, 0
				l := lines{noise: func(string) { warnings++ }}
				for n := 1; n <= 300 && ended == 0; n++ {
					if _, err := l.take([]byte(tt.line)); err != nil {
						ended = n
						if !strings.Contains(err.Error(), "first \"x") {
							t.Errorf("%v does not quote the first line", err)
						}
					}
					time.Sleep(tt.pause)
				}
				if ended != tt.lines || warnings > 1 {
					t.Errorf("ended after %d, want %d; %d warnings", ended, tt.lines, warnings)
				}
			})
		})
	}
}

// TestPiecesOfAnyLengthLoseNothingElse cuts a stream anywhere: the same lines pass, in their order.
func TestPiecesOfAnyLengthLoseNothingElse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var stream, want strings.Builder
		for range 1 + random.IntN(20) {
			switch random.IntN(3) {
			case 0:
				stream.WriteString(logLine)
			case 1:
				stream.WriteString(skipped()[random.IntN(len(skipped()))])
			default:
				line := passed()[random.IntN(len(passed()))]
				stream.WriteString(line)
				want.WriteString(line)
			}
		}
		l := lines{noise: func(string) {}}
		var left strings.Builder
		for rest := stream.String(); rest != ""; {
			n := 1 + random.IntN(min(len(rest), 200))
			got, err := l.take([]byte(rest[:n]))
			if err != nil {
				t.Fatal(err)
			}
			left.Write(got)
			rest = rest[n:]
		}
		if left.String() != want.String() {
			t.Fatalf("seed %d: of\n%s\nis left\n%s\nwant\n%s", seed, &stream, &left, &want)
		}
	}
}
