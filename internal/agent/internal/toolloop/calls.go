package toolloop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// maxShown bounds the arguments and results in an event, in bytes.
const maxShown = 16 << 10

// done is a call that has ended.
type done struct {
	call   int
	result chat.ToolResult
}

// work runs the calls of a round that have no result yet and records what they return. again is
// true when an earlier attempt of the run recorded the round and may have made the calls.
func (l *loop) work(ctx context.Context, index int, again bool) error {
	round := &l.rounds[index]
	var missing []int
	for i, result := range round.Results {
		if result == nil {
			missing = append(missing, i)
			l.emit("start", round.Calls[i], nil)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := l.begin(ctx, round, missing, again)
	for range missing {
		var d done
		select {
		case d = <-ended:
		case <-ctx.Done():
		}
		if err := agent.Ended(ctx); err != nil {
			return err // a call that returns because its turn ends has no result
		}
		if err := l.take(ctx, round, d); err != nil {
			return err
		}
	}
	return nil
}

// begin starts calls of a round. Calls that end before ctx are sent to the returned channel, which
// has room for all of them.
func (l *loop) begin(ctx context.Context, round *agent.Round, missing []int, again bool) <-chan done {
	ended := make(chan done, len(missing))
	slots := make(chan struct{}, parallel)
	var order agent.CallOrder
	for _, i := range missing {
		key := fmt.Sprintf("%s/%d/%d", l.req.IdempotencyKey, round.Number, i+1)
		call := round.Calls[i]
		spec := l.spec(call)
		place := order.Join(spec)
		l.calls.Go(func() {
			defer place.Leave()
			if i >= MaxCalls {
				ended <- done{i, failed("This call was not made: only the first %d calls of an answer are. Ask for it again if you need it.", MaxCalls)}
				return
			}
			if call.Name == resultTool && spec.Name == "" {
				ended <- done{i, l.read(call, round.Number-1)}
				return
			}
			if spec.Waits { // it only waits and does no work in this process
				ended <- done{i, l.bounded(ctx, key, call, again)}
				return
			}
			if !place.Await(ctx) {
				return
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				ended <- done{i, l.bounded(ctx, key, call, again)}
			case <-ctx.Done():
			}
		})
	}
	return ended
}

// take records one result.
func (l *loop) take(ctx context.Context, round *agent.Round, d done) error {
	result := l.fitting(d.result)
	l.kept += len(result.Text)
	if err := l.req.Journal.RecordResult(ctx, round.Number, d.call, result); err != nil {
		return unrecorded(ctx, err)
	}
	round.Results[d.call] = &result
	l.emit("result", round.Calls[d.call], &result)
	return nil
}

// fitting returns the result, cut to the bounds of one call and of the turn.
func (l *loop) fitting(result chat.ToolResult) chat.ToolResult {
	result.Text = chat.CleanText(result.Text)
	switch {
	case len(result.Text) > MaxResult:
		return failed("The result has %d bytes; the limit is %d. Ask for less.", len(result.Text), MaxResult)
	case l.kept+len(result.Text) > MaxJournal:
		return failed("The results of this turn have more than %d bytes together; continue without this one.", MaxJournal)
	default:
		return result
	}
}

func failed(format string, args ...any) chat.ToolResult {
	return chat.ToolResult{Text: fmt.Sprintf(format, args...), IsError: true}
}

// spec returns the tool of a call; zero for a tool that is not offered.
func (l *loop) spec(call chat.ToolCall) (none agent.ToolSpec) {
	if i := slices.IndexFunc(l.tools, func(spec agent.ToolSpec) bool { return spec.Name == call.Name }); i >= 0 {
		return l.tools[i]
	}
	return none
}

// bounded runs one call within the time for a call; a call of a tool that waits has the time of the
// turn.
func (l *loop) bounded(ctx context.Context, key string, call chat.ToolCall, again bool) chat.ToolResult {
	spec, refusal := l.check(call, again)
	if refusal != nil {
		return *refusal
	}
	if !spec.Waits {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.options.CallTime)
		defer cancel()
	}
	returned := make(chan chat.ToolResult, 1)
	l.calls.Go(func() { returned <- l.req.Tools.Call(ctx, key, call) })
	select {
	case result := <-returned:
		return result
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandon)
	defer timer.Stop()
	select {
	case result := <-returned:
		return result
	case <-timer.C:
		return failed("The tool %s did not answer within %s; it may or may not have done its work.", spec.Name, l.options.CallTime)
	}
}

// check validates a call before it runs.
func (l *loop) check(call chat.ToolCall, again bool) (agent.ToolSpec, *chat.ToolResult) {
	refuse := func(format string, args ...any) *chat.ToolResult {
		result := failed(format, args...)
		return &result
	}
	var names []string
	for _, spec := range l.tools {
		if spec.Name != call.Name {
			names = append(names, spec.Name)
			continue
		}
		var members map[string]json.RawMessage
		switch {
		case len(call.Args) > MaxArgs:
			return spec, refuse("The arguments have more than %d bytes; the call was not made.", MaxArgs)
		case strings.TrimSpace(call.Args) != "" && json.Unmarshal([]byte(call.Args), &members) != nil:
			return spec, refuse("The arguments are not a JSON object; the call was not made.")
		case again && !spec.Idempotent:
			return spec, refuse("The gateway stopped during this call; it may or may not have happened.")
		}
		return spec, nil
	}
	if again { // it was offered when the round was recorded
		return agent.ToolSpec{}, refuse("The tool %q is not available: the server is not connected; the result of the call is unknown.", chat.Cut(chat.Printable(call.Name), 64))
	}
	if len(names) == 0 {
		return agent.ToolSpec{}, refuse("There are no tools any more; the call was not made.")
	}
	return agent.ToolSpec{}, refuse("There is no tool %q; there are %s.", chat.Cut(chat.Printable(call.Name), 64), strings.Join(names, ", "))
}

// emit publishes a step of a call; a nil result means that it begins.
func (l *loop) emit(phase string, call chat.ToolCall, result *chat.ToolResult) {
	step := &chat.ToolEvent{Phase: phase, CallID: call.ID, Name: call.Name}
	if result == nil {
		step.Args = chat.Cut(call.Args, maxShown)
	} else {
		step.Result, step.IsError = chat.Cut(result.Text, maxShown), result.IsError
	}
	l.text.emit(agent.Event{Kind: agent.EventTool, Tool: step})
}

// Object returns the arguments of a call as a JSON object, for providers that accept nothing else.
// Arguments that are not an object become an empty one.
func Object(args string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &members) != nil || members == nil {
		return json.RawMessage(`{}`)
	}
	return json.RawMessage(args)
}

