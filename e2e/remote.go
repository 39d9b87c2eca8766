package e2e

import (
	"os"
	"testing"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/beacon/devbeacon"
)

// Tests that need nothing but HTTP also play against a deployment elsewhere:
//
//	FAIRPACT_BASE_URL     where its deal-api answers
//	FAIRPACT_BEACON_SEED  seed of its development beacon
//
// Choose them by -run: one that needs the processes behind the URL fails.
func remote() string { return os.Getenv("FAIRPACT_BASE_URL") }

// BaseURL is where deal-api answers.
func BaseURL(t testing.TB) string {
	t.Helper()
	if remote() != "" {
		return remote()
	}
	return Shared(t).BaseURL()
}

// BeaconChain is the chain that random.v1 draws from.
func BeaconChain(t testing.TB) beacon.Chain {
	t.Helper()
	if remote() != "" {
		return devbeacon.New([]byte(os.Getenv("FAIRPACT_BEACON_SEED"))).Chain()
	}
	return Shared(t).Chain()
}
