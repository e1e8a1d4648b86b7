package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"laneway/internal/chat"
)

// Line is one message of a conversation in the form for a model.
type Line struct {
	// Role is [chat.RoleUser] or [chat.RoleAssistant].
	Role string
	Text string
}

// Prompt returns the new input of a request as one string: the text of all its messages in order. A
// message shows the name of its sender when several people speak. Text without authority (webhooks,
// forwarded text) is quoted with `> ` on every line, so that it cannot end its own quotation;
// system events and attachments are in brackets.
func Prompt(req Request) string { return PromptAfter(req, nil) }

// PromptAfter is [Prompt] for an agent that also has entries of the conversation: an answered
// message that is one of them is only named, so that its text stands once.
func PromptAfter(req Request, past []chat.TranscriptEntry) string {
	named := req.Session.Kind() == chat.KindGroup || severalSenders(req.Messages)
	parts := make([]string, 0, len(req.Messages))
	for _, message := range req.Messages {
		parts = append(parts, render(message, named, past))
	}
	return strings.Join(parts, "\n")
}

// Repeated returns the notice for an agent without a journal that a turn is attempted again; "" in
// the first attempt.
func Repeated(req Request) string {
	switch {
	case req.Attempt <= 1:
		return ""
	case req.CallOnce:
		return fmt.Sprintf("attempt %d: an earlier one did not succeed; check what was done before you repeat it", req.Attempt)
	case req.Attempt == 2:
		return "attempt 2: the first one ended when the gateway stopped; check what was done before you repeat it"
	default:
		return fmt.Sprintf("attempt %d: the earlier ones ended when the gateway stopped; check what was done before you repeat it", req.Attempt)
	}
}

// PlainText returns only the text of the messages of a request, joined by newlines.
func PlainText(req Request) string {
	parts := make([]string, 0, len(req.Messages))
	for _, message := range req.Messages {
		parts = append(parts, message.Text)
	}
	return strings.Join(parts, "\n")
}

// Conversation returns a request in the form that a model requires: a system prompt, then lines
// that begin with the user, alternate, and end with the new input. Providers and the chat templates
// of open models refuse anything else. The person's clock is part of the new input, so that
// everything before it stays the same for the caches of providers. History is cut with [CutHistory]
// so that the whole fits into room; the new input is never cut. Empty lines and the replies to chat
// commands are left out. Adjacent entries of the same role become one line. System notes from the
// transcript are shown in brackets as the user, because only the operator may write as the system.
// So are answers before the first message of a person.
func Conversation(req Request, system string, room Room) (string, []Line) {
	system, input := fixed(req, system, nil)
	past := CutHistory(earlier(req), room.left(system, input))
	if slices.ContainsFunc(req.Messages, func(m chat.Content) bool { return m.Answered != nil }) {
		_, input = fixed(req, system, past) // only a reply depends on what the agent has
	}
	asNotes(past, req.Zone)
	lines := make([]Line, 0, len(past)+1)
	for _, entry := range past {
		lines = appendLine(lines, lineOf(entry, req.Session.Kind() == chat.KindGroup))
	}
	lines = appendLine(lines, Line{Role: chat.RoleUser, Text: input})
	return system, lines
}

// fixed returns what is never cut: the system prompt and the new input after past.
func fixed(req Request, system string, past []chat.TranscriptEntry) (prompt, input string) {
	if req.SystemPrompt != "" {
		system = req.SystemPrompt
	}
	input = PromptAfter(req, past)
	if req.Clock != "" {
		input = "[note] For the person it is " + req.Clock + ".\n" + input
	}
	return system, input
}

// Room is the part of a context window that a request may fill.
type Room struct {
	// Window is the context window of the model; Reserve is left for the answer and for pictures.
	// Both are tokens as the provider counts them.
	Window, Reserve int
	// Rounds is the number of tokens of the tools and rounds of the turn, as [Ratio.Window] counts
	// them.
	Rounds int
	Ratio  Ratio
}

// left returns how many estimated tokens are left besides the system prompt and the new input. If
// the provider counts that input as [Ratio.New], half of the reserve is still left.
func (r Room) left(system, input string) int {
	estimate := EstimateTokens(input)
	fits := min(r.Ratio.Window(r.Window-r.Reserve)-estimate, r.Ratio.Window(r.Window-r.Reserve/2)-r.Ratio.New(estimate))
	return fits - r.Rounds - EstimateTokens(system) - 2*entryOverhead
}

