package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"laneway/internal/wire"
)

type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words after laneway; the last one is incomplete."`
}

// Help is the example of the command.
func (*completeCmd) Help() string { return "Example:\n\n    laneway __complete -- sess" }

// Run prints the candidates, one on a line.
func (c *completeCmd) Run(ctx context.Context, env *environment) error {
	parser, err := newParser(env, &commands{})
	if err != nil {
		return errors.Join(errQuiet, err)
	}
	words := slices.Clone(c.Words)
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	names := func(what string) []string { return env.namesOf(ctx, what) }
	for _, candidate := range candidates(parser.Model.Node, words, names) {
		if _, err := fmt.Fprintln(env.stdout, candidate); err != nil {
			return err
		}
	}
	return nil
}

// completeTag is the tag of a flag or argument with known values: a list with commas, or names that a gateway knows (jobs, sessions,
// agents).
const completeTag = "complete"

// candidates follows the completed words down the table and returns the possible next words: flags after a dash, otherwise commands or the
// known values of the argument. names returns those that a gateway knows.
func candidates(node *kong.Node, words []string, names func(what string) []string) []string {
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
		words = words[:len(words)-1]
	}
	flags, arguments := slices.Clone(node.Flags), 0
	for i, word := range words {
		child := childOf(node, word)
		switch {
		case child != nil:
			node, arguments = child, 0
			flags = append(flags, child.Flags...)
		case !strings.HasPrefix(word, "-") && (i == 0 || takesValue(flags, words[i-1]) == nil):
			arguments++
		}
	}
	var all []string
	switch flag := takesValue(flags, lastOf(words)); {
	case flag != nil:
		all = values(flag.Value, names)
	case strings.HasPrefix(last, "-"):
		all = flagNames(flags)
	default:
		all = nextWords(node, arguments, names)
	}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" || !strings.HasPrefix(s, last) })
	slices.Sort(all)
	return slices.Compact(all)
}

func lastOf(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

func childOf(node *kong.Node, word string) *kong.Node {
	i := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == word })
	if i < 0 {
		return nil
	}
	return node.Children[i]
}

// takesValue returns the flag that a word names, if a value follows it, or nil.
func takesValue(flags []*kong.Flag, word string) *kong.Flag {
	for _, f := range flags {
		if "--"+f.Name == word && !f.IsBool() {
			return f
		}
	}
	return nil
}

// values returns the known values of a flag or argument.
func values(v *kong.Value, names func(what string) []string) []string {
	what := v.Tag.Get(completeTag)
	switch {
	case v.Enum != "":
		return v.EnumSlice()
	case strings.Contains(what, ","):
		return strings.Split(what, ",")
	case what != "":
		return names(what)
	default:
		return nil
	}
}

func flagNames(flags []*kong.Flag) []string {
	var names []string
	for _, f := range flags {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	}
	return names
}

// nextWords returns the commands below a node, or the values of its argument with this number.
func nextWords(node *kong.Node, arguments int, names func(what string) []string) []string {
	var words []string
	for _, child := range node.Children {
		if !child.Hidden {
			words = append(words, child.Name)
		}
	}
	if arguments < len(node.Positional) {
		words = append(words, values(node.Positional[arguments], names)...)
	}
	return words
}

// completeWithin limits how long a shell waits for names.
const completeWithin = time.Second

// namesOf requests names from the gateway of this host. Without a gateway it returns none: a completion prints no errors.
func (env *environment) namesOf(ctx context.Context, what string) []string {
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	conn, err := clientFlags{}.connect(ctx, env)
	if err != nil {
		return nil
	}
	defer closeQuietly(conn)
	var reply struct {
		Jobs     []wire.Job
		Sessions []wire.SessionRow
		Agents   []struct{ ID string }
		Tasks    []wire.Task
		Runs     []wire.Run
	}
	method, params := "agents.list", map[string]any{}
	switch what {
	case "jobs":
		method, params = "cron.list", map[string]any{"includeDisabled": true, "limit": 200}
	case "runs":
		method, params = "runs.list", map[string]any{"limit": 200}
	case "tasks":
		method, params = "tasks.list", map[string]any{"limit": 200}
	case "sessions":
		method, params = "sessions.list", map[string]any{"hideCronRuns": true, "limit": 200}
	}
	if err := conn.Call(ctx, method, params, &reply); err != nil {
		return nil
	}
	var names []string
	for _, a := range reply.Agents {
		names = append(names, oneWord(a.ID))
	}
	for _, j := range reply.Jobs {
		names = append(names, oneWord(j.Name), j.ID)
	}
	for _, t := range reply.Tasks {
		names = append(names, oneWord(t.ID))
	}
	for i := range reply.Runs {
		names = append(names, oneWord(reply.Runs[i].ID))
	}
	for _, s := range reply.Sessions {
		names = append(names, oneWord(s.Key))
	}
	return names
}

// oneWord returns a name if a shell reads it as one word, otherwise "".
func oneWord(name string) string {
	if strings.ContainsAny(name, " \t\n'\"\\$`&|;<>()*?!#~[]{}") || plain(name) != name {
		return ""
	}
	return name
}
