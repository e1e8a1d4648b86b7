// Package toolloop is the loop of runners whose model calls tools: request an answer, run its tool
// calls, request the next answer with the results, until an answer has no calls.
//
// A runner passes a [Model], which posts one request of its provider and reads one answer;
// everything else is here, for all providers. Text of all rounds is streamed into one answer, with
// an empty line between rounds; usage is summed.
//
// # Journal
//
// A round is recorded before the first of its calls runs, and each result when it arrives
// (agent.Journal). A turn that runs again receives the recorded rounds: their text is the first
// delta, their results are used unchanged, and only then is a request made. A call without a
// recorded result is repeated when its tool is idempotent, under its key
// `<session>/<run>/<round>/<call>`; otherwise its result states that it may or may not have
// happened. So a recorded round is never requested twice, and a result never belongs to another
// call. Crash points: before the round is recorded nothing has happened; after it, and after a call
// whose result was not recorded, the call is repeated under the same key; after the result is
// recorded, the next step is the next request.
//
// # Bounds
//
// A turn makes at most [MaxRounds] requests. The last one forbids calls; a model that calls tools
// nevertheless receives one more request without any tools. The first [MaxCalls] calls of a round
// are run, [parallel] of them at once, each for at most [Options.CallTime]. Calls of tools that
// wait for another turn count to neither: they may take as long as the turn. Arguments and results
// have at most [MaxArgs] and [MaxResult] bytes, all rounds of a turn together [MaxJournal]. Instead
// of what exceeds a bound, the model receives one sentence, and the turn continues.
//
// # Goroutines
//
// One for each call that runs; it ends with its call, and [Run] waits for all of them. The turn
// stops waiting for a tool that ignores the end of its context after a second, but Run does not
// return before the tool has returned. Events and records are made on the goroutine of Run.
package toolloop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/chat"
)

// The bounds of a turn.
const (
	// MaxRounds is the largest number of requests of a turn to its model. The last one forbids
	// calls; a model that calls tools nevertheless receives one more request without any tools.
	MaxRounds = 16
	// MaxCalls is how many calls of one answer are run; further calls are refused. An answer with
	// more than maxAsked calls ends the turn.
	MaxCalls = 32
	maxAsked = 256
	// maxName bounds the name and the id of a call, in bytes.
	maxName = 128
	// MaxArgs bounds the arguments of one call, in bytes.
	MaxArgs = 32 << 10
	// MaxResult bounds the result of one call, in bytes.
	MaxResult = 64 << 10
	// MaxJournal bounds calls and results of all rounds of a turn together, in bytes. Together with
	// the longest answer it stays below what the store reads at once.
	MaxJournal = 2 << 20
	// DefaultCallTime is how long one call may take.
	DefaultCallTime = 60 * time.Second

	// parallel is how many calls of a round run at once.
	parallel = 4
	// abandon is how long the turn waits for a call whose time has ended.
	abandon = time.Second
)

// Conversation is the content of a request to the model besides the request of the turn.
type Conversation struct {
	// Tools are the tools that the model may call; may be empty.
	Tools []agent.ToolSpec
	// NoCalls is true when the model must answer without calls although the request has Tools.
	NoCalls bool
	// OneCall is true when the model may call one tool at once.
	OneCall bool
	// Rounds are its calls so far, with all results.
	Rounds []agent.Round
}

// Tokens estimates the cost of the conversation besides the request of the turn.
func (c Conversation) Tokens() int {
	n := 0
	for _, tool := range c.Tools {
		n += agent.EstimateTokens(tool.Name + tool.Description + string(tool.Schema))
	}
	for _, round := range c.Rounds {
		n += tokensOf(round)
	}
	return n
}

// Room returns the part of a window that the conversation takes besides the request of the turn:
// its last round is new to the model.
func (c Conversation) Room(ratio agent.Ratio) int {
	n := c.Tokens()
	if last := len(c.Rounds) - 1; last >= 0 {
		newest := tokensOf(c.Rounds[last])
		n += ratio.New(newest) - newest
	}
	return n
}