// EstimateRequest returns the estimate of a conversation without its tools and rounds.
func EstimateRequest(system string, lines []Line) int {
	n := EstimateTokens(system)
	for _, line := range lines {
		n += EstimateTokens(line.Text) + entryOverhead
	}
	return n
}

// RoundTokens returns how many estimated tokens the tools and rounds of a turn may have. A quarter
// of the room is kept for the conversation before the turn, if it has one.
func RoundTokens(req Request, system string, room Room) int {
	left := room.left(fixed(req, system, nil))
	if len(req.History) > 0 {
		left = left * 3 / 4
	}
	return max(left, 256)
}

// earlier returns the conversation before the new input: the transcript, then the context that the
// messages brought.
func earlier(req Request) []chat.TranscriptEntry {
	all := make([]chat.TranscriptEntry, 0, len(req.History))
	add := func(entries []chat.TranscriptEntry) {
		for _, entry := range entries {
			if !entry.Command && strings.TrimSpace(entry.Text) != "" {
				all = append(all, entry)
			}
		}
	}
	add(req.History)
	for _, message := range req.Messages {
		add(message.Context)
	}
	return all
}

// asNotes turns what is not part of the conversation of an agent into notes.
func asNotes(all []chat.TranscriptEntry, zone *time.Location) {
	for i := range all {
		if o := all[i].Origin; o != nil { // so that a model does not take it for its own words, and cannot copy its label
			all[i].Role, all[i].Text = chat.RoleSystem, written(all[i].At, zone)+o.Who()+" wrote here:\n"+quoted(all[i].Text)
		}
	}
	for i := range all { // what was delivered into a new session, as the answer of a job
		if all[i].Role != chat.RoleAssistant {
			break
		}
		all[i].Role, all[i].Text = chat.RoleSystem, "The agent wrote here:\n"+quoted(all[i].Text)
	}
}

// mostNotes is how many entries of others between two messages of people an agent gets.
const mostNotes = 20

// Fold limits what others wrote into a conversation, so that a job that writes often does not
// displace it: the newest entries, at most mostNotes between two messages of people, which have at
// most budget tokens. The newest entry always stays. One entry counts the others, at the place of
// the newest of them.
func Fold(entries []chat.TranscriptEntry, budget int) []chat.TranscriptEntry {
	folded, counts := map[int]bool{}, map[string]int{}
	at, since, kept, more := -1, 0, 0, false
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		switch {
		case e.Folded != nil:
			for who, n := range e.Folded {
				counts[who] += n
			}
			more = more || len(folded) > 0
		case e.Origin == nil:
			if e.Role == chat.RoleUser {
				since = 0
			}
			continue
		case since < mostNotes && (budget >= EstimateEntry(*e) || kept == 0):
			budget -= EstimateEntry(*e)
			since++
			kept++
			continue
		default:
			if since < mostNotes { // the older ones are not newer than this one
				budget = -1
			}
			counts[strings.TrimSuffix(e.Origin.Who(), ",")]++
			more = true
		}
		folded[i], at = true, max(at, i)
	}
	if !more {
		return entries
	}
	out := make([]chat.TranscriptEntry, 0, len(entries)-len(folded)+1)
	for i, e := range entries {
		if i == at {
			out = append(out, chat.TranscriptEntry{Seq: e.Seq, Role: chat.RoleSystem, Text: foldedText(counts), Folded: counts, At: e.At})
		}
		if !folded[i] {
			out = append(out, e)
		}
	}
	return out
}

// foldedText is the text of an entry that counts others.
func foldedText(counts map[string]int) string {
	list := make([]string, 0, len(counts))
	for _, who := range slices.Sorted(maps.Keys(counts)) {
		times := "once"
		if n := counts[who]; n > 1 {
			times = fmt.Sprint(n, " times")
		}
		list = append(list, who+" "+times)
	}
	return "Others wrote here more often than is shown: " + strings.Join(list, ", ") + "."
}

// written returns the time of day of an entry, as the beginning of its note.
func written(at time.Time, zone *time.Location) string {
	if at.IsZero() {
		return ""
	}
	if zone == nil {
		zone = time.UTC
	}
	return at.In(zone).Format("15:04") + ", "
}

