package api

import (
	"flag"
	"slices"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/problem"
)

// elsewhere are the codes that other packages reach: e2e/trust tampers with the
// log and with the deals, e2e/outage stops the database and makes it read-only, and e2e/abuse sends too
// much.
var elsewhere = []problem.Code{problem.LogInconsistent, problem.TagTaken, problem.Unavailable, problem.ReadOnly, problem.Overloaded}

// unseen are the codes of the error table that no test here has reached.
func unseen() (missing []problem.Code) {
	for _, row := range problem.Table {
		if _, reached := e2e.Seen.Load(string(row.Code)); !reached && !slices.Contains(elsewhere, row.Code) {
			missing = append(missing, row.Code)
		}
	}
	return missing
}

// wholeSuite reports whether all tests ran, so that what was not seen is missing.
func wholeSuite() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}
