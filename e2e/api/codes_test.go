package api

import (
	"flag"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/problem"
)

// unseen are the codes of the error table that no test here has reached. A log
// that contradicts itself is tampered with in e2e/trust.
func unseen() (missing []problem.Code) {
	for _, row := range problem.Table {
		if _, reached := e2e.Seen.Load(string(row.Code)); !reached && row.Code != problem.LogInconsistent {
			missing = append(missing, row.Code)
		}
	}
	return missing
}

// wholeSuite tells whether all tests ran, so that what was not seen is missing.
func wholeSuite() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}
