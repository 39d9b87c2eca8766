//go:build crashpoints

package signing

import (
	"os"
	"time"
)

// Margin is 5 minutes unless FAIRPACT_TEST_KEY_MARGIN says otherwise, so that a
// test sees a rotation within seconds.
func Margin() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("FAIRPACT_TEST_KEY_MARGIN")); err == nil {
		return d
	}
	return 5 * time.Minute
}
