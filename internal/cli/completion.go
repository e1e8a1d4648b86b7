package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"laneway/internal/wire"
)

//go:generate go run ../../cmd/laneway __man --reference ../../docs

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// The scripts call the program for the candidates, so that they always match its table of commands.
const (
	bashScript = `_laneway() {
  local IFS=$'\n'
  COMPREPLY=($(laneway __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _laneway laneway
`
	zshScript = `#compdef laneway
_laneway() {
  local -a candidates
  candidates=("${(@f)$(laneway __complete -- "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
  compadd -- "${candidates[@]}"
}
compdef _laneway laneway
`
	fishScript = `function __laneway_complete
    set -l words (commandline -opc) (commandline -ct)
    laneway __complete -- $words[2..-1] 2>/dev/null
end
complete -c laneway -f -a '(__laneway_complete)'
`
)

// Run prints the script.
func (c *completionCmd) Run(env *environment) error {
	script, known := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell]
	if !known {
		return usageError("the shell must be bash, zsh or fish")
	}
	_, err := fmt.Fprint(env.stdout, script)
	return err
}

type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words after laneway; the last one is incomplete."`
}

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
		if err := env.printLine(candidate); err != nil {
			return err
		}
	}
	return nil
}

// completeTag is the tag of a flag or argument with known values: a list with commas, or names that
// a gateway knows (jobs, sessions, agents).
const completeTag = "complete"

// candidates follows the completed words down the table and returns the possible next words: flags
// after a dash, otherwise commands or the known values of the argument. names returns those that a
// gateway knows.
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

// namesOf requests names from the gateway of this host. Without a gateway it returns none: a
// completion prints no errors.
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

type manCmd struct {
	Dir       string `arg:"" help:"Directory for the pages; missing directories are created." type:"path"`
	Reference bool   `help:"Write docs/cli.md and docs/cli instead, in Markdown."`
}

// Run writes a manual page for the program and for each command, or the reference.
func (c *manCmd) Run(env *environment) error {
	parser, err := newParser(env, &commands{})
	if err != nil {
		return errors.Join(errQuiet, err)
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, map[bool]string{true: "cli"}[c.Reference]), 0o755); err != nil { //nolint:gosec // public texts
		return fmt.Errorf("creating the directory: %w", err)
	}
	if c.Reference {
		return writeReference(c.Dir, parser.Model.Node)
	}
	return writePages(c.Dir, env.version.Version, parser.Model.Node)
}

func writePages(dir, version string, node *kong.Node) error {
	name := pageName(node)
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manPage(version, node)), 0o644); err != nil { //nolint:gosec // a public text
		return fmt.Errorf("writing a page: %w", err)
	}
	for _, child := range node.Children {
		if child.Hidden {
			continue
		}
		if err := writePages(dir, version, child); err != nil {
			return err
		}
	}
	return nil
}

// pageName returns laneway-cron-add for laneway cron add.
func pageName(node *kong.Node) string {
	if node.Type == kong.ApplicationNode {
		return node.Name
	}
	return pageName(node.Parent) + "-" + node.Name
}

// manPage returns the page of a command in roff, from the same table as --help.
func manPage(version string, node *kong.Node) string {
	var b strings.Builder
	command := strings.ReplaceAll(pageName(node), "-", " ")
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"laneway %s\" \"laneway\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(pageName(node)), roff(version), roff(pageName(node)), roff(firstSentence(node.Help)))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", roff(command), roff(synopsis(node)))
	if node.Detail != "" {
		b.WriteString(".SH DESCRIPTION\n" + roffText(node.Detail))
	}
	commands, flags := commandItems(node), flagItems(node)
	for _, section := range []struct{ title, items string }{{"COMMANDS", commands}, {"ARGUMENTS", argumentItems(node)}, {"OPTIONS", flags}} {
		if section.items != "" {
			b.WriteString(".SH " + section.title + "\n" + section.items)
		}
	}
	b.WriteString(".SH EXIT STATUS\n.TP\n.B 0\nsuccess\n.TP\n.B 1\na failure\n.TP\n.B 2\nwrong usage\n.TP\n.B 78\na configuration that must not start\n")
	if node.Parent != nil {
		b.WriteString(".SH SEE ALSO\n.BR " + roff(pageName(node.Parent)) + " (1)\n")
	}
	return b.String()
}

