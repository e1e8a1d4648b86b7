package toolloop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// resultTool is the tool that reads what was left out of a result. A tool of the turn with that name takes precedence.
const resultTool = "result"

// maxRead bounds what one call of resultTool returns, in bytes.
const maxRead = 8 << 10

// cutSizes are the numbers of bytes of an older result that are kept, tried in order until the rounds fit; 0 keeps only the pointer.
var cutSizes = [...]int{2048, 512, 0} //nolint:gochecknoglobals // a constant

// window keeps the rounds of a turn within the part of the context window that is left for them. A cut result stays cut, so that the messages of the
// model change no more often than needed: the caches of providers depend on it.
type window struct {
	tokens int         // for tools and rounds; 0 means no bound
	ratio  agent.Ratio // by which tokens was computed
	kept   map[int]int // bytes that are kept of each result, by the index of the round; absent = all
}

// fit returns the rounds for the model: if they do not fit, the oldest ones are cut first. The results of the newest round share the rest.
func (w *window) fit(rounds []agent.Round, tools []agent.ToolSpec) []agent.Round {
	if w.tokens == 0 || len(rounds) == 0 {
		return rounds
	}
	total := func() int { return Conversation{Tools: tools, Rounds: w.cut(rounds)}.Room(w.ratio) }
	if total() > w.tokens {
		w.shorten(rounds, total)
	}
	return w.cut(rounds)
}

// shorten cuts rounds until the total is three quarters of the window, so that the next rounds need no further cut.
func (w *window) shorten(rounds []agent.Round, total func() int) {
	if w.kept == nil {
		w.kept = map[int]int{}
	}
	enough := w.tokens * 3 / 4
	newest := len(rounds) - 1
	for i, size := range cutSizes {
		for r := range newest {
			w.limit(r, size)
			if total() <= enough {
				return
			}
		}
		if i == 0 { // the older results are short by now; the newest ones take the rest
			all := 0
			for _, result := range rounds[newest].Results {
				all += agent.EstimateTokens(result.Text)
			}
			share := 2 * (enough - total() + w.ratio.New(all)) / max(len(rounds[newest].Results), 1) // the estimate of a byte is at most half a token
			w.limit(newest, max(share, size))
			if total() <= w.tokens {
				return
			}
		}
	}
	for _, size := range cutSizes {
		w.limit(newest, size)
		if total() <= w.tokens {
			return
		}
	}
}

// limit keeps at most size bytes of each result of a round.
func (w *window) limit(r, size int) {
	if had, ok := w.kept[r]; !ok || had > size {
		w.kept[r] = size
	}
}

// pointerBytes is how many bytes a cut must save to be worth its pointer.
const pointerBytes = 256

// cut returns copies of the rounds with the kept part of their results. Long arguments are cut too: the model needs them less than the results.
func (w *window) cut(rounds []agent.Round) []agent.Round {
	if len(w.kept) == 0 {
		return rounds
	}
	out := slices.Clone(rounds)
	for r, size := range w.kept {
		round := &out[r]
		round.Calls, round.Results = slices.Clone(round.Calls), slices.Clone(round.Results)
		for c, result := range round.Results {
			if len(result.Text) > size+pointerBytes {
				short := *result
				short.Text = headAndTail(short.Text, size, strconv.Itoa(r+1)+"."+strconv.Itoa(c+1))
				round.Results[c] = &short
			}
			if args := &round.Calls[c].Args; len(*args) > size+pointerBytes {
				*args = fmt.Sprintf(`{"left_out_bytes":%d}`, len(*args))
			}
		}
	}
	return out
}

// headAndTail keeps size bytes of a result, two thirds of them from its beginning, and states the call that returns the rest.
func headAndTail(text string, size int, call string) string {
	head := chat.Cut(text, size*2/3)
	tail := strings.ToValidUTF8(text[len(text)-size/3:], "")
	return fmt.Sprintf("%s\n[… %d of %d bytes left out: %s {\"call\":%q,\"from\":%d} reads on]\n%s",
		head, len(text)-len(head)-len(tail), len(text), resultTool, call, len(head), tail)
}

// resultSpec returns the tool that is offered once something was left out.
func resultSpec() agent.ToolSpec {
	return agent.ToolSpec{
		Name:        resultTool,
		Description: "Read the part of an earlier result of this turn that was left out: call is the number given there, from the first byte.",
		Schema:      json.RawMessage(`{"type":"object","properties":{"call":{"type":"string"},"from":{"type":"integer","minimum":0}},"required":["call"]}`),
		Idempotent:  true,
	}
}

// read executes a call of resultTool, which reads results of the first rounds only: the calls of its own round may still run.
func (l *loop) read(call chat.ToolCall, before int) chat.ToolResult {
	var args struct {
		Call string `json:"call"`
		From int    `json:"from"`
	}
	if err := json.Unmarshal([]byte(call.Args), &args); err != nil {
		return failed("The arguments are not those of %s: %v.", resultTool, err)
	}
	first, second, _ := strings.Cut(args.Call, ".")
	r, _ := strconv.Atoi(first)  //nolint:errcheck // 0 names no round
	c, _ := strconv.Atoi(second) //nolint:errcheck // 0 names no call
	if r < 1 || r > before || c < 1 || c > len(l.rounds[r-1].Results) || l.rounds[r-1].Results[c-1] == nil {
		return failed("There is no result %q in this turn; the number is given where something was left out.", chat.Cut(chat.Printable(args.Call), 16))
	}
	text := l.rounds[r-1].Results[c-1].Text
	if args.From < 0 || args.From >= len(text) {
		return failed("The result %d.%d has %d bytes.", r, c, len(text))
	}
	part := text[args.From:]
	if most := min(maxRead, max(l.window.tokens, 1024)); l.window.tokens > 0 && len(part) > most {
		part = chat.Cut(part, most)
		return chat.ToolResult{Text: strings.ToValidUTF8(part, "") + fmt.Sprintf("\n[… goes up to byte %d of %d]", args.From+len(part), len(text))}
	}
	return chat.ToolResult{Text: strings.ToValidUTF8(part, "")}
}
