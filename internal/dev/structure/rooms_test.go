package structure

import (
	"go/ast"
	"go/build"
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
// have no circle. No room and no binary imports dev, so no production binary links it.
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

// Product code calls the crash points. Without the tag they must do nothing and read nothing.
func TestCrashPointsAreEmptyInAProductionBinary(t *testing.T) {
	t.Parallel()
	production, err := build.ImportDir(filepath.Join("..", "..", "platform", "crash"), 0)
	if err != nil || !slices.Equal(production.Imports, []string{"time"}) {
		t.Fatalf("package crash imports %v (%v), want only time", production.Imports, err)
	}
	for _, name := range production.GoFiles {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(production.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "Point" && len(f.Body.List) == 0 {
				return
			}
		}
	}
	t.Errorf("the files %v have no empty function Point", production.GoFiles)
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
