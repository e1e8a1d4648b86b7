package external

import (
	"math/rand/v2"
	"strings"
	"testing"
)

const logLine = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}` + "\n"

// others are lines that resemble log messages but are not.
var others = []string{
	`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"notifications/message"}]}}` + "\n",
	`{"jsonrpc":"2.0","id":7,"method":"notifications/message"}` + "\n",
	`{"jsonrpc":"2.0","id":null,"method":"notifications/message"}` + "\n",
	`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"of":"notifications/message"}}` + "\n",
	`{"jsonrpc":"2.0","method":"notifications/messages"}` + "\n",
	`[` + strings.TrimSpace(logLine) + `]` + "\n",
	`{"method":"notifications/message"` + "\n",
	"notifications/message\n", "\n",
}

func TestOnlyLogMessagesAreRemoved(t *testing.T) {
	t.Parallel()
	for _, line := range others {
		var f logFilter
		if got := string(f.remove([]byte(line))); got != line {
			t.Errorf("of %q is left %q", line, got)
		}
	}
	var f logFilter
	if got := string(f.remove([]byte(logLine + others[0] + logLine + logLine + others[1] + logLine))); got != others[0]+others[1] {
		t.Errorf("left is %q", got)
	}
	unfinished := `{"jsonrpc":"2.0","id":8,"result":{}}`
	if got := string(f.remove([]byte(logLine + unfinished))); got != unfinished {
		t.Errorf("left is %q; a line that has not ended is not held back", got)
	}
}

// TestPiecesOfAnyLengthLoseNothingElse cuts a stream anywhere: only log messages are removed, the order of the rest is kept, and at most one log
// message for each cut is left.
func TestPiecesOfAnyLengthLoseNothingElse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var stream strings.Builder
		for range 1 + random.IntN(20) {
			if random.IntN(2) == 0 {
				stream.WriteString(logLine)
			} else {
				stream.WriteString(others[random.IntN(len(others))])
			}
		}
		text := stream.String()
		var f logFilter
		var left strings.Builder
		cuts := 0
		for rest := text; rest != ""; cuts++ {
			n := 1 + random.IntN(min(len(rest), 200))
			left.Write(f.remove([]byte(rest[:n])))
			rest = rest[n:]
		}
		want := withoutLogs(text)
		if got := withoutLogs(left.String()); got != want {
			t.Fatalf("seed %d: of\n%s\nis left\n%s\nwant\n%s", seed, text, got, want)
		}
		if n := strings.Count(left.String(), "\n") - strings.Count(want, "\n"); n > cuts {
			t.Errorf("seed %d: %d log messages are left after %d pieces", seed, n, cuts)
		}
	}
}

// withoutLogs removes the lines that are exactly the test's log messages.
func withoutLogs(text string) string {
	var left strings.Builder
	for line := range strings.Lines(text) {
		if line != logLine {
			left.WriteString(line)
		}
	}
	return left.String()
}
