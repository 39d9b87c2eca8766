// Package trust tests what the parties can verify without trusting the service, and what
// the service refuses after somebody has changed its database.
package trust

import (
	"os"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
