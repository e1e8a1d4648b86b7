package acp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

const (
	// maxOptions is how many options a question may have, maxLabel the maximum length of the
	// agent's label in bytes.
	maxOptions = 8
	maxLabel   = 60
	// maxAction bounds a command, a path or an address in a question, in bytes. maxArgument bounds
	// any other argument, maxArguments their number.
	maxAction    = 1000
	maxArgument  = 120
	maxArguments = 8

	// unnamed is an action that the agent does not describe, ellipsis marks where a value was cut.
	unnamed  = "something that it does not name"
	ellipsis = "…"
)

// question describes a request: a sentence with the command, the path or the tool, and the
// directory. All values come from the agent, so each is on one line between quotation marks that it
// cannot contain, and invisible characters are escaped. dir is the directory of the session.
// answers has the option of the agent for each option of the question.
//
// The sentence is the permission of "always": its act is all of it, or any change, reading or
// deletion of one file. Only the gateway keeps it. The agent receives the option that allows once,
// because only the agent knows what its own "always" covers. Where the sentence does not identify
// the request, "always" is not offered.
func question(req sdk.RequestPermissionRequest, dir string) (q agent.Question, answers []sdk.PermissionOptionId) {
	s := describe(req.ToolCall, dir)
	q = agent.Question{Text: s.text + s.details, Act: s.act()}
	once := slices.IndexFunc(req.Options, func(o sdk.PermissionOption) bool { return o.Kind == sdk.PermissionOptionKindAllowOnce })
	for _, o := range req.Options {
		choice, known := option(o, s.covers())
		if !known || (choice.Allow && choice.Always && q.Act == "") {
			continue
		}
		if choice.Allow && choice.Always && once >= 0 {
			o = req.Options[once]
		}
		q.Options, answers = append(q.Options, choice), append(answers, o.OptionId)
	}
	return q, answers
}

// option returns a choice whose label begins with what the choice does, because the agent's label
// may contradict it. known is false for an option of a kind that the protocol does not have.
func option(o sdk.PermissionOption, covers string) (choice agent.Option, known bool) {
	var word string
	label := strings.TrimSpace(shortened(chat.AllVisible(o.Name), maxLabel))
	switch o.Kind {
	case sdk.PermissionOptionKindAllowOnce:
		word, label = "Allow", without(label, "Allow")
		if strings.Contains(strings.ToLower(label), "always") {
			word = "Allow once"
		}
	case sdk.PermissionOptionKindAllowAlways:
		word = "Allow always (" + covers + ")"
	case sdk.PermissionOptionKindRejectOnce:
		word, label = "Deny", without(label, "Deny")
	case sdk.PermissionOptionKindRejectAlways:
		word, label = "Deny always", without(label, "Deny always")
	default:
		return choice, false
	}
	if label != "" {
		word += ": " + label
	}
	return agent.Option{
		Label: word, Allow: o.Kind == sdk.PermissionOptionKindAllowOnce || o.Kind == sdk.PermissionOptionKindAllowAlways,
		Always: o.Kind == sdk.PermissionOptionKindAllowAlways || o.Kind == sdk.PermissionOptionKindRejectAlways,
	}, true
}

// without returns a label without the word that it begins with, so that the word is not repeated.
func without(label, word string) string {
	if len(label) < len(word) || !strings.EqualFold(label[:len(word)], word) || (len(label) > len(word) && label[len(word)] != ' ') {
		return label
	}
	return strings.TrimSpace(label[len(word):])
}

// sentence is what the agent requests, in the words of a question.
type sentence struct {
	text, details string
	tool          string // the part of text that names the tool
	once          bool   // a different request may have the same words
	file          string // what "always" covers where it is one file, such as "any change of this file"
}

// act is the part of the sentence that an answer for always covers; "" when no such part exists.
func (s sentence) act() string {
	switch {
	case s.once:
		return ""
	case s.file != "":
		return strings.Replace(s.text, s.tool, "", 1)
	default:
		return s.text + s.details
	}
}

// covers is the extent of "always" on its button.
func (s sentence) covers() string { return cmp.Or(s.file, "exactly this") }