func tokensOf(round agent.Round) int {
	n := agent.EstimateTokens(round.Text) + agent.EstimateTokens(string(round.Extra))
	for i, call := range round.Calls {
		n += agent.EstimateTokens(call.Name+call.Args+call.Extra) + agent.EstimateTokens(round.Results[i].Text)
	}
	for _, message := range round.Input {
		n += agent.EstimateTokens(message.Text)
	}
	return n
}

// Reply is one complete answer of a model; its text went into the [Text].
type Reply struct {
	Calls []chat.ToolCall
	Extra json.RawMessage
	// Usage of this request alone.
	Usage chat.Usage
	// Estimated is the estimate for the request; 0 if it had pictures, which cannot be estimated
	// well.
	Estimated  int
	StopReason string
}

// Model is one provider.
type Model interface {
	// Ask posts one request and streams the text of the answer into the Text of the loop. With an
	// error, Reply still has the usage that is known.
	Ask(ctx context.Context, conversation Conversation) (Reply, error)
}

// Options of a loop; zero fields take the defaults.
type Options struct {
	// CallTime is how long one call may take; 0 means [DefaultCallTime].
	CallTime time.Duration
	// Window is how many estimated tokens the tools and the rounds of a turn may have
	// ([Conversation.Room]), with the ratio that it was computed with. It is called before each
	// request, because each answer changes the ratio. nil means no bound.
	Window func() (tokens int, ratio agent.Ratio)
	// Shrink makes the window of the turn smaller after a refusal of a conversation that is too
	// long, and reports whether the request may be made again; nil means never.
	Shrink func() bool
	// Learn is called with the estimate for a request and the count of the provider; may be nil.
	Learn func(estimated, counted int)
}

// Run executes a turn: it makes requests until the model answers without calls. The text of the
// answer is in text. After a failure, text keeps what was emitted before it.
func Run(ctx context.Context, req agent.Request, model Model, text *Text, options Options) (agent.Result, error) {
	options.CallTime = cmp.Or(options.CallTime, DefaultCallTime)
	l := &loop{req: req, model: model, text: text, options: options}
	switch {
	case req.Client != nil:
		for _, tool := range req.Client.Tools {
			l.tools = append(l.tools, agent.ToolSpec{Name: tool.Name, Description: tool.Description, Schema: tool.Schema})
		}
	case req.Tools != nil:
		l.tools = req.Tools.Specs()
	}
	defer l.calls.Wait()
	stop, err := l.run(ctx)
	if l.usage.InputTokens > 0 || l.usage.OutputTokens > 0 {
		text.emit(agent.Event{Kind: agent.EventUsage, Usage: l.usage})
	}
	return agent.Result{Text: text.Whole(), Usage: l.usage, StopReason: stop, TooLong: l.tooLong, Calls: l.given}, err
}

type loop struct {
	req     agent.Request
	model   Model
	text    *Text
	options Options
	tools   []agent.ToolSpec
	rounds  []agent.Round
	window  window
	kept    int // bytes of calls and results so far
	usage   chat.Usage
	tooLong bool            // the model refused the conversation
	given   []chat.ToolCall // that the program of the message makes
	calls   sync.WaitGroup  // that run
}

func (l *loop) run(ctx context.Context) (stop string, err error) {
	if err := l.replay(ctx); err != nil {
		return agent.StopNormal, err
	}
	for {
		reply, err := l.ask(ctx)
		reply.Usage = reply.Usage.Clamped()
		l.usage.Add(reply.Usage)
		if l.options.Learn != nil && err == nil {
			l.options.Learn(reply.Estimated, reply.Usage.InputTokens)
		}
		if err != nil || len(reply.Calls) == 0 {
			return reply.StopReason, err
		}
		if l.last() {
			return l.conclude(ctx, reply)
		}
		if l.req.Client != nil {
			return l.give(reply)
		}
		round, err := l.record(ctx, reply)
		if err != nil {
			return agent.StopNormal, err
		}
		if err := l.work(ctx, round, false); err != nil {
			return agent.StopNormal, err
		}
		l.takeInput(round)
	}
}

