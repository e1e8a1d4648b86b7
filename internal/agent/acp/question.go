package acp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

const (
	// maxOptions is how many options a question may have, maxLabel the maximum length of the agent's label in bytes.
	maxOptions = 8
	maxLabel   = 60
	// maxAction bounds a command, a path or an address in a question, in bytes. maxArgument bounds any other argument, maxArguments their number.
	maxAction    = 1000
	maxArgument  = 120
	maxArguments = 8

	// unnamed is an action that the agent does not describe, ellipsis marks where a value was cut.
	unnamed  = "something that it does not name"
	ellipsis = "…"
)

// question describes a request: a sentence with the command, the path or the tool, and the directory. All values come from the agent, so each is on one line between
// quotation marks that it cannot contain, and invisible characters are escaped. dir is the directory of the session.
func question(req sdk.RequestPermissionRequest, dir string) agent.Question {
	act, details := action(req.ToolCall, dir)
	q := agent.Question{Text: act + details, Act: act}
	if strings.Contains(act, ellipsis+"”") || len(req.ToolCall.Locations) > maxArguments || strings.HasPrefix(act, unnamed) {
		q.Act = "" // a different request may have the same description
	}
	for _, o := range req.Options {
		q.Options = append(q.Options, option(o))
	}
	return q
}

// option returns a choice whose label begins with Allow or Deny, because the agent's label may contradict what the choice does.
func option(o sdk.PermissionOption) agent.Option {
	allow := o.Kind == sdk.PermissionOptionKindAllowOnce || o.Kind == sdk.PermissionOptionKindAllowAlways
	always := o.Kind == sdk.PermissionOptionKindAllowAlways || o.Kind == sdk.PermissionOptionKindRejectAlways
	word := "Deny"
	if allow {
		word = "Allow"
	}
	label := strings.TrimSpace(shortened(chat.AllVisible(o.Name), maxLabel))
	if always && !strings.Contains(strings.ToLower(label), "always") {
		word += " always"
	}
	if len(label) >= len(word) && strings.EqualFold(label[:len(word)], word) && (len(label) == len(word) || label[len(word)] == ' ') {
		label = strings.TrimSpace(label[len(word):]) // do not repeat the word
	}
	if label != "" {
		word += ": " + label
	}
	return agent.Option{Label: word, Allow: allow, Always: always}
}

// action describes what the agent requests, and its other arguments.
func action(call sdk.ToolCallUpdate, dir string) (act, details string) {
	args := arguments(call.RawInput)
	command, path, address := args.take("command", "cmd"), args.take("file_path", "filePath", "path", "abs_path", "absolute_path"), args.take("url")
	if own := args.take("cwd", "workdir", "directory"); own != "" {
		dir = own
	}
	if path == "" && len(call.Locations) > 0 {
		path = call.Locations[0].Path
	}
	title := ""
	if call.Title != nil {
		title = *call.Title
	}
	var kind sdk.ToolKind
	if call.Kind != nil {
		kind = *call.Kind
	}
	var text strings.Builder
	switch {
	case command != "":
		text.WriteString("run the command " + quoted(command, maxAction))
	case path != "":
		text.WriteString(verb(kind) + " the file " + quoted(path, maxAction))
	case address != "":
		text.WriteString("fetch " + quoted(address, maxAction))
	case title != "":
		text.WriteString("use the tool " + quoted(title, maxTitle))
	default:
		text.WriteString(unnamed)
	}
	text.WriteString(" in the directory " + quoted(dir, maxAction))
	if title != "" && command+path+address != "" && !strings.Contains(title, command+path+address) {
		text.WriteString(", with the tool " + quoted(title, maxTitle))
	}
	for _, at := range call.Locations[:min(len(call.Locations), maxArguments)] {
		if at.Path != path {
			text.WriteString(", at " + quoted(at.Path, maxTitle))
		}
	}
	return text.String(), args.words()
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

// take removes the named members up to the first that is not empty, and returns its value as a string, or "".
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

// words lists the remaining members, sorted by name.
func (a argumentsOf) words() string {
	var text strings.Builder
	for i, name := range slices.Sorted(maps.Keys(a)) {
		if i == maxArguments {
			fmt.Fprintf(&text, " and %d more", len(a)-i)
			break
		}
		if i == 0 {
			text.WriteString("; with ")
		} else {
			text.WriteString(", ")
		}
		text.WriteString(quoted(name, maxLabel) + " = " + quoted(spoken(a[name]), maxArgument))
	}
	return text.String()
}

// spoken returns a value as a string: strings as they are, a list of strings joined, everything else as JSON.
func spoken(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		words := make([]string, 0, len(v))
		for _, one := range v {
			word, ok := one.(string)
			if !ok {
				return shown(value)
			}
			words = append(words, word)
		}
		return strings.Join(words, " ")
	default:
		return shown(value)
	}
}

// quoted returns a value from the agent between quotation marks. Marks inside it are escaped, so that the value cannot close the quotation.
func quoted(s string, most int) string {
	s = strings.NewReplacer("“", `\u201c`, "”", `\u201d`).Replace(chat.AllVisible(s))
	return "“" + shortened(s, most) + "”"
}

// shortened cuts a string to at most n bytes and marks the cut with an ellipsis.
func shortened(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return chat.Cut(s, n) + ellipsis
}
