package ctl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `Examples:

    source <(fairpactctl completion bash)
    fairpactctl completion bash > /etc/bash_completion.d/fairpactctl
    source <(fairpactctl completion zsh)
    fairpactctl completion fish > ~/.config/fish/completions/fairpactctl.fish`
}

func (c completionCommand) Run(t *terminal) error {
	script := bashScript
	switch c.Shell {
	case "zsh": // its own emulation of bash's completion
		script = func(all []branch) string {
			return "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + bashScript(all)
		}
	case "fish":
		script = fishScript
	}
	_, err := fmt.Fprint(t.out, script(branches(t.model.Node, "")))
	return err
}

// branch is a command: its path like "deal create", the commands below it and
// its flags.
type branch struct {
	path     string
	commands []*kong.Node
	flags    []*kong.Flag
}

func branches(n *kong.Node, path string) []branch {
	b := branch{path: path}
	for _, group := range n.AllFlags(true) {
		for _, flag := range group {
			if !slices.ContainsFunc(b.flags, func(f *kong.Flag) bool { return f.Name == flag.Name }) {
				b.flags = append(b.flags, flag)
			}
		}
	}
	var below []branch
	for _, child := range n.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			b.commands = append(b.commands, child)
			below = append(below, branches(child, strings.TrimSpace(path+" "+child.Name))...)
		}
	}
	return append([]branch{b}, below...)
}

// words of bash: the commands so far lead to a branch; a word that begins with a
// dash is one of its flags, any other one of its commands or a file.
func bashScript(all []branch) string {
	var s strings.Builder
	s.WriteString(`_fairpactctl() {
  local cur=${COMP_WORDS[COMP_CWORD]} path="" word words="" flags=""
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path $word" in
`)
	for _, b := range all[1:] {
		parent, name := "", b.path
		if i := strings.LastIndex(b.path, " "); i >= 0 {
			parent, name = b.path[:i], b.path[i+1:]
		}
		fmt.Fprintf(&s, "      %q) path=%q ;;\n", parent+" "+name, b.path)
	}
	s.WriteString("    esac\n  done\n  case \"$path\" in\n")
	for _, b := range all {
		var flags, names []string
		for _, f := range b.flags {
			flags = append(flags, "--"+f.Name)
		}
		for _, c := range b.commands {
			names = append(names, c.Name)
		}
		if b.path == "completion" {
			names = []string{"bash", "zsh", "fish"}
		}
		fmt.Fprintf(&s, "    %q) words=%q flags=%q ;;\n", b.path, strings.Join(names, " "), strings.Join(flags, " "))
	}
	s.WriteString(`  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}
complete -o filenames -F _fairpactctl fairpactctl
`)
	return s.String()
}

func fishScript(all []branch) string {
	var s strings.Builder
	quote := func(text string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
	}
	for _, b := range all {
		var seen []string
		for word := range strings.FieldsSeq(b.path) {
			seen = append(seen, "__fish_seen_subcommand_from "+word)
		}
		for _, c := range b.commands {
			// A command is offered until one of its siblings stands there.
			var siblings []string
			for _, sibling := range b.commands {
				siblings = append(siblings, sibling.Name)
			}
			when := append(slices.Clone(seen), "not __fish_seen_subcommand_from "+strings.Join(siblings, " "))
			fmt.Fprintf(&s, "complete -c fairpactctl -f -n %s -a %s -d %s\n", quote(strings.Join(when, "; and ")), c.Name, quote(c.Help))
		}
		if len(b.commands) > 0 {
			continue
		}
		for _, f := range b.flags {
			value := ""
			if !f.IsBool() {
				value = " -r"
			}
			fmt.Fprintf(&s, "complete -c fairpactctl -n %s -l %s%s -d %s\n", quote(strings.Join(seen, "; and ")), f.Name, value, quote(f.Help))
		}
	}
	s.WriteString("complete -c fairpactctl -f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n")
	return s.String()
}
