package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

var Chart = Repo("charts/fairpact") + "/"

// Read gives a file of the chart.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Chart, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// panel is what is looked at of a dashboard's panel.
type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ Expr, LegendFormat string }
}

func Panels(t testing.TB) []panel {
	t.Helper()
	var board struct{ Panels []panel }
	if err := json.Unmarshal([]byte(Read(t, "files/dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	return board.Panels
}

// DashboardQueries are those of the dashboard's panels.
func DashboardQueries(t testing.TB) (all []string) {
	t.Helper()
	for _, p := range Panels(t) {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}
