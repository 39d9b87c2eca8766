package translog

// ProofFailures returns the number of contradictions (doc.go, Faults) found.
func (l *Log) ProofFailures() int64 { return l.checks.failures.Load() }
