package ctl

import (
	"errors"
	"testing"

	"github.com/fairpact/fairpact/internal/replica"
)

func TestProcesses(t *testing.T) {
	t.Parallel()
	process := func(kind, name, signs string, accepts ...string) replica.Process {
		return replica.Process{Kind: kind, Name: name, SignsWith: signs, Accepts: append(accepts, signs)}
	}
	api, log := process("deal-api", "a/1", "es256:a", "es256:b"), process("log-server", "l/1", "es256:b", "es256:a")
	for name, row := range map[string]struct {
		running []replica.Process
		err     error
		ok      bool
		says    string
	}{
		"in a roll-out": {[]replica.Process{api, api, log}, nil, true, "3 run (2 deal-api, 1 log-server) and accept each other's keys; 2 sign with es256:a, 1 sign with es256:b"},
		"one rejects":   {[]replica.Process{process("deal-api", "a/1", "es256:a"), log}, nil, false, "deal-api a/1 does not accept the key that log-server l/1 signs with, es256:b"},
		"nobody":        {nil, nil, false, "none has announced itself in this database within 15 seconds: it is another database, or all are of a version that does not"},
		"no database":   {nil, errors.New("reach the database"), false, "reach the database"},
	} {
		if check := processes(row.running, row.err); check.OK != row.ok || check.Detail != row.says {
			t.Errorf("%s: %+v", name, check)
		}
	}
}