func firstSentence(help string) string {
	return strings.ToLower(help[:min(1, len(help))]) + strings.TrimSuffix(help[min(1, len(help)):], ".")
}

func synopsis(node *kong.Node) string {
	var parts []string
	if len(node.Children) > 0 {
		parts = append(parts, "COMMAND")
	}
	for _, argument := range node.Positional {
		parts = append(parts, argument.Summary())
	}
	return strings.Join(append(parts, "[OPTION …]"), " ")
}

func commandItems(node *kong.Node) string {
	var b strings.Builder
	for _, child := range node.Children {
		if !child.Hidden {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(child)), roff(child.Help))
		}
	}
	return b.String()
}

func argumentItems(node *kong.Node) string {
	var b strings.Builder
	for _, argument := range node.Positional {
		fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(argument.Name), roff(argument.Help))
	}
	return b.String()
}

func flagItems(node *kong.Node) string {
	var b strings.Builder
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(flag.String()), roff(flag.Help))
		}
	}
	return b.String()
}

// roff converts text to one line without requests: a leading dot or quote would be a request, and a
// backslash an escape.
func roff(text string) string {
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, `\[u%04X]`, r)
	}
	text = b.String()
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}

// roffText keeps paragraphs and indented lines.
func roffText(text string) string {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if !strings.HasPrefix(paragraph, "    ") {
			b.WriteString(".PP\n" + roff(paragraph) + "\n")
			continue
		}
		b.WriteString(".PP\n.nf\n.RS\n")
		for line := range strings.Lines(paragraph) {
			b.WriteString(roff(line) + "\n")
		}
		b.WriteString(".RE\n.fi\n")
	}
	return b.String()
}

// sharedBy is how many commands must have a flag for the reference to list it once, for all.
const sharedBy = 10

// writeReference writes the pages of the command line for the documents, from the same table as
// --help: a list of all commands, and their details by group.
func writeReference(dir string, program *kong.Node) error {
	uses := map[string]int{}
	for _, command := range leaves(program) {
		for _, flag := range command.Flags {
			uses[flagRow(flag)]++
		}
	}
	const note = "`make generate` writes this page from the help in internal/cli.\n"
	var index strings.Builder
	index.WriteString("# The command line\n\n" + note +
		"\nRun `laneway COMMAND --help` for the same in the terminal.\n" +
		"Exit status: 0 done, 1 failed, 2 wrong usage, 78 a configuration that must not start.\n" +
		"With `--json`, results go to standard output, and an error is one JSON object on standard error.\n")
	pages, seen := map[string]string{}, map[string]map[string]string{}
	for _, group := range groups() {
		title := strings.TrimSuffix(group.Title, ":")
		index.WriteString("\n## " + title + "\n\n| command | does |\n|---|---|\n")
		for _, command := range leaves(program) {
			top := topOf(command)
			if top.Group == nil || top.Group.Key != group.Key {
				continue
			}
			page, heading := referencePage(top.Name, command.Name)
			if page == "" {
				page, heading = group.Key, title
			}
			if pages[page] == "" {
				pages[page] = "# " + heading + "\n\n" + note + "[All commands](../cli.md), and the flags that most of them share.\n"
				seen[page] = map[string]string{}
			}
			name := strings.TrimPrefix(command.FullPath(), "laneway ")
			fmt.Fprintf(&index, "| [`%s`](cli/%s.md#%s) | %s |\n", name, page, strings.ReplaceAll(name, " ", "-"), onOneLine(command.Help))
			pages[page] += "\n## " + name + "\n\n" + commandSection(command, name, uses, seen[page])
		}
	}
	index.WriteString("\n## Flags of most commands\n\n`--config` and `--data` stand twice: for `laneway serve` and other commands that work with the files of a gateway, and for commands that call a running one.\n\n")
	for _, command := range leaves(program) {
		for _, flag := range command.Flags {
			if row := flagRow(flag); uses[row] >= sharedBy && !strings.Contains(index.String(), row) {
				index.WriteString(row)
			}
		}
	}
	pages["../cli"] = index.String()
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, "cli", name+".md"), []byte(text), 0o644); err != nil { //nolint:gosec // a public text
			return fmt.Errorf("writing a page: %w", err)
		}
	}
	return nil
}