// describe puts a request into words.
func describe(call sdk.ToolCallUpdate, dir string) sentence {
	var (
		text  sentenceOf
		args  = arguments(call.RawInput)
		title = strings.TrimSpace(deref(call.Title))
		kind  = deref(call.Kind)
		paths = pathsOf(call)
		s     sentence
	)
	if own := args.take("cwd", "workdir", "directory"); own != "" {
		dir = own
	}
	subject := args.take("command", "cmd")
	switch {
	case subject != "":
		text.add("run the command ", subject, maxAction)
	case args.takeInto(&subject, "file_path", "filePath", "path", "abs_path", "absolute_path") || len(paths) > 0:
		if subject == "" {
			subject = paths[0]
		}
		text.add(verb(kind)+" the file ", subject, maxAction)
		if args.only(contents()) {
			s.file = files()[kind]
		}
	case args.takeInto(&subject, "url"):
		text.add("fetch ", subject, maxAction)
	case title != "":
		text.add("use the tool ", title, maxTitle)
		// Some agents put the command into the title alone, and cut it.
		text.once = text.once || strings.Contains(title, "...") || strings.Contains(title, ellipsis)
	default:
		_, _ = text.WriteString(unnamed)
		text.once = true
	}
	text.add(" in the directory ", dir, maxAction)
	if bare := strings.Trim(title, "`"); bare != "" && subject != "" && bare != subject && bare != subject+" ("+args.member("description")+")" {
		before := text.Len()
		text.add(", with the tool ", title, maxTitle)
		s.tool = text.String()[before:]
	}
	for _, at := range paths[:min(len(paths), maxArguments)] {
		if at != subject {
			text.add(", at ", at, maxTitle)
		}
	}
	text.once = text.once || len(paths) > maxArguments
	s.text = text.String()
	if call.RawInput == nil && s.file == "" {
		// Without arguments the content has what distinguishes two requests, such as the directory.
		args = arguments(textOf(call.Content))
		if args["input"] == "" {
			args = nil
		}
	}
	before := text.Len()
	args.write(&text)
	s.details, s.once = text.String()[before:], text.once
	return s
}

// files are the kinds of calls for which "always" covers every call on the file, by what it then
// covers.
func files() map[sdk.ToolKind]string {
	return map[sdk.ToolKind]string{
		sdk.ToolKindEdit: "any change of this file", sdk.ToolKindRead: "any reading of this file", sdk.ToolKindDelete: "any deletion of this file",
	}
}

// contents are the arguments that do not say which file is changed or read, but how.
func contents() []string {
	return []string{
		"content", "contents", "file_text", "old_string", "new_string", "old_str", "new_str", "oldString", "newString", "oldText", "newText", "insert_line", "insert_text",
		"replace_all", "replaceAll", "expected_replacements", "offset", "limit", "line", "description",
	}
}

// pathsOf returns the files that a request names beside its arguments.
func pathsOf(call sdk.ToolCallUpdate) (paths []string) {
	for _, at := range call.Locations {
		paths = append(paths, at.Path)
	}
	for _, c := range call.Content {
		if c.Diff != nil && !slices.Contains(paths, c.Diff.Path) {
			paths = append(paths, c.Diff.Path)
		}
	}
	return paths
}

func deref[T ~string](p *T) T {
	if p == nil {
		return ""
	}
	return *p
}

// sentenceOf collects the words of a sentence. once becomes true when a different request may have
// the same words.
type sentenceOf struct {
	strings.Builder

	once bool
}

// add writes a value of the agent between quotation marks. Marks inside it are escaped, so that the
// value cannot close the quotation. An escape in the value itself looks like an escaped character,
// and a cut value like any other that begins the same.
func (s *sentenceOf) add(before, value string, most int) {
	visible := strings.NewReplacer("“", `\u201c`, "”", `\u201d`).Replace(chat.AllVisible(value))
	plain := strings.NewReplacer("\n", "", "\t", "").Replace(value)
	s.once = s.once || len(visible) > most || strings.Contains(value, `\u`) || chat.AllVisible(plain) != plain
	_, _ = s.WriteString(before + "“" + shortened(visible, most) + "”")
}

func verb(kind sdk.ToolKind) string {
	switch kind {
	case sdk.ToolKindRead, sdk.ToolKindDelete, sdk.ToolKindMove, sdk.ToolKindSearch:
		return string(kind)
	case sdk.ToolKindEdit:
		return "change"
	case sdk.ToolKindExecute:
		return "run"
	default:
		return "work on"
	}
}

// argumentsOf are the members of a call's input that the question does not show yet.
type argumentsOf map[string]any

func arguments(input any) argumentsOf {
	if members, ok := input.(map[string]any); ok {
		return maps.Clone(members)
	}
	if input == nil {
		return argumentsOf{}
	}
	return argumentsOf{"input": input}
}

// take removes the named members up to the first that is not empty, and returns its value as a
// string, or "".
func (a argumentsOf) take(names ...string) string {
	for _, name := range names {
		value, ok := a[name]
		if !ok {
			continue
		}
		delete(a, name)
		if words := spoken(value); words != "" {
			return words
		}
	}
	return ""
}

// takeInto sets a value to what take returns, and returns whether there is one.
func (a argumentsOf) takeInto(value *string, names ...string) bool {
	*value = a.take(names...)
	return *value != ""
}