// last reports whether the next answer must not have calls: the rounds are used up, or the agent no
// longer has the tools that it had when the turn began.
func (l *loop) last() bool {
	if l.req.Client != nil {
		return l.req.Client.NoCalls || len(l.tools) == 0
	}
	return len(l.rounds)+1 >= MaxRounds || len(l.rounds) > 0 && len(l.tools) == 0
}

// give ends a turn with calls that the program of the message makes.
func (l *loop) give(reply Reply) (stop string, err error) {
	if len(reply.Calls) > maxAsked {
		return agent.StopNormal, modelhttp.Fail(chat.FailBadResponse, fmt.Errorf("the model asked for more than %d calls at once", maxAsked))
	}
	calls := l.named(reply.Calls)
	if l.req.Client.OneCall {
		calls = calls[:1] // not every endpoint keeps to it
	}
	for _, call := range calls {
		if len(call.Args) > MaxArgs {
			return agent.StopNormal, agent.NewError(chat.FailOutputLimit, fmt.Sprintf("The model called %s with more than %d bytes of arguments; ask for less at once.", call.Name, MaxArgs), nil)
		}
	}
	l.given = calls
	return chat.StopCalls, nil
}

// conclude ends a turn whose model calls tools in an answer that must not have calls. The text of
// that reply is the answer. If it is empty, the model receives one more request, without tools and
// with the rounds as text, so that nothing in the request suggests a call.
func (l *loop) conclude(ctx context.Context, reply Reply) (stop string, err error) {
	if l.text.Begun() {
		return reply.StopReason, nil
	}
	if err := l.allow(ctx); err != nil {
		return agent.StopNormal, err
	}
	l.text.nextRound()
	l.measure()
	reply, err = l.model.Ask(ctx, Conversation{Rounds: []agent.Round{retold(l.window.fit(l.rounds, nil))}})
	l.usage.Add(reply.Usage.Clamped())
	if err == nil && len(reply.Calls) > 0 && !l.text.Begun() {
		err = modelhttp.Fail(chat.FailBadResponse, fmt.Errorf("the model asked for tools in %d answers, the last of which had none", MaxRounds+1))
	}
	return reply.StopReason, err
}

// retold returns the results of rounds as one round without calls.
func retold(rounds []agent.Round) agent.Round {
	var called []string
	var all agent.Round
	for _, round := range rounds {
		for i, call := range round.Calls {
			called = append(called, call.Name+" "+call.Args+": "+round.Results[i].Text)
		}
		all.Input = append(all.Input, round.Input...)
	}
	all.Text = "I have called tools."
	text := "These calls were made and returned:\n" + strings.Join(called, "\n") + "\nNo further call is possible. Answer with what you know now."
	all.Input = append(all.Input, chat.Content{Text: text, System: true})
	return all
}

// allow calls BeforeRound, which may refuse a request.
func (l *loop) allow(ctx context.Context) error {
	if l.req.BeforeRound == nil {
		return nil
	}
	return l.req.BeforeRound(ctx)
}

// replay takes over the rounds that earlier attempts have recorded.
func (l *loop) replay(ctx context.Context) error {
	if l.req.Client != nil { // their text belongs to earlier answers
		for _, round := range l.req.Client.Rounds {
			l.rounds = append(l.rounds, agent.Round{Round: round})
		}
		return nil
	}
	if l.req.Journal == nil {
		return nil
	}
	l.rounds = append(l.rounds, l.req.Journal.Rounds()...)
	if len(l.rounds) == 0 {
		return nil
	}
	var texts []string
	for i := range l.rounds {
		round := &l.rounds[i]
		round.Results = append([]*chat.ToolResult(nil), round.Results...) // the slice belongs to the caller
		l.usage.Add(round.Usage)
		l.kept += size(round.Round)
		if round.Text != "" {
			texts = append(texts, round.Text)
		}
	}
	if err := l.text.Append(strings.Join(texts, between)); err != nil {
		return err
	}
	for i := range l.rounds {
		if err := l.work(ctx, i, true); err != nil {
			return err
		}
	}
	l.takeInput(len(l.rounds) - 1)
	return nil
}