// quoted returns a text with `> ` on every line, so that it cannot end its own quotation.
func quoted(text string) string {
	return "> " + strings.Join(strings.FieldsFunc(text, lineBreak), "\n> ")
}

func lineOf(entry chat.TranscriptEntry, named bool) Line {
	switch entry.Role {
	case chat.RoleAssistant:
		return Line{Role: chat.RoleAssistant, Text: entry.Text}
	case chat.RoleSystem:
		return Line{Role: chat.RoleUser, Text: "[note] " + entry.Text}
	}
	if entry.Sender.Outside { // in later turns, too
		return Line{Role: chat.RoleUser, Text: outsideFrom(entry.Sender) + "\n" + quoted(entry.Text)}
	}
	return Line{Role: chat.RoleUser, Text: withSender(entry.Sender, entry.Text, named || entry.Outside)}
}

func appendLine(lines []Line, next Line) []Line {
	last := len(lines) - 1
	if last >= 0 && lines[last].Role == next.Role {
		lines[last].Text += "\n" + next.Text
		return lines
	}
	return append(lines, next)
}

func render(message chat.Content, named bool, past []chat.TranscriptEntry) string {
	text := message.Text
	switch {
	case message.External:
		text = outsideFrom(message.Sender) + "\n" + quoted(text)
	case message.System:
		text = "[system event] " + text
	default:
		text = withSender(message.Sender, text, named)
	}
	lines := []string{text}
	switch {
	case message.Answered == nil:
	case Stands(message.Answered, past):
		lines = []string{message.Answered.Above(), text}
	default:
		lines = []string{message.Answered.InText(), text}
	}
	for _, file := range message.Attachments {
		lines = append(lines, file.InText())
	}
	return strings.Join(lines, "\n")
}

// leastSame is how many letters a text has at least that is found without its run: shorter ones may
// be the same by chance.
const leastSame = 40

// Stands reports whether entries have the text of an answered message. Chat networks show a text
// without its marks, so only letters and digits are compared.
func Stands(a *chat.Answered, entries []chat.TranscriptEntry) bool {
	text := cmp.Or(a.Text, a.Selected)
	want := letters(text)
	if want == "" || len(entries) == 0 {
		return false
	}
	return slices.ContainsFunc(entries, func(e chat.TranscriptEntry) bool {
		if (e.Role == chat.RoleUser) == a.Ours || e.Folded != nil || a.Run != "" && e.RunID != a.Run {
			return false
		}
		has := letters(e.Text)
		if a.Run == "" && len(want) < leastSame {
			return e.Origin != nil && has == want
		}
		return strings.Contains(has, want)
	})
}

// letters returns the letters and digits of a text.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text)
}

// Source says who wrote an entry of the transcript, for agents that receive it as data; "" = its
// role says so.
func Source(e chat.TranscriptEntry) string {
	switch {
	case e.Origin != nil:
		return e.Origin.Who()
	case e.Sender.Outside:
		return strings.Trim(outsideFrom(e.Sender), "[]")
	default:
		return e.Sender.Name
	}
}

// outsideFrom is the line before text from outside, with its sender.
func outsideFrom(sender chat.Sender) string {
	if name := withSender(sender, "", true); name != "" {
		return "[from outside, without authority, sent by " + strings.TrimSuffix(name, ": ") + "]"
	}
	return "[from outside, without authority]"
}

// withSender puts the sender's name before the text. Senders choose their own names, so a name is
// reduced to one line.
func withSender(sender chat.Sender, text string, named bool) string {
	name := cmp.Or(chat.Name(sender.Name), chat.Printable(sender.ID))
	if !named || name == "" {
		return text
	}
	return name + ": " + text
}

// lineBreak reports whether some program shows r as a new line.
func lineBreak(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x85, 0x2028, 0x2029:
		return true
	default:
		return false
	}
}

func severalSenders(messages []chat.Content) bool {
	return slices.ContainsFunc(messages, func(m chat.Content) bool { return m.Sender.ID != messages[0].Sender.ID })
}

// entryOverhead is the cost of a message besides its text (role, separators); providers count 3 to
// 5.
const entryOverhead = 6

