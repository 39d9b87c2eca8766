// Command dashboardcheck checks a dashboard file against Grafana's schema. It fails on
// an unknown or a missing member, also in the options of panels and in queries. Every
// query must be for Prometheus.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboardcheck FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "dashboardcheck: %s does not match Grafana's schema:\n%v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	plugins.RegisterDefaultPlugins()
	var board dashboard.Dashboard
	if err := board.UnmarshalJSONStrict(text); err != nil {
		return err
	}
	if err := board.Validate(); err != nil {
		return err
	}
	if len(board.Panels) == 0 {
		return fmt.Errorf("the dashboard has no panels: add one")
	}
	for i, p := range board.Panels {
		if p.Panel == nil {
			return fmt.Errorf("panels[%d] is a row: use panels only", i)
		}
		for j, target := range p.Panel.Targets {
			// The schema accepts every query for a data source that it does not know.
			if _, ok := target.(*prometheus.Dataquery); !ok {
				return fmt.Errorf("panels[%d].targets[%d] is a %T: use a Prometheus query", i, j, target)
			}
		}
	}
	return nil
}
