package cli

import "fmt"

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
