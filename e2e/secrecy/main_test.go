package secrecy

import (
	"os"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
