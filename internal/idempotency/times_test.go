package idempotency

import "testing"

// A retry MUST outlive the lock of a killed process, or it is told to come back
// while nobody works on its call.
func TestARetryOutlivesAnOrphanedLock(t *testing.T) {
	if lockTime+pollTime >= waitTime {
		t.Errorf("a lock lasts %v and a retry waits %v", lockTime, waitTime)
	}
}
