package trust

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// An operator who grinds a draw, or certifies another split, signs with the deployment's own key, so that
// issuer and log are proven. The draw is caught by any party and by a stranger who gets the bundle; the
// split once the parties exchange their openings.
func TestDishonestOperator(t *testing.T) {
	t.Parallel()
	draw, split := e2e.Lies(t)
	for _, x := range []struct {
		name     string
		lie      e2e.Lie
		openings int // that are given beside the bundle
		code     int
		says     []string
	}{
		{"draw", draw, 0, 1, []string{"FAIL result", "false          result", "false          draw"}},
		{"split, unseen", split, 0, 0, []string{"not proven     result"}},
		{"split, one opening", split, 1, 0, []string{"not proven     result"}},
		{"split, exchanged openings", split, 2, 1, []string{"FAIL result", "false          result"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			offline := e2e.NewCtl(t, "http://127.0.0.1:1")
			args := []string{"--pubkey", x.lie.Pubkey}
			for i, opening := range x.lie.Openings[:x.openings] {
				args = append(args, "--opening", filepath.Join(offline.Dir, offline.File(fmt.Sprintf("opening-%d.json", i), opening)))
			}
			file := filepath.Join(offline.Dir, offline.File("bundle.json", x.lie.Bundle))
			inGo, _ := offline.Run(x.code, append([]string{"verify", file}, args...)...)
			good, inPython := e2e.Verifier(t, append([]string{"--bundle", file}, args...)...)
			if good != (x.code == 0) {
				t.Errorf("the independent verifier accepts the bundle: %v, want %v\n%s", good, x.code == 0, inPython)
			}
			for _, said := range []string{inGo, inPython} {
				for _, want := range append(x.says, "proven         issued", "proven         logged") {
					if !strings.Contains(said, want) {
						t.Errorf("a verifier does not print %q:\n%s", want, said)
					}
				}
			}
		})
	}
}
