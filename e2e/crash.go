package e2e

import (
	"github.com/fairpact/fairpact/internal/localstack"
)

const (
	SecondAPI    = localstack.DealAPI + "-2"
	SecondLog    = localstack.LogServer + "-2"
	SecondWorker = localstack.DeadlineWorker + "-2"
)