// Calls collects the calls of one answer from the pieces in which they arrive. It keeps one call
// and one character more than the bounds allow, so that an excess is recognised, and nothing beyond
// that.
type Calls struct {
	list    []*pending
	at      map[int]int // index on the wire → place in list
	offered map[string]bool
}

type pending struct {
	id, name string
	args     Bounded
	members  map[string]any
}

// complete reports whether the arguments are a JSON object already.
func (p *pending) complete() bool { return isObject(p.args.text.String()) }

// Piece is a part of a call as it arrived.
type Piece struct {
	// Index is the number of the call on the wire, -1 if there is none.
	Index int
	// ID, Name and Args may be empty after the first piece.
	ID, Name, Args string
	// Members are those that the dialect does not know.
	Members map[string]any
}

// Offer states that a tool is offered: its name in a piece is a whole name.
func (c *Calls) Offer(name string) {
	if c.offered == nil {
		c.offered = map[string]bool{}
	}
	c.offered[name] = true
}

// Add adds the pieces of one event; merge joins the members of a call with those of its next piece.
// Calls of one event are separate. A piece continues the call of its index or id, or else the call
// at its place among the last ones, unless it begins another call: another id or another whole
// name, or a name and whole arguments after complete ones. An id may be missing or repeated. A name
// may come in pieces too; some endpoints instead repeat the whole name with each piece of the
// arguments.
func (c *Calls) Add(pieces []Piece, merge func(before, piece map[string]any) map[string]any) {
	if c.at == nil {
		c.at = map[int]int{}
	}
	taken := map[int]bool{} // places of this event
	first := max(0, len(c.list)-len(pieces))
	for i, p := range pieces {
		place := c.place(p, first+i)
		if place < 0 || taken[place] || c.begins(c.list[place], p) {
			if place >= 0 && !taken[place] && repeats(c.list[place], p) {
				taken[place] = true
				continue
			}
			if len(c.list) > maxAsked || (p.ID == "" && p.Name == "" && blank(p.Args)) {
				continue
			}
			place = len(c.list)
			c.list = append(c.list, &pending{args: Bounded{limit: MaxArgs + utf8Max}})
		}
		if p.Index >= 0 {
			c.at[p.Index] = place
		}
		taken[place] = true
		call := c.list[place]
		call.id = cmp.Or(call.id, p.ID)
		if p.Name != call.name && len(call.name) < maxName {
			call.name += p.Name
		}
		call.args.Append(p.Args)
		if len(p.Members) > 0 {
			call.members = merge(call.members, p.Members)
		}
	}
}

// place returns the call that a piece may continue, -1 if there is none.
func (c *Calls) place(p Piece, among int) int {
	if p.Index >= 0 {
		if place, known := c.at[p.Index]; known {
			return place
		}
		return -1
	}
	for i := len(c.list) - 1; i >= 0 && p.ID != ""; i-- {
		if c.list[i].id == p.ID {
			return i
		}
	}
	if among < len(c.list) && len(c.list) > 0 {
		return among
	}
	return len(c.list) - 1
}

