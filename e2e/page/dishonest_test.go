package page

import (
	"slices"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// The page catches the lies of an operator who signs them with the deployment's own key, as fairpactctl and
// the Python verifier do (e2e/trust).
func TestPageCatchesADishonestOperator(t *testing.T) {
	_, p := frontPage(t)
	draw, split := e2e.Lies(t)
	p.runs()
	exchanged := e2e.AsBody(t, string(split.Bundle))
	var openings []e2e.Body
	for _, one := range split.Openings {
		openings = append(openings, e2e.Body{"input": one["input"], "salt": one["salt"]})
	}
	exchanged["openings"] = openings
	for _, x := range []struct {
		name, bundle, key string
		failed            []string
		result, draw      string
	}{
		{"draw", string(draw.Bundle), draw.Pubkey, []string{"result"}, "false", "false"},
		{"split, unseen", string(split.Bundle), split.Pubkey, []string{}, "not proven", ""},
		{"split, exchanged openings", e2e.JsonText(t, exchanged), split.Pubkey, []string{"result"}, "false", ""},
	} {
		failed := p.verdict(x.bundle, x.key, "", "", "")
		if claims := p.claims("#verify-report"); !slices.Equal(failed, x.failed) || claims["issued"] != "proven" || claims["result"] != x.result || claims["draw"] != x.draw {
			t.Errorf("%s: the checks %v fail and the claims are %v, want %v, the issuer proven, the result %s and the draw %q", x.name, failed, claims, x.failed, x.result, x.draw)
		}
	}
}