// takeInput adds the messages that arrived while the calls of a round ran.
func (l *loop) takeInput(index int) {
	if round := &l.rounds[index]; l.req.TakeInput != nil {
		round.Input = append(slices.Clip(round.Input), l.req.TakeInput()...)
	}
}

// ask makes one request, and once more with a smaller part of the conversation if it was refused as
// too long.
func (l *loop) ask(ctx context.Context) (Reply, error) {
	for again := false; ; again = true {
		conversation := Conversation{Tools: l.tools, Rounds: l.rounds, NoCalls: l.last()}
		if len(l.rounds) > 0 && len(l.tools) == 0 { // the agent had tools when the turn began; providers want to see those that were called
			conversation.Tools = calledTools(l.rounds)
		}
		conversation.OneCall = l.req.Client != nil && l.req.Client.OneCall
		l.bound(&conversation)
		if err := l.allow(ctx); err != nil {
			return Reply{StopReason: agent.StopNormal}, err
		}
		l.text.nextRound()
		reply, err := l.model.Ask(ctx, conversation)
		l.tooLong = l.tooLong || agent.ReasonOf(err) == chat.FailContextLength
		if again || agent.ReasonOf(err) != chat.FailContextLength || l.text.Begun() || l.options.Shrink == nil || !l.options.Shrink() {
			return reply, err
		}
	}
}

// bound cuts the rounds to the window, and offers the tool that reads what was left out.
func (l *loop) bound(c *Conversation) {
	l.measure()
	c.Rounds = l.window.fit(l.rounds, c.Tools)
	if l.req.Client == nil && len(l.window.kept) > 0 && len(l.tools) > 0 && l.spec(chat.ToolCall{Name: resultTool}).Name == "" {
		c.Tools = append(slices.Clip(c.Tools), resultSpec())
	}
}

// measure updates the size of the window for the rounds.
func (l *loop) measure() {
	if l.options.Window != nil {
		l.window.tokens, l.window.ratio = l.options.Window()
	}
}

// calledTools returns the tools of recorded rounds, with the fields that a provider needs.
func calledTools(rounds []agent.Round) []agent.ToolSpec {
	var specs []agent.ToolSpec
	seen := map[string]bool{}
	for _, round := range rounds {
		for _, call := range round.Calls {
			if !seen[call.Name] {
				seen[call.Name] = true
				specs = append(specs, agent.ToolSpec{Name: call.Name, Schema: json.RawMessage(`{"type":"object"}`)})
			}
		}
	}
	return specs
}

// record commits the calls of the model and returns the index of the round.
func (l *loop) record(ctx context.Context, reply Reply) (int, error) {
	round := chat.Round{
		Number: len(l.rounds) + 1, Text: l.text.Round(), Calls: l.named(reply.Calls), Usage: reply.Usage, Extra: reply.Extra,
		Results: make([]*chat.ToolResult, len(reply.Calls)),
	}
	l.kept += size(round)
	switch {
	case l.req.Journal == nil || len(l.tools) == 0:
		return 0, modelhttp.Fail(chat.FailBadResponse, errors.New("the model asked for tools and was offered none"))
	case len(round.Calls) > maxAsked:
		return 0, modelhttp.Fail(chat.FailBadResponse, fmt.Errorf("the model asked for more than %d calls at once", maxAsked))
	case l.kept > MaxJournal:
		return 0, agent.NewError(chat.FailOutputLimit, fmt.Sprintf("The tools of this turn were given more than %d bytes; ask for less at once.", MaxJournal), nil)
	}
	if err := l.req.Journal.Record(ctx, round); err != nil {
		return 0, unrecorded(ctx, err)
	}
	l.rounds = append(l.rounds, agent.Round{Round: round})
	return len(l.rounds) - 1, nil
}

// CallID returns an id for a call of a round in the form that every endpoint takes: nine letters
// and digits.
func CallID(round, call int) string { return fmt.Sprintf("call%02d%03d", round%100, (call+1)%1000) }

