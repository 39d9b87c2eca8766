package telemetry

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// logging maps the methods of slog.Logger to the index of the message argument.
var logging = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1, "Log": 2,
}

// Log lines are searched by message and by the key err, so messages are constants and
// errors have that key in all packages.
func TestLogLinesHaveConstantMessagesAndOneKeyForErrors(t *testing.T) {
	seen := 0
	for _, root := range []string{"../../internal", "../../services"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !isLogger(method.X) {
					return true
				}
				message, ok := logging[method.Sel.Name]
				if !ok || len(call.Args) <= message {
					return true
				}
				seen++
				switch call.Args[message].(type) {
				case *ast.BasicLit, *ast.Ident:
				default:
					t.Errorf("%s: the message is not a constant", set.Position(call.Pos()))
				}
				for _, arg := range call.Args[message+1:] {
					if key, ok := arg.(*ast.BasicLit); ok && (key.Value == `"error"` || key.Value == `"message"`) {
						t.Errorf("%s: the key is %s", set.Position(key.Pos()), key.Value)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 30 {
		t.Errorf("only %d log calls were checked", seen)
	}
}

// isLogger reports whether an expression is a logger by its name.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "logger" || x.Name == "slog"
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "logger")
	}
	return false
}
