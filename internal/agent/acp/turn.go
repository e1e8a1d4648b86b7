package acp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
)

// maxEvents is how many updates are queued for the turn before the agent has to wait.
const maxEvents = 256

// turn is one prompt in progress. The fields above the blank line are also used by the goroutines
// of the connection.
type turn struct {
	session      sdk.SessionId // of the agent; updates of other sessions are not part of the turn
	updates      chan sdk.SessionUpdate
	ctx          context.Context //nolint:containedctx // ends when the turn ends or is stopped; later updates are dropped
	stop         context.CancelFunc
	asker        agent.Asker
	asking       chan struct{} // a semaphore of maxQuestions
	questionTime time.Duration
	reads        *reads

	answer *agent.Answer
	emit   func(agent.Event)
	calls  map[sdk.ToolCallId]string // names of the calls without a result
	known  map[sdk.ToolCallId]bool   // calls that have started
	dir    string                    // for the files of the answer; "" = there is none
	images int                       // of the agent's messages, as files in dir
	gap    bool                      // a call has started since the last piece of text
	pieces chat.Usage                // usage reported with pieces of text
}

func (r *Runner) newTurn(req agent.Request, emit func(agent.Event)) *turn {
	return &turn{
		updates: make(chan sdk.SessionUpdate, maxEvents), asker: req.Asker, asking: make(chan struct{}, maxQuestions), questionTime: r.cfg.QuestionTime,
		reads: newReads(req), answer: agent.NewAnswer(r.cfg.MaxAnswer, emit), emit: emit, calls: map[sdk.ToolCallId]string{}, known: map[sdk.ToolCallId]bool{},
	}
}

// update queues an update. It waits while the queue is full.
func (t *turn) update(u sdk.SessionUpdate) {
	select {
	case t.updates <- u:
	case <-t.ctx.Done():
	}
}

// prompted is the result of a prompt.
type prompted struct {
	response sdk.PromptResponse
	err      error
}

// run makes one turn: it sends the prompt and applies updates until the response ends the turn.
func (p *peer) run(ctx context.Context, req agent.Request, access agent.ToolAccess, t *turn) (agent.Result, error) {
	dir := ""
	if req.OutputDir != nil {
		var err error
		if dir, err = req.OutputDir(); err != nil {
			p.log.WarnContext(ctx, "an agent gets no directory for files", "err", err)
		}
	}
	t.dir = dir
	blocks, err := p.blocks(ctx, req, access, dir)
	if err != nil {
		return agent.Result{}, p.failure(ctx, err)
	}
	if p.unstored {
		p.remember(ctx)
	}
	t.session, p.linesBefore, t.reads.dir = p.id, p.proc.Lines(), p.dir
	defer t.reads.end()
	t.ctx, t.stop = context.WithCancel(ctx)
	defer t.stop()
	p.setTurn(t)
	defer p.setTurn(nil)
	end := make(chan prompted, 1)
	send := func() {
		response, err := p.conn.Prompt(context.WithoutCancel(ctx), sdk.PromptRequest{SessionId: p.id, Prompt: blocks})
		end <- prompted{response, err}
	}
	if !p.pool.spawn(send) {
		return agent.Result{}, agent.NewError(chat.FailUnknown, "The gateway is about to end; try again later.", errClosed)
	}
	p.memory = p.memory.With(req)
	how, err := p.follow(t, end)
	p.remember(ctx)
	result := agent.Result{Text: t.answer.Text(), Usage: p.reported(t, how.response), StopReason: agent.StopNormal}
	t.endCalls()
	switch {
	case agent.Ended(ctx) != nil:
		return result, agent.Ended(ctx)
	case err != nil:
		return result, err
	case how.err != nil:
		return result, p.failure(ctx, how.err)
	}
	if result.Usage.InputTokens+result.Usage.OutputTokens > 0 {
		t.emit(agent.Event{Kind: agent.EventUsage, Usage: result.Usage})
	}
	if result.StopReason, err = stopReason(how.response.StopReason); err != nil {
		return result, err
	}
	result.Attachments, err = program.Files(dir)
	return result, err
}