// only returns whether there are no members beside the named ones.
func (a argumentsOf) only(names []string) bool {
	for name := range a {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

// member returns a member that is a string, or "".
func (a argumentsOf) member(name string) string {
	text, _ := a[name].(string) // "" for another type
	return text
}

// write lists the remaining members, sorted by name.
func (a argumentsOf) write(text *sentenceOf) {
	for i, name := range slices.Sorted(maps.Keys(a)) {
		if i == maxArguments {
			fmt.Fprintf(text, " and %d more", len(a)-i)
			text.once = true
			break
		}
		before := ", "
		if i == 0 {
			before = "; with "
		}
		text.add(before, name, maxLabel)
		text.add(" = ", spoken(a[name]), maxArgument)
	}
}

// spoken returns a value as a string: strings as they are, a list of plain words joined, everything
// else as JSON.
func spoken(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		words := make([]string, 0, len(v))
		for _, one := range v {
			word, ok := one.(string)
			if !ok || word == "" || strings.ContainsFunc(word, divides) {
				return shown(value)
			}
			words = append(words, word)
		}
		return strings.Join(words, " ")
	default:
		return shown(value)
	}
}

// divides returns whether a character may end a word of a command or has a meaning there, so that a
// list with it is not the command that its words make.
func divides(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-./:=@%+,", r)
}

// shortened cuts a string to at most n bytes and marks the cut with an ellipsis.
func shortened(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return chat.Cut(s, n) + ellipsis
}

// maxQuestions is how many questions of a turn may be open at the same time; further ones are
// refused.
const maxQuestions = 4

// client is the side of the protocol that the agent calls. Only permissions are offered.
type client struct{ peer *peer }

var _ sdk.Client = client{}

// RequestPermission implements [sdk.Client].
func (c client) RequestPermission(_ context.Context, req sdk.RequestPermissionRequest) (sdk.RequestPermissionResponse, error) {
	t := c.peer.current()
	if t == nil {
		return cancelled(), nil
	}
	t.update(sdk.SessionUpdate{ToolCallUpdate: &sdk.SessionToolCallUpdate{ToolCallId: req.ToolCall.ToolCallId, Title: req.ToolCall.Title, RawInput: req.ToolCall.RawInput}})
	chosen, asked := t.ask(req, c.peer.dir)
	if t.ctx.Err() != nil {
		return cancelled(), nil //nolint:nilerr // as the protocol demands after session/cancel
	}
	if !asked {
		return refusal(req.Options), nil
	}
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected(chosen)}, nil
}

// ask asks the person of the turn. ok is false without an answer.
func (t *turn) ask(req sdk.RequestPermissionRequest, dir string) (chosen sdk.PermissionOptionId, ok bool) {
	if t.asker == nil || len(req.Options) > maxOptions {
		return "", false
	}
	q, answers := question(req, dir)
	if len(answers) == 0 {
		return "", false
	}
	select {
	case t.asking <- struct{}{}:
		defer func() { <-t.asking }()
	default:
		return "", false
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.questionTime)
	defer cancel()
	n, err := t.asker.Ask(ctx, q)
	if err != nil || n < 0 || n >= len(answers) {
		return "", false
	}
	return answers[n], true
}

func cancelled() sdk.RequestPermissionResponse {
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeCancelled()}
}

// refusal returns the refusing option: reject once, else reject always, else cancelled.
func refusal(options []sdk.PermissionOption) sdk.RequestPermissionResponse {
	for _, kind := range []sdk.PermissionOptionKind{sdk.PermissionOptionKindRejectOnce, sdk.PermissionOptionKindRejectAlways} {
		if i := slices.IndexFunc(options, func(o sdk.PermissionOption) bool { return o.Kind == kind }); i >= 0 {
			return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected(options[i].OptionId)}
		}
	}
	return cancelled()
}

// The rest of [sdk.Client] is not offered; calls of an agent are refused. SessionUpdate is never
// called, see [link].

// SessionUpdate implements [sdk.Client].
func (client) SessionUpdate(context.Context, sdk.SessionNotification) error { return nil }

// ReadTextFile implements [sdk.Client].
func (client) ReadTextFile(context.Context, sdk.ReadTextFileRequest) (sdk.ReadTextFileResponse, error) {
	return sdk.ReadTextFileResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodFsReadTextFile)
}

// WriteTextFile implements [sdk.Client].
func (client) WriteTextFile(context.Context, sdk.WriteTextFileRequest) (sdk.WriteTextFileResponse, error) {
	return sdk.WriteTextFileResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodFsWriteTextFile)
}

// CreateTerminal implements [sdk.Client].
func (client) CreateTerminal(context.Context, sdk.CreateTerminalRequest) (sdk.CreateTerminalResponse, error) {
	return sdk.CreateTerminalResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalCreate)
}

// KillTerminal implements [sdk.Client].
func (client) KillTerminal(context.Context, sdk.KillTerminalRequest) (sdk.KillTerminalResponse, error) {
	return sdk.KillTerminalResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalKill)
}

// TerminalOutput implements [sdk.Client].
func (client) TerminalOutput(context.Context, sdk.TerminalOutputRequest) (sdk.TerminalOutputResponse, error) {
	return sdk.TerminalOutputResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalOutput)
}

// ReleaseTerminal implements [sdk.Client].
func (client) ReleaseTerminal(context.Context, sdk.ReleaseTerminalRequest) (sdk.ReleaseTerminalResponse, error) {
	return sdk.ReleaseTerminalResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalRelease)
}

// WaitForTerminalExit implements [sdk.Client].
func (client) WaitForTerminalExit(context.Context, sdk.WaitForTerminalExitRequest) (sdk.WaitForTerminalExitResponse, error) {
	return sdk.WaitForTerminalExitResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalWaitForExit)
}