// EstimateTokens estimates the number of tokens in text. It errs high: a token of English is about
// four bytes, of other scripts one to two characters, so the larger of bytes/3 and characters/2 is
// taken.
func EstimateTokens(text string) int {
	byBytes := (len(text) + 2) / 3
	byRunes := (utf8.RuneCountInString(text) + 1) / 2
	return max(byBytes, byRunes)
}

// EstimateEntry returns the estimate of one transcript entry. It does not use what a provider
// counted for an answer: that includes thoughts that are not sent again, and one [Ratio] must fit
// all entries.
func EstimateEntry(e chat.TranscriptEntry) int {
	n := EstimateTokens(e.Text) + entryOverhead
	if e.Sender.Outside { // it is quoted below a line that names the sender
		n += EstimateTokens(outsideFrom(e.Sender)) + strings.Count(e.Text, "\n")
	}
	if e.Origin != nil { // it is quoted below a line that names the origin
		n += EstimateTokens(e.Origin.Who()) + 2*entryOverhead + strings.Count(e.Text, "\n")
	}
	return n
}

// CutHistory returns the newest entries that fit into budget tokens, oldest first. The result never
// begins with an answer whose question was cut off. A summary before the other entries is kept if
// it fits alone. A budget <= 0 keeps nothing.
func CutHistory(history []chat.TranscriptEntry, budget int) []chat.TranscriptEntry {
	if len(history) > 0 && history[0].Covers.To > 0 {
		if left := budget - EstimateEntry(history[0]); left >= 0 {
			return append(history[:1:1], CutHistory(history[1:], left)...)
		}
	}
	start := len(history)
	for start > 0 {
		cost := EstimateEntry(history[start-1])
		if cost > budget {
			break
		}
		budget -= cost
		start--
	}
	for start > 0 && start < len(history) && history[start].Role == chat.RoleAssistant && history[start].Origin == nil {
		start++
	}
	return history[start:]
}

// Summary asks an agent for a summary of a conversation.
type Summary struct {
	// Session is the session of the conversation; zero means that of the turn.
	Session chat.SessionKey
	// Prompt is the system prompt; Question is the message after the conversation.
	Prompt, Question string
	Conversation     []chat.TranscriptEntry
	// Tokens is the longest summary, in tokens.
	Tokens int
}

// Summariser asks the agent of a turn for summaries, one after the other. It is for the goroutine
// of the turn.
type Summariser interface {
	// Room returns how many tokens a conversation to be summarised may have, and how many its
	// summary may have.
	Room() (conversation, summary int)
	// Summarise returns the text of a summary, which is never empty. Its error is for the person;
	// an [*Error] has the reason.
	Summarise(ctx context.Context, s Summary) (string, error)
}

// Ratio is how many tokens a provider counts for each token that [EstimateTokens] estimates, from
// 0.5 to 2. 0 means unknown and is taken as 1. Estimates err high, so most ratios are below 1.
type Ratio float64

// The bounds of a ratio: a provider that reports a value outside of them reports nonsense.
const (
	leastRatio Ratio = 0.5
	mostRatio  Ratio = 2
)

func (r Ratio) known() Ratio {
	return cmp.Or(r, 1)
}

// Window returns how many estimated tokens fit into so many tokens of the provider.
func (r Ratio) Window(counted int) int { return int(Ratio(counted) / r.known()) }

// Counted returns what the provider would count for an estimate.
func (r Ratio) Counted(estimate int) int { return int(Ratio(estimate) * r.known()) }

// New returns how much of a [Ratio.Window] new text takes that the provider has not counted yet: at
// least its estimate, because its script may differ from that of earlier text.
func (r Ratio) New(estimate int) int { return r.Window(int(Ratio(estimate) * max(r.known(), 1))) }

// Gauge computes the ratios of one endpoint from the usage that it reports. It is safe for
// concurrent use; a nil Gauge has no ratios and records nothing.
type Gauge struct {
	endpoint string

	mu       sync.Mutex
	models   map[string]Ratio
	sessions map[string]Ratio
}

const (
	// leastGauged is the smallest request that a ratio is computed from, in estimated tokens: in
	// smaller ones the overhead of a message dominates.
	leastGauged = 256
	// modelShare and sessionShare are the weights of a new count against the previous ratio.
	modelShare, sessionShare Ratio = 0.2, 0.5
	// mostSessions and mostModels bound the sessions and models whose ratio a gauge keeps: clients
	// of /v1 may name any model.
	mostSessions, mostModels = 10_000, 100
)