// follow applies updates until the prompt ends. err is the error of an update; the prompt was then
// cancelled.
func (p *peer) follow(t *turn, end <-chan prompted) (how prompted, err error) {
	for err == nil {
		select {
		case u := <-t.updates:
			err = t.take(u)
		case how = <-end:
			return how, t.rest()
		case <-t.ctx.Done():
			return p.cancel(end), nil
		}
	}
	t.stop()
	return p.cancel(end), err
}

// cancel ends a prompt by session/cancel, and by ending the process if that does not help. The next
// turn of the session then starts another process.
func (p *peer) cancel(end <-chan prompted) prompted {
	p.pool.spawn(func() { // an agent that does not read would block this
		_ = p.conn.Cancel(context.Background(), sdk.CancelNotification{SessionId: p.id}) //nolint:forbidigo // the timeout below handles a failure
	})
	timer := time.NewTimer(cancelTime)
	defer timer.Stop()
	select {
	case how := <-end:
		return how
	case <-timer.C:
	}
	p.log.Warn("an agent did not end its turn after session/cancel; its process is ended")
	p.kill(errNotCancelled)
	<-p.gone
	return <-end
}

// rest applies the updates that arrived before the response.
func (t *turn) rest() error {
	for {
		select {
		case u := <-t.updates:
			if err := t.take(u); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// stopReason maps a stop reason of the protocol.
func stopReason(reason sdk.StopReason) (string, error) {
	switch reason {
	case sdk.StopReasonEndTurn:
		return agent.StopNormal, nil
	case sdk.StopReasonMaxTokens:
		return agent.StopLength, nil
	case sdk.StopReasonMaxTurnRequests:
		return agent.StopNormal, agent.NewError(chat.FailBadResponse, "The agent asked its model more often than it may in one turn; ask for less at once.", nil)
	case sdk.StopReasonRefusal:
		return agent.StopNormal, agent.NewError(chat.FailRefusal, "The agent declined to continue; ask in another way.", nil)
	case sdk.StopReasonCancelled:
		return agent.StopNormal, agent.NewError(chat.FailProgram, "The agent ended the turn before its answer was complete; try again.", nil)
	default:
		return agent.StopNormal, nil
	}
}

const (
	// maxShown bounds arguments and results in events, maxTitle the names of calls, in bytes.
	maxShown = 16 << 10
	maxTitle = 200
	// maxCalls is how many calls of a turn are remembered.
	maxCalls = 1000
)

var errNotCancelled = errors.New("the agent did not end its turn")

// take applies one update of the agent. Its error ends the turn.
func (t *turn) take(u sdk.SessionUpdate) error {
	switch {
	case u.AgentMessageChunk != nil:
		t.besidePiece(u.AgentMessageChunk.Meta)
		if image := u.AgentMessageChunk.Content.Image; image != nil {
			return t.picture(image)
		}
		return t.text(u.AgentMessageChunk.Content)
	case u.ToolCall != nil:
		t.call(u.ToolCall)
	case u.ToolCallUpdate != nil:
		t.callUpdate(u.ToolCallUpdate)
	}
	return nil
}

// text adds a piece of the answer. A tool call between two pieces starts a new paragraph.
func (t *turn) text(block sdk.ContentBlock) error {
	if block.Text == nil || block.Text.Text == "" {
		return nil
	}
	text := block.Text.Text
	if t.gap {
		t.gap = false
		first, _ := utf8.DecodeRuneInString(text)
		if t.answer.Begun() && !unicode.IsSpace(first) && !strings.HasSuffix(t.answer.Text(), "\n") {
			text = "\n\n" + text
		}
	}
	return t.answer.Append(text)
}

// maxImages is how many images of a turn become files.
const maxImages = 20

// imageEnding is the end of the name of an image; "" for a kind that people cannot open.
func imageEnding(mime string) string {
	switch mime {
	case "image/png", "image/gif", "image/webp":
		return "." + strings.TrimPrefix(mime, "image/")
	case "image/jpeg":
		return ".jpg"
	case "image/svg+xml":
		return ".svg"
	}
	return ""
}

// picture makes an image in a message a file of the answer. What cannot become one is a line of the
// text, so that its reader knows that something is missing.
func (t *turn) picture(image *sdk.ContentBlockImage) error {
	if t.images++; t.images > maxImages+1 {
		return nil
	}
	ending := imageEnding(image.MimeType)
	data, err := base64.StdEncoding.DecodeString(image.Data)
	if t.images > maxImages || ending == "" || err != nil || t.dir == "" || t.write(ending, data) != nil {
		t.gap = true
		return t.text(sdk.TextBlock("[an image of the agent could not be kept]"))
	}
	return nil
}

// write adds a file to the answer. It replaces none that the agent has made.
func (t *turn) write(ending string, data []byte) (err error) {
	file, err := os.OpenFile(filepath.Join(t.dir, fmt.Sprintf("image-%d%s", t.images, ending)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.Write(data)
	return err
}

func (t *turn) call(c *sdk.SessionUpdateToolCall) {
	if t.known[c.ToolCallId] {
		t.callUpdate(&sdk.SessionToolCallUpdate{ToolCallId: c.ToolCallId, Title: &c.Title, Status: &c.Status, RawOutput: c.RawOutput, Content: c.Content})
		return
	}
	t.gap = true
	name := chat.Cut(chat.Printable(c.Title), maxTitle)
	if len(t.known) < maxCalls {
		t.calls[c.ToolCallId], t.known[c.ToolCallId] = name, true
	}
	t.tool(chat.ToolEvent{Phase: "start", CallID: string(c.ToolCallId), Name: name, Args: shown(c.RawInput)})
	t.ended(c.ToolCallId, c.Status, c.RawOutput, c.Content)
}

// callUpdate uses the title of an update, because some agents set it only after the call has
// started. The first update of an unknown call starts it, because some agents announce a call only
// by its permission request.
func (t *turn) callUpdate(c *sdk.SessionToolCallUpdate) {
	title := ""
	if c.Title != nil {
		title = *c.Title
	}
	if !t.known[c.ToolCallId] && len(t.known) < maxCalls {
		t.call(&sdk.SessionUpdateToolCall{ToolCallId: c.ToolCallId, Title: cmp.Or(title, "tool"), RawInput: c.RawInput})
	}
	status := sdk.ToolCallStatus("")
	if c.Status != nil {
		status = *c.Status
	}
	was, open := t.calls[c.ToolCallId]
	name := was
	if open && title != "" {
		name = chat.Cut(chat.Printable(title), maxTitle)
		t.calls[c.ToolCallId] = name
	}
	if t.ended(c.ToolCallId, status, c.RawOutput, c.Content) {
		return
	}
	if open && (status == sdk.ToolCallStatusInProgress || name != was) {
		t.tool(chat.ToolEvent{Phase: "update", CallID: string(c.ToolCallId), Name: name, Result: string(status)})
	}
}

// ended emits the result of a call that has completed or failed.
func (t *turn) ended(id sdk.ToolCallId, status sdk.ToolCallStatus, output any, content []sdk.ToolCallContent) bool {
	name, open := t.calls[id]
	if !open || (status != sdk.ToolCallStatusCompleted && status != sdk.ToolCallStatusFailed) {
		return false
	}
	delete(t.calls, id)
	result := shown(output)
	if output == nil {
		result = shown(textOf(content))
	}
	t.tool(chat.ToolEvent{Phase: "result", CallID: string(id), Name: name, Result: result, IsError: status == sdk.ToolCallStatusFailed})
	return true
}

// endCalls emits a result for each call that is unfinished at the end of the turn.
func (t *turn) endCalls() {
	for _, id := range slices.Sorted(maps.Keys(t.calls)) {
		t.tool(chat.ToolEvent{Phase: "result", CallID: string(id), Name: t.calls[id], Result: `"it was not finished"`, IsError: true})
	}
}

func (t *turn) tool(e chat.ToolEvent) { t.emit(agent.Event{Kind: agent.EventTool, Tool: &e}) }

func textOf(content []sdk.ToolCallContent) string {
	var parts []string
	for _, c := range content {
		if c.Content != nil && c.Content.Content.Text != nil {
			parts = append(parts, c.Content.Content.Text.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// shown returns a value as JSON, cut at maxShown, and "" for nil.
func shown(value any) string {
	if value == nil {
		return ""
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return chat.Cut(string(raw), maxShown)
}

// reads finds out whether a call shows the agent text from outside, see [agent.Request.Outside].
// Calls that fetch, search or execute do, calls that read a file outside of the directory, and
// calls of a kind that is not known, except those of the gateway's own tools. Agents describe a
// call in several updates: one that does not say enough yet is judged by its last one. The
// goroutines of the connection use it.
type reads struct {
	found func()
	own   *regexp.Regexp // the names that agents give to the gateway's tools
	dir   string         // of the session

	mu    sync.Mutex
	calls map[sdk.ToolCallId]readCall // those that are not judged
	done  map[sdk.ToolCallId]bool
}

// readCall is what is known of a call.
type readCall struct {
	kind  sdk.ToolKind
	title string
	paths []string
}

func newReads(req agent.Request) *reads {
	r := &reads{found: req.ReadsOutside, calls: map[sdk.ToolCallId]readCall{}, done: map[sdk.ToolCallId]bool{}}
	if req.Tools == nil {
		return r
	}
	var names []string
	for _, spec := range req.Tools.Specs() {
		names = append(names, regexp.QuoteMeta(spec.Name))
	}
	// `mcp__laneway__laneway_remind`, `Tool: laneway/laneway_remind`,
	// `laneway_remind (laneway MCP Server)`: the name is at the beginning, where arguments cannot
	// be.
	r.own = regexp.MustCompile(`(?i)^(?:tool: *)?(?:mcp[_-]+)?(?:laneway[^a-z0-9]+)+(?:` + strings.Join(names, "|") + `)(?:$|[^a-z0-9_]|__)`)
	return r
}

// see applies an update.
func (r *reads) see(u sdk.SessionUpdate) {
	switch {
	case u.ToolCall != nil:
		c := u.ToolCall
		r.add(c.ToolCallId, readCall{c.Kind, c.Title, readPaths(c.Locations, c.RawInput)}, c.Status)
	case u.ToolCallUpdate != nil:
		c := u.ToolCallUpdate
		r.add(c.ToolCallId, readCall{deref(c.Kind), deref(c.Title), readPaths(c.Locations, c.RawInput)}, deref(c.Status))
	}
}

func (r *reads) add(id sdk.ToolCallId, more readCall, status sdk.ToolCallStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[id] {
		return
	}
	c := r.calls[id]
	c.kind, c.title, c.paths = cmp.Or(more.kind, c.kind), cmp.Or(more.title, c.title), append(c.paths, more.paths...)
	outside, judged := r.judge(id, c, status == sdk.ToolCallStatusCompleted || status == sdk.ToolCallStatusFailed)
	switch {
	case outside:
		r.found()
		fallthrough
	case judged && len(r.done) < maxCalls:
		delete(r.calls, id)
		r.done[id] = true
	case len(r.calls) < maxCalls:
		r.calls[id] = c
	default:
		r.found() // too many calls to remember
	}
}

// judge decides about a call; ended means that nothing more will be known about it.
func (r *reads) judge(id sdk.ToolCallId, c readCall, ended bool) (outside, judged bool) {
	switch c.kind {
	case sdk.ToolKindEdit, sdk.ToolKindDelete, sdk.ToolKindMove, sdk.ToolKindThink, sdk.ToolKindSwitchMode:
		return false, ended // a later update may have another kind
	case sdk.ToolKindFetch, sdk.ToolKindSearch, sdk.ToolKindExecute:
		return true, true
	case sdk.ToolKindRead:
		away := slices.ContainsFunc(c.paths, func(path string) bool { return !within(r.dir, path) })
		return away || ended && len(c.paths) == 0, away || ended
	default: // other kinds are judged by their names below
	}
	if r.own != nil && (r.own.MatchString(c.title) || r.own.MatchString(string(id))) {
		return false, true
	}
	return c.title != "" || ended, c.title != "" || ended
}

// end judges the calls that are left at the end of the turn.
func (r *reads) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, c := range r.calls {
		if outside, _ := r.judge(id, c, true); outside {
			r.found()
		}
	}
}

// readPaths returns the files that a call names.
func readPaths(locations []sdk.ToolCallLocation, input any) (paths []string) {
	for _, at := range locations {
		paths = append(paths, at.Path)
	}
	if path := arguments(input).take("file_path", "filePath", "path", "abs_path", "absolute_path"); path != "" {
		paths = append(paths, path)
	}
	return paths
}

// within reports whether a path is in a directory. Links are not followed.
func within(dir, path string) bool {
	path = strings.TrimPrefix(path, "file://")
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// counts are token counts, with all field names that agents use.
type counts struct {
	Input  int `json:"inputTokens"`
	Output int `json:"outputTokens"`
	Read   int `json:"cachedReadTokens"`
	Write  int `json:"cachedWriteTokens"`
	Think  int `json:"thoughtTokens"`
	Total  int `json:"totalTokens"`
	// Gemini CLI uses these names.
	InputTokens  int `json:"input_tokens"`  // a foreign wire
	OutputTokens int `json:"output_tokens"` // a foreign wire
}

// reported returns the usage of a turn: from the field of the protocol in its response, else from
// the response's metadata, else the sum over its pieces of text.
func (p *peer) reported(t *turn, response sdk.PromptResponse) chat.Usage {
	switch beside := besideResponse(response.Meta); {
	case response.Usage != nil:
		return p.ofTurn(usageOf(protocolCounts(*response.Usage)))
	case beside != (counts{}):
		return usageOf(beside)
	default:
		return t.pieces
	}
}

// ofTurn returns the usage of the turn, also for an agent that reports the total of its session.
func (p *peer) ofTurn(reported chat.Usage) chat.Usage {
	if !p.cfg.UsageOfSession {
		return reported
	}
	return p.memory.UsedBy(reported)
}

func protocolCounts(u sdk.Usage) counts {
	value := func(n *int) int {
		if n == nil {
			return 0
		}
		return *n
	}
	return counts{
		Input: u.InputTokens, Output: u.OutputTokens, Total: u.TotalTokens, Read: value(u.CachedReadTokens), Write: value(u.CachedWriteTokens), Think: value(u.ThoughtTokens),
	}
}

// besideResponse returns the counts that Gemini CLI reports in the metadata.
func besideResponse(meta map[string]any) counts {
	var beside struct {
		Quota struct {
			Count counts `json:"token_count"` // a foreign wire
		} `json:"quota"`
	}
	decode(meta, &beside)
	return beside.Quota.Count
}

// besidePiece adds the counts of one model request, which Qwen Code reports in the metadata of an
// empty piece of text.
func (t *turn) besidePiece(meta map[string]any) {
	var beside struct {
		Usage counts `json:"usage"`
	}
	if decode(meta, &beside); beside.Usage != (counts{}) {
		t.pieces.Add(usageOf(beside.Usage))
		t.pieces.Provider = "acp"
	}
}

// decode leaves out fields of other types.
func decode(meta map[string]any, into any) {
	if len(meta) == 0 {
		return
	}
	raw, err := json.Marshal(meta)
	if err == nil {
		_ = json.Unmarshal(raw, into) // see above
	}
}

// usageOf returns clamped counts. Some agents include cached tokens in the input and thoughts in
// the output, others count them separately; the total shows which.
func usageOf(c counts) chat.Usage {
	u := chat.Usage{InputTokens: chat.Tokens(c.Input, c.InputTokens), OutputTokens: chat.Tokens(c.Output, c.OutputTokens), CachedTokens: chat.Tokens(c.Read), Provider: "acp"}
	if cached := chat.Tokens(c.Read, c.Write); c.Total >= chat.Tokens(u.InputTokens, u.OutputTokens, cached) {
		u.InputTokens = chat.Tokens(u.InputTokens, cached)
	}
	if c.Total >= chat.Tokens(u.InputTokens, u.OutputTokens, c.Think) {
		u.OutputTokens = chat.Tokens(u.OutputTokens, c.Think)
	}
	return u.Clamped()
}
