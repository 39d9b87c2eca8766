package api

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func TestMain(m *testing.M) {
	code := e2e.Main(m)
	if missing := unseen(); code == 0 && wholeSuite() && len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "codes of the error table that no test has reached:", missing)
		code = 1
	}
	os.Exit(code)
}
