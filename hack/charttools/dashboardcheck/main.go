// Command dashboardcheck checks a dashboard file against Grafana's schema. It rejects unknown
// and missing members, also in the options of panels and in queries. It also rejects rows, and
// queries that are not for Prometheus.
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
		fmt.Fprintf(os.Stderr, "dashboardcheck: the check of %s failed:\n%v\n", os.Args[1], err)
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
			return fmt.Errorf("panels[%d] is a row: replace it with panels", i)
		}
		for j, target := range p.Panel.Targets {
			// The schema accepts any query whose data source is unknown to the schema.
			if _, ok := target.(*prometheus.Dataquery); !ok {
				return fmt.Errorf("panels[%d].targets[%d] is a %T: use a Prometheus query", i, j, target)
			}
		}
	}
	return nil
}
