// Command valuestable writes the table of a chart's values into its README,
// from the values and the comments above them, so that the two cannot differ.
// With -check it only says whether they do.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

const begin, end = "<!-- values: begin -->\n", "<!-- values: end -->"

func main() {
	check := flag.Bool("check", false, "write nothing, and fail where the table is stale")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: valuestable [-check] CHART")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "valuestable:", err)
		os.Exit(1)
	}
}

func run(chart string, check bool) error {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	var values yaml.Node
	if err := yaml.Unmarshal(text, &values); err != nil {
		return err
	}
	path := filepath.Join(chart, "README.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no %q and %q", path, strings.TrimSpace(begin), end)
	}
	var table strings.Builder
	table.WriteString("| value | default | is |\n|---|---|---|\n")
	rows(&table, "", values.Content[0])
	made := before + begin + table.String() + end + after
	switch {
	case made == string(page):
		return nil
	case check:
		return fmt.Errorf("the table of values in %s is stale: run make chart-docs", path)
	}
	return os.WriteFile(path, []byte(made), 0o644)
}

// rows goes down into block mappings; a mapping in braces, and any other value,
// is one row.
func rows(out *strings.Builder, prefix string, node *yaml.Node) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		about := strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(key.HeadComment, "\n# ", " "), "# ", ""))
		// A comment far above, before an empty line, is about the file.
		if _, near, far := strings.Cut(about, "\n\n"); far {
			about = near
		}
		about = strings.ReplaceAll(strings.TrimPrefix(about, "#"), "|", "\\|")
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 {
			if about != "" {
				fmt.Fprintf(out, "| `%s` | | %s |\n", name, about)
			}
			rows(out, name+".", value)
			continue
		}
		fmt.Fprintf(out, "| `%s` | `%s` | %s |\n", name, short(value), about)
	}
}

// short is a value on one line.
func short(value *yaml.Node) string {
	if value.Kind == yaml.ScalarNode {
		if value.Value == "" {
			return `""`
		}
		return value.Value
	}
	text, err := yaml.Marshal(flow(value))
	if err != nil {
		return "see values.yaml"
	}
	return strings.ReplaceAll(strings.Join(strings.Fields(string(text)), " "), "|", "\\|")
}

func flow(node *yaml.Node) *yaml.Node {
	inline := *node
	inline.Style |= yaml.FlowStyle
	inline.HeadComment, inline.LineComment, inline.FootComment = "", "", ""
	inline.Content = nil
	for _, child := range node.Content {
		inline.Content = append(inline.Content, flow(child))
	}
	return &inline
}
