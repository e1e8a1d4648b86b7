package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is the example of the command.
func (*completionCmd) Help() string {
	return `Examples:

    laneway completion bash > /etc/bash_completion.d/laneway
    laneway completion zsh > "${fpath[1]}/_laneway"
    laneway completion fish > ~/.config/fish/completions/laneway.fish`
}

// The scripts call the program itself for the candidates, so that they never differ from its table of commands.
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
	Words []string `arg:"" optional:"" passthrough:"" help:"The words behind laneway; the last one is incomplete."`
}

// Help is the example of the command.
func (*completeCmd) Help() string { return "Example:\n\n    laneway __complete -- sess" }

// Run prints the candidates, one on a line.
func (c *completeCmd) Run(env *environment) error {
	parser, err := newParser(env)
	if err != nil {
		return errors.Join(errQuiet, err)
	}
	words := slices.Clone(c.Words)
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, candidate := range candidates(parser.Model.Node, words) {
		if _, err := fmt.Fprintln(env.stdout, candidate); err != nil {
			return err
		}
	}
	return nil
}

// candidates follows the finished words down the table and offers what may come next: flags behind a dash, else commands or
// the known values of the argument.
func candidates(node *kong.Node, words []string) []string {
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
		words = words[:len(words)-1]
	}
	flags := slices.Clone(node.Flags)
	for _, word := range words {
		for _, child := range node.Children {
			if child.Name == word {
				node = child
				flags = append(flags, child.Flags...)
			}
		}
	}
	var all []string
	switch values := valuesOf(flags, words); {
	case values != nil:
		all = values
	case strings.HasPrefix(last, "-"):
		all = flagNames(flags)
	default:
		all = nextWords(node)
	}
	all = slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, last) })
	slices.Sort(all)
	return slices.Compact(all)
}

// valuesOf are the values of the flag that the words end with; nil when it has no fixed ones.
func valuesOf(flags []*kong.Flag, words []string) []string {
	if len(words) == 0 {
		return nil
	}
	for _, f := range flags {
		if "--"+f.Name == words[len(words)-1] {
			return slices.DeleteFunc(f.EnumSlice(), func(s string) bool { return s == "" })
		}
	}
	return nil
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

func nextWords(node *kong.Node) []string {
	var words []string
	for _, child := range node.Children {
		if !child.Hidden {
			words = append(words, child.Name)
		}
	}
	for _, argument := range node.Positional {
		words = append(words, argument.EnumSlice()...)
	}
	return words
}