// named gives each call an id that is unique in the turn where the model gave none or repeated one,
// and cuts arguments that are too long: such calls are not run.
func (l *loop) named(calls []chat.ToolCall) []chat.ToolCall {
	out, seen := make([]chat.ToolCall, 0, len(calls)), map[string]bool{"": true, "null": true}
	for _, round := range l.rounds {
		for _, call := range round.Calls {
			seen[call.ID] = true
		}
	}
	for i, call := range calls {
		call.Name, call.Args = chat.Cut(chat.CleanText(call.Name), maxName), chat.CleanText(call.Args)
		if call.ID = chat.Cut(chat.CleanText(call.ID), maxName); seen[call.ID] {
			call.ID = CallID(len(l.rounds)+1, i)
		}
		seen[call.ID] = true
		if len(call.Args) > MaxArgs {
			call.Args = chat.Cut(call.Args, MaxArgs+utf8Max)
		}
		out = append(out, call)
	}
	return out
}

// utf8Max keeps cut arguments longer than [MaxArgs], so that they are recognised as too long when
// they are read again.
const utf8Max = 4

func size(round chat.Round) int {
	n := len(round.Extra)
	for i, call := range round.Calls {
		n += len(call.Args)
		if result := round.Results[i]; result != nil {
			n += len(result.Text)
		}
	}
	return n
}

// unrecorded returns the error of a turn whose journal could not be written.
func unrecorded(ctx context.Context, err error) error {
	if ended := agent.Ended(ctx); ended != nil {
		return ended
	}
	return agent.NewError(chat.FailUnknown, "What the agent asked for could not be stored; try again.", err)
}

// between separates the text of two rounds.
const between = "\n\n"

// Text collects the text of a turn over its rounds. It belongs to the goroutine of Run.
type Text struct {
	emit   func(agent.Event)
	answer *agent.Answer
	start  int // where the text of the round begins
	gap    bool
}

// NewText makes an empty Text of at most limit bytes; limit <= 0 means [agent.DefaultMaxAnswer].
func NewText(limit int, emit func(agent.Event)) *Text {
	return &Text{emit: emit, answer: agent.NewAnswer(limit, emit)}
}

// nextRound starts the text of the next round.
func (t *Text) nextRound() {
	t.start = len(t.answer.Text())
	t.gap = t.start > 0
}

// Append adds text of the round, see [agent.Answer.Append].
func (t *Text) Append(text string) error {
	if text == "" {
		return nil
	}
	if t.gap {
		t.gap = false
		if err := t.answer.Append(between); err != nil {
			return err
		}
		t.start += len(between)
	}
	return t.answer.Append(text)
}

// Begun reports whether anything of the round was emitted; after that its request must not be
// repeated.
func (t *Text) Begun() bool { return len(t.answer.Text()) > t.start }

// Round returns the text of the round.
func (t *Text) Round() string { return t.answer.Text()[t.start:] }

// Whole returns the text of the turn.
func (t *Text) Whole() string { return t.answer.Text() }

// Images are the pictures of the new input, read once for a turn.
type Images struct {
	List []agent.Image
	left string // lines about pictures that are not shown
}

// ImagesOf reads the pictures of a request.
func ImagesOf(req agent.Request) Images {
	var i Images
	i.List, i.left = agent.Images(req)
	return i
}

// Tokens estimates the cost of the pictures.
func (i *Images) Tokens() int { return len(i.List) * agent.ImageTokens }

// Text returns the text of the new input with the lines about pictures that are not shown.
func (i *Images) Text(input string) string {
	if i.left == "" {
		return input
	}
	return input + "\n" + i.left
}

// Refused reports whether an endpoint has refused a request because of its pictures. If so, it
// removes them, so that the same request can be sent without pictures. The next turn sends its
// pictures again: one picture may be broken and the next one not.
func (i *Images) Refused(err error) bool {
	var refusal *modelhttp.StatusError
	if len(i.List) == 0 || !errors.As(err, &refusal) {
		return false
	}
	words := strings.ToLower(refusal.Message)
	for _, sign := range []string{"image", "vision", "multimodal", "multi-modal", "content must be a string", "content.str"} {
		if strings.Contains(words, sign) {
			i.List = nil
			i.left = strings.TrimPrefix(i.left+"\n[the model cannot be shown pictures]", "\n")
			return true
		}
	}
	return false
}
