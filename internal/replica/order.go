package replica

// keptOut tells whether this process was refused and has never been in.
func (g *Gate) keptOut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.passed:
		return false
	default:
		return g.refused != nil
	}
}

// owes tells how many looks a process owes those that ran, after an answer. Their
// rows are all dead when a database is back that was away, or whose clock jumped,
// and they write anew within a try and a retry: one that they kept out waits for
// longer, or it would keep them out.
func owes(owed, looks int, keptOut bool, against int, err error) int {
	switch {
	case !keptOut:
		return 0
	case against > 0 || err != nil:
		return looks
	}
	return max(owed-1, 0)
}
