package e2e

import (
	"github.com/fairpact/fairpact/internal/localstack"
)

// SecondLogOf makes a process call the second log-server.
func SecondLogOf(stack *localstack.Stack) []string {
	return []string{"FAIRPACT_LOG_READ_URL=" + stack.LogReadURL(SecondLog), "FAIRPACT_LOG_APPEND_URL=" + stack.LogAppendURL(SecondLog)}
}