// begins reports whether a piece begins another call than the one at its place.
func (c *Calls) begins(call *pending, p Piece) bool {
	switch {
	case p.ID != "" && call.id != "" && p.ID != call.id:
		return true
	case p.Name == "":
		return false
	case call.complete():
		return isObject(p.Args) || p.Name != call.name
	case p.Name != call.name && (c.offered[call.name] && c.offered[p.Name] || call.args.text.Len() > 0 || p.Index < 0 && call.name != ""):
		return true
	default:
		return false
	}
}

// repeats reports whether a piece is the whole call once more, under its own id.
func repeats(call *pending, p Piece) bool {
	return p.Index >= 0 && p.ID != "" && p.ID == call.id && p.Name == call.name && p.Args == call.args.text.String()
}

func isObject(args string) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal([]byte(args), &members) == nil && members != nil
}

// blank reports arguments that are absent: an empty string, or null.
func blank(args string) bool {
	args = strings.TrimSpace(args)
	return args == "" || args == "null"
}

// Len returns the number of calls.
func (c *Calls) Len() int { return len(c.named()) }

// DropIncomplete removes the last call if its arguments are not complete: the answer was cut off
// within it.
func (c *Calls) DropIncomplete() {
	if n := len(c.list); n > 0 && !c.list[n-1].complete() {
		c.list = c.list[:n-1]
	}
}

// named returns the calls that name a tool; what does not is no call.
func (c *Calls) named() []*pending {
	return slices.DeleteFunc(slices.Clone(c.list), func(p *pending) bool { return strings.TrimSpace(p.name) == "" })
}

// List returns the calls in the order in which they began.
func (c *Calls) List() []chat.ToolCall {
	var out []chat.ToolCall
	for _, call := range c.named() {
		args := call.args.String()
		var inner string
		if blank(args) {
			args = ""
		} else if json.Unmarshal([]byte(args), &inner) == nil && (isObject(inner) || blank(inner)) {
			args = inner // a string within the string
		}
		out = append(out, chat.ToolCall{ID: call.id, Name: call.name, Args: args})
	}
	return out
}

// Members returns the members of each call in List.
func (c *Calls) Members() []map[string]any {
	var out []map[string]any
	for _, call := range c.named() {
		out = append(out, call.members)
	}
	return out
}

// Bounded is a string that stops growing at its limit; the zero value holds one byte more than
// [MaxJournal].
type Bounded struct {
	limit int
	text  strings.Builder
}

// Append adds what fits.
func (b *Bounded) Append(text string) {
	limit := cmp.Or(b.limit, MaxJournal+1)
	b.text.WriteString(text[:min(len(text), max(0, limit-b.text.Len()))])
}

// String returns the collected string.
func (b *Bounded) String() string { return chat.CleanText(b.text.String()) }

// resultTool is the tool that reads what was left out of a result. A tool of the turn with that
// name takes precedence.
const resultTool = "result"

// maxRead bounds what one call of resultTool returns, in bytes.
const maxRead = 8 << 10

// cutSizes are the numbers of bytes of an older result that are kept, tried in order until the
// rounds fit; 0 keeps only the pointer.
var cutSizes = [...]int{2048, 512, 0} //nolint:gochecknoglobals // a constant

// window keeps the rounds of a turn within the part of the context window that is left for them. A
// cut result stays cut, so that the messages of the model change no more often than needed: the
// caches of providers depend on it.
type window struct {
	tokens int         // for tools and rounds; 0 means no bound
	ratio  agent.Ratio // by which tokens was computed
	kept   map[int]int // bytes that are kept of each result, by the index of the round; absent = all
}

// fit returns the rounds for the model: if they do not fit, the oldest ones are cut first. The
// results of the newest round share the rest.
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

// shorten cuts rounds until the total is three quarters of the window, so that the next rounds need
// no further cut.
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

// cut returns copies of the rounds with the kept part of their results. Long arguments are cut too:
// the model needs them less than the results.
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

// headAndTail keeps size bytes of a result, two thirds of them from its beginning, and states the
// call that returns the rest.
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

// read executes a call of resultTool, which reads results of the first rounds only: the calls of
// its own round may still run.
func (l *loop) read(call chat.ToolCall, before int) chat.ToolResult {
	var args struct {
		Call string `json:"call"`
		From int    `json:"from"`
	}
	if err := json.Unmarshal([]byte(call.Args), &args); err != nil {
		return failed("The arguments are not those of %s: %v.", resultTool, err)
	}
	first, second, _ := strings.Cut(args.Call, ".")
	r, _ := strconv.Atoi(first)  // 0 names no round
	c, _ := strconv.Atoi(second) // 0 names no call
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
