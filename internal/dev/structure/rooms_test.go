package structure

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// below lists the rooms of internal/ that each room may import. Every arrow points down, so the rooms
// have no circle. No binary imports dev.
var below = map[string][]string{
	"rules":    {},
	"platform": {"rules"},
	"beacon":   {"rules", "platform"},
	"signing":  {"rules", "platform"},
	"translog": {"rules", "platform", "signing"},
	"escrow":   {"rules", "platform", "signing", "beacon", "translog"},
	"api":      {"rules", "platform", "signing", "beacon", "translog", "escrow"},
	"ctl":      {"rules", "platform", "signing", "beacon", "translog", "escrow", "api"},
	"dev":      {"rules", "platform", "signing", "beacon", "translog"},
	"services": {"rules", "platform", "signing", "beacon", "translog", "escrow", "api", "ctl"},
}

func TestRoomsImportOnlyTheRoomsBelow(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	for room, may := range below {
		top := filepath.Join(root, "internal", room)
		if room == "services" {
			top = filepath.Join(root, room)
		}
		for file, imports := range productImports(t, top) {
			for _, path := range imports {
				to, ours := strings.CutPrefix(path, module+"internal/")
				to, _, _ = strings.Cut(to, "/")
				if ours && to != room && !slices.Contains(may, to) {
					t.Errorf("%s imports %s: room %s may import only %v", file, path, room, may)
				}
			}
		}
	}
}

func TestInternalHasNineRooms(t *testing.T) {
	t.Parallel()
	entries, err := filepath.Glob(filepath.Join("..", "..", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var rooms []string
	for _, entry := range entries {
		rooms = append(rooms, filepath.Base(entry))
	}
	var want []string
	for room := range below {
		if room != "services" {
			want = append(want, room)
		}
	}
	slices.Sort(want)
	if !slices.Equal(rooms, want) {
		t.Errorf("internal/ holds %v, want the nine rooms %v", rooms, want)
	}
}

// productImports returns the imports of each Go file below top that is not a test.
func productImports(t *testing.T, top string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[path] = append(found[path], imported)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: read %d Go files (%v), want some", top, len(found), err)
	}
	return found
}