// referencePage returns the page of a command and its heading, if it is not that of its group: no
// page has more than 150 lines.
func referencePage(top, command string) (page, heading string) {
	switch {
	case top == "cron" && slices.Contains([]string{"add", "edit", "rm", "pause", "resume", "import", "export"}, command):
		return "cron-edit", "Create and edit jobs"
	case top == "cron":
		return "cron", "Watch and run jobs"
	case top == "questions" || top == "tasks" || top == "toc":
		return "questions", "Questions, tasks and summaries"
	case top == "sessions" || top == "scheduler":
		return top, "laneway " + top
	}
	return "", ""
}

// commandSection is the part of a command on its page. seen has the flags above it on the page,
// with their command.
func commandSection(command *kong.Node, name string, uses map[string]int, seen map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nUsage: `laneway %s %s`\n", onOneLine(command.Help), name, synopsis(command))
	for paragraph := range strings.SplitSeq(strings.TrimSpace(command.Detail), "\n\n") {
		switch {
		case strings.HasPrefix(paragraph, "    "):
			b.WriteString("\n```sh\n" + strings.ReplaceAll(paragraph[4:], "\n    ", "\n") + "\n```\n")
		case paragraph != "" && !strings.HasPrefix(paragraph, "Example"):
			b.WriteString("\n" + onOneLine(paragraph) + "\n")
		}
	}
	var rows strings.Builder
	also := map[string][]string{}
	for _, argument := range command.Positional {
		fmt.Fprintf(&rows, "- `%s`: %s\n", argument.Summary(), onOneLine(argument.Help))
	}
	for _, flag := range command.Flags {
		switch row := flagRow(flag); {
		case flag.Hidden, uses[row] >= sharedBy:
		case seen[row] != "":
			also[seen[row]] = append(also[seen[row]], "`--"+flag.Name+"`")
		default:
			seen[row] = name
			rows.WriteString(row)
		}
	}
	if rows.Len() > 0 {
		b.WriteString("\n" + rows.String())
	}
	for _, other := range slices.Sorted(maps.Keys(also)) {
		fmt.Fprintf(&b, "\nAs for `%s`: %s.\n", other, strings.Join(also[other], ", "))
	}
	return b.String()
}

func flagRow(flag *kong.Flag) string {
	return fmt.Sprintf("- `%s`: %s\n", strings.TrimSpace(flag.String()), onOneLine(flag.Help))
}

// onOneLine is text as one line of a page.
func onOneLine(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(strings.Join(strings.Fields(text), " "))
}

// leaves returns the commands below a node that can be called, in the order of the table.
func leaves(node *kong.Node) []*kong.Node {
	var list []*kong.Node
	for _, child := range node.Children {
		if below := leaves(child); len(below) > 0 {
			list = append(list, below...)
		} else if !child.Hidden {
			list = append(list, child)
		}
	}
	return list
}

// topOf returns the command of the first word of a command.
func topOf(node *kong.Node) *kong.Node {
	for node.Parent.Type != kong.ApplicationNode {
		node = node.Parent
	}
	return node
}
