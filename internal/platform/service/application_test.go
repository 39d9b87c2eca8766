package service

import (
	"strings"
	"testing"
)

func TestNameOfAProcess(t *testing.T) {
	t.Parallel()
	for _, secrets := range []string{"0a1b2c3d", ""} {
		name := ApplicationName("deadline-worker", "abcdef012345", secrets)
		p, ok := ParseApplicationName(name)
		if !ok || len(name) > maxName || p.Binary != "deadline-worker" || p.KeySet != "abcdef012345" || p.Secrets != secrets || p.Host == "" || strings.Contains(p.Host, "/") {
			t.Errorf("the name %q is parsed as %+v, want the values it was made from", name, p)
		}
	}
	for _, other := range []string{"", "psql", "fairpact/x", "fairpact", "fairpact/deal-api/0a1b2c3d/host.7"} {
		if _, ok := ParseApplicationName(other); ok {
			t.Errorf("ParseApplicationName(%q) reports a process, want none", other)
		}
	}
}
