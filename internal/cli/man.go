package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

type manCmd struct {
	Dir string `arg:"" help:"Directory for the pages; it is made." type:"path"`
}

// Help is the example of the command.
func (*manCmd) Help() string { return "Example:\n\n    laneway __man man1" }

// Run writes a manual page for the program and for each command.
func (c *manCmd) Run(env *environment) error {
	parser, err := newParser(env, &commands{})
	if err != nil {
		return errors.Join(errQuiet, err)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil { //nolint:gosec // public texts
		return fmt.Errorf("making the directory: %w", err)
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

// roff converts text to one line without requests: a leading dot or quote would be a request, and a backslash an escape.
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
