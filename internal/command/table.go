package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"laneway/internal/chat"
)

// Call is one use of a command.
type Call struct {
	// ID is the id of the message. Effects under this id happen once.
	ID string
	// Again: the command was recorded before, and it is unknown whether it was executed.
	Again     bool
	Session   chat.SessionKey
	Principal string
	// Peer is the origin of the message and RequestID its id there, for the audit log.
	Peer, RequestID string
	// Scope is the highest scope of the caller, see [chat.Message].
	Scope  string
	Sender chat.Sender
	// Answered is the message that the command answers, see [chat.Answered.Message]; "" if none.
	Answered string
	// Own: the caller sees only its own data, and no totals.
	Own bool
	// OwnOnly: the caller may stop only what Sender started.
	OwnOnly bool
	Channel string
	Target  chat.Target
	// Audience is who reads the reply. When it is shared, lists contain only what belongs to its conversation.
	Audience chat.Audience
	// Name is the word that was typed, without slash and bot name, in lower case.
	Name string
	// Args is the rest, trimmed.
	Args string
}

// Answer is the reply to a command.
type Answer struct {
	Text string
	// Choice offers follow-up commands; nil when there are none to offer. The sender of the reply sets the person who may choose.
	Choice *chat.Choice
}

// Func executes a command. An error is shown to the person as one sentence.
type Func func(ctx context.Context, a Actions, c Call) (Answer, error)

// textOnly adapts a function whose reply is text without a choice.
func textOnly(f func(ctx context.Context, a Actions, c Call) (string, error)) Func {
	return func(ctx context.Context, a Actions, c Call) (Answer, error) {
		text, err := f(ctx, a, c)
		return Answer{Text: text}, err
	}
}

// Command is one row of the table.
type Command struct {
	Name    string
	Aliases []string
	// Common commands are in the short /help for people.
	Common      bool
	Args        string // hint such as "[all]"; "" when it takes no arguments
	Description string
	Category    string
	// Method is the corresponding method of the gateway. The command requires the same as the method, see [chat.Need].
	Method string
	// Verbs maps a first argument, in lower case, to its corresponding method if that differs; "*" = every other word.
	Verbs map[string]string
	// Urgent commands act before they are recorded: a slow database must not delay a stop.
	Urgent bool
	Run    Func
}

// Table holds the commands by name. It is immutable after New and safe for concurrent use.
type Table struct {
	list   []Command
	byName map[string]*Command
}

// NewTable returns a table. Names and aliases must be unique and consist of lower-case letters, digits and underscores.
func NewTable(list []Command) (*Table, error) {
	t := &Table{list: list, byName: map[string]*Command{}}
	for i := range list {
		c := &list[i]
		if c.Run == nil || c.Description == "" || c.Method == "" {
			return nil, fmt.Errorf("command /%s has no function, description or method", c.Name)
		}
		for _, name := range append([]string{c.Name}, c.Aliases...) {
			if !validName(name) {
				return nil, fmt.Errorf("%q cannot be the name of a command", name)
			}
			if t.byName[name] != nil {
				return nil, fmt.Errorf("two commands are named /%s", name)
			}
			t.byName[name] = c
		}
	}
	return t, nil
}

func validName(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	}) < 0
}

// Infos describes the commands in the order of the table.
func (t *Table) Infos() []chat.CommandInfo {
	infos := make([]chat.CommandInfo, 0, len(t.list))
	for _, c := range t.list {
		infos = append(infos, chat.CommandInfo{Name: c.Name, Aliases: c.Aliases, Description: c.Description, Category: c.Category, ArgsHint: c.Args, Urgent: c.Urgent})
	}
	return infos
}

// MethodOf returns the method that corresponds to the command with these arguments.
func (c Command) MethodOf(args string) string {
	verb, _, _ := cutWord(strings.TrimSpace(args))
	if method, ok := c.Verbs[strings.ToLower(verb)]; ok && verb != "" {
		return method
	}
	if method, ok := c.Verbs["*"]; ok && verb != "" {
		return method
	}
	return c.Method
}

// Use is a command with one first argument; "" = without arguments.
type Use struct{ Command, Verb, Method string }

// Uses lists the corresponding methods of the commands, in the order of the table, with the first arguments of each sorted; "*" is every
// other word.
func (t *Table) Uses() []Use {
	var uses []Use
	for _, c := range t.list {
		uses = append(uses, Use{c.Name, "", c.Method})
		for _, verb := range slices.Sorted(maps.Keys(c.Verbs)) {
			uses = append(uses, Use{c.Name, verb, c.Verbs[verb]})
		}
	}
	return uses
}

// Lookup finds a command by name or alias.
func (t *Table) Lookup(name string) (Command, bool) {
	c := t.byName[strings.ToLower(name)]
	if c == nil {
		return Command{}, false
	}
	return *c, true
}

// Parse recognises a command in a message. Forms: `/name args`, `/name@bot args`, `@bot /name args`. With a bot name, `/name@other`
// addresses another bot and is not a command here; without one (botName "") every `@…` is accepted. A word that is not in the table is not
// a command: it goes to the agent.
func (t *Table) Parse(text, botName string) (cmd Command, name, args string, ok bool) {
	text = strings.TrimSpace(text)
	if mention, rest, found := cutWord(text); found && strings.HasPrefix(mention, "@") {
		if !forUs(mention[1:], botName) {
			return Command{}, "", "", false
		}
		text = rest
	}
	word, rest, _ := cutWord(text)
	if !strings.HasPrefix(word, "/") {
		return Command{}, "", "", false
	}
	name, bot, addressed := strings.Cut(word[1:], "@")
	if addressed && !forUs(bot, botName) {
		return Command{}, "", "", false
	}
	cmd, ok = t.Lookup(name)
	return cmd, strings.ToLower(name), rest, ok
}

func forUs(mention, botName string) bool {
	return mention != "" && (botName == "" || strings.EqualFold(mention, botName))
}

// cutWord splits off the first word; found is false when nothing follows it.
func cutWord(s string) (word, rest string, found bool) {
	i := strings.IndexFunc(s, unicode.IsSpace)
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimSpace(s[i:]), true
}