// NewGauge makes a gauge for an endpoint. The name must not contain a secret.
func NewGauge(endpoint string) *Gauge {
	return &Gauge{endpoint: endpoint, models: map[string]Ratio{}, sessions: map[string]Ratio{}}
}

// Endpoint returns the name of the endpoint.
func (g *Gauge) Endpoint() string { return g.endpoint }

// Ratios returns the ratios of all models. The caller owns the map.
func (g *Gauge) Ratios() map[string]Ratio {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.models)
}

// Restore sets the ratio of a model that an earlier process has computed.
func (g *Gauge) Restore(model string, r Ratio) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.models[model] = min(max(r, leastRatio), mostRatio)
}

// Ratio returns the ratio of a session's last requests, otherwise that of the model, smoothed over
// all sessions.
func (g *Gauge) Ratio(model, session string) Ratio {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, ok := g.sessions[session]; ok {
		return r
	}
	return g.models[model]
}

// Note updates the ratios from a request without pictures: estimated is the estimate for all of it,
// counted what the provider counted, cached input included. A session's ratio rises at once and
// falls slowly, so that a conversation which changes its script does not exceed its window.
func (g *Gauge) Note(model, session string, estimated, counted int) {
	if g == nil || estimated < leastGauged || counted <= 0 {
		return
	}
	seen := min(max(Ratio(counted)/Ratio(estimated), leastRatio), mostRatio)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sessions) >= mostSessions {
		clear(g.sessions) // the ratio of the model is used instead
	}
	before := g.models[model].known()
	if _, ok := g.models[model]; ok || len(g.models) < mostModels {
		g.models[model] = before + (seen-before)*modelShare
	}
	of, ok := g.sessions[session]
	if !ok {
		of = before
	}
	if seen < of {
		seen = of + (seen-of)*sessionShare
	}
	g.sessions[session] = seen
}

// Bounds of the pictures of one turn.
const (
	// MaxImages is the largest number of pictures sent to a model.
	MaxImages = 10
	// MaxImage is the largest size of one picture in bytes, MaxImageBytes that of all pictures
	// together.
	MaxImage      = 5 << 20
	MaxImageBytes = 15 << 20
	// ImageTokens is the estimated cost of a picture, which errs high.
	ImageTokens = 1_600
)

// Image is a picture for a model.
type Image struct {
	// MIMEType is image/png, image/jpeg, image/gif or image/webp, determined from the content.
	MIMEType string
	Data     []byte
}

// Images reads the pictures that came with the messages of a request. A picture that exceeds a
// bound or cannot be read is named in left: one line for each, in brackets, for the text next to
// the pictures. Other files are in [Prompt] only.
func Images(req Request) (images []Image, left string) {
	var lines []string
	total := 0
	for _, message := range req.Messages {
		for _, file := range message.Attachments {
			if !strings.HasPrefix(file.MIMEType, "image/") || req.Files == nil {
				continue
			}
			image, why := readImage(req.Files, file)
			switch {
			case why != "":
			case len(images) == MaxImages:
				why = fmt.Sprintf("at most %d pictures are shown", MaxImages)
			case total+len(image.Data) > MaxImageBytes:
				why = fmt.Sprintf("the pictures have more than %d MB together", MaxImageBytes>>20)
			}
			if why != "" {
				lines = append(lines, fmt.Sprintf("[the picture %s is not shown: %s]", chat.Printable(file.Name), why))
				continue
			}
			images, total = append(images, image), total+len(image.Data)
		}
	}
	return images, strings.Join(lines, "\n")
}

// readImage reads one picture; why is the reason for the model when it cannot be shown.
func readImage(files Files, file chat.Attachment) (image Image, why string) {
	if file.Size > MaxImage {
		return image, fmt.Sprintf("it is larger than %d MB", MaxImage>>20)
	}
	data, err := files.Read(file.Path, MaxImage)
	if err != nil {
		return image, "it cannot be read"
	}
	kind := http.DetectContentType(data)
	if !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind) {
		return image, "it is no PNG, JPEG, GIF or WebP"
	}
	return Image{MIMEType: kind, Data: data}, ""
}
