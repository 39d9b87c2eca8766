package e2e

import (
	"sync"
)

// Seen holds the code of every error that any test was answered.
var Seen sync.Map
