package ctl

import (
	"cmp"
	_ "embed"
	"strings"

	"github.com/alecthomas/kong"
)

// helpTexts holds a section for each command, under a heading like "## deal create".
//
//go:embed help.md
var helpTexts string

// addHelp sets the help texts of a command and of its subcommands.
func addHelp(node *kong.Node) {
	if _, text, found := strings.Cut(helpTexts, "\n## "+cmp.Or(node.Path(), node.Name)+"\n"); found {
		text, _, _ = strings.Cut(text, "\n## ")
		node.Detail = strings.TrimSpace(text)
	}
	for _, child := range node.Children {
		addHelp(child)
	}
}
