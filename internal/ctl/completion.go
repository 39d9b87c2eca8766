package ctl

import (
	"fmt"
	"io"
	"slices"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell of the script: bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `Examples:

    source <(fairpactctl completion bash)
    fairpactctl completion bash > /etc/bash_completion.d/fairpactctl
    source <(fairpactctl completion zsh)
    fairpactctl completion fish > ~/.config/fish/completions/fairpactctl.fish`
}

// The scripts offer the words that `fairpactctl words` prints. If no word matches, the shell
// completes file names.
const (
	bashScript = `_fairpactctl() {
  COMPREPLY=($(compgen -W "$(fairpactctl words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _fairpactctl fairpactctl
`
	zshScript  = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + bashScript
	fishScript = "complete -c fairpactctl -a '(fairpactctl words -- (commandline -opc)[2..-1] 2>/dev/null)'\n"
)

func (c completionCommand) Run(t *terminal) error {
	_, err := io.WriteString(t.out, map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell])
	return err
}

// wordsCommand prints the words that may come next on a command line, one per line. The
// completion scripts call it.
type wordsCommand struct {
	Before []string `arg:"" optional:"" passthrough:"" help:"The words so far, after fairpactctl."`
}

func (c wordsCommand) Run(t *terminal) error {
	at := t.model.Node
	for _, word := range c.Before {
		if i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == word && !n.Hidden }); i >= 0 {
			at = at.Children[i]
		}
	}
	for _, child := range at.Children {
		if !child.Hidden {
			fmt.Fprintln(t.out, child.Name)
		}
	}
	for _, argument := range at.Positional {
		for _, value := range argument.EnumSlice() {
			fmt.Fprintln(t.out, value)
		}
	}
	for _, group := range at.AllFlags(true) {
		for _, flag := range group {
			fmt.Fprintln(t.out, "--"+flag.Name)
		}
	}
	return nil
}
