package escrow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	shortest     = 60        // seconds; the parties are warned if they have less time to commit or to reveal
	labelBytes   = 512 << 10 // maximum size in bytes of a deal's labels together
	maxCautioned = 3         // maximum number of cautions about similar labels
)

// Cautions returns warnings for every party. Only the initiator sees Created.Warning.
func (d *Deal) Cautions() []string { return d.cautions() }

// cautionsOf returns the cautions of a deal whose parties can commit from the unix time `from`. A
// caution never quotes the initiator's text, because agents read it as advice from the service.
func cautionsOf(d *deal.Terms, from int64) (all []string) {
	if d.RoundTime != nil && *d.RoundTime <= d.RevealDeadline {
		all = append(all, fmt.Sprintf("beacon_round %d is published at %d, which is not after reveal_deadline %d, so the last party can learn the winner before it reveals, whoever holds all invite tokens can choose it, and no verifier takes the draw as proven", *d.BeaconRound, *d.RoundTime, d.RevealDeadline))
	}
	if commits, reveals := d.CommitDeadline-from, d.RevealDeadline-d.CommitDeadline; commits < shortest || reveals < shortest {
		all = append(all, fmt.Sprintf("the parties have %d s to commit and %d s to reveal; a party that is late makes the deal VOID", commits, reveals))
	}
	if d.Random() && d.Retention == "purge" {
		all = append(all, "with retention purge the service deletes the nonces at the draw, so nobody will be able to check the draw")
	}
	return append(all, alike(d.Labels)...)
}

// chosen returns the cautions about what the initiator chose for the other parties, who agree to it by committing.
func chosen(d *deal.Terms) (all []string) {
	if d.Audience != "" {
		all = append(all, "the deal is public: whoever knows its deal_id can read its parties, params, title, message, result and proof, and the nonces of a draw. It shows no other input, but a result gives inputs away: of two divided items, all points")
	}
	if d.ActedBy != "" {
		all = append(all, "the initiator acts for all parties: nobody else needs to commit or reveal, and the draw is random by its beacon round alone")
	}
	return all
}

// unusualParams says how often CheckParams warned the initiator, whose text the warnings may quote.
func (d *Deal) unusualParams() []string {
	warnings, err := d.algorithm.CheckParams(d.Labels, d.params)
	if err != nil || len(warnings) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("algorithm_params are legal but unusual (warnings to the initiator: %d); read the params closely", len(warnings))}
}

// lookalikes maps Cyrillic and Greek letters to the Latin letter of the same shape (Unicode
// TR39, confusables.txt). Joiners and variation selectors are invisible: they map to -1, so
// that strings.Map drops them.
var lookalikes = func() map[rune]rune {
	m := map[rune]rune{'\u200c': -1, '\u200d': -1}
	for r := '\ufe00'; r <= '\ufe0f'; r++ {
		m[r] = -1
	}
	for _, pairs := range []string{
		"АAВBЕEІIЈJКKМMНHОOРPСCЅSТTУYҮYХXԌGԚQԜWЬb",
		"аaсcԁdеeһhіiјjӏlоoрpԛqгrѕsѵvԝwхxуyүy",
		"ΑAΒBΕEΖZΗHΙIΚKΜMΝNΟOΡPΤTΥYΧX",
		"αaγyιiνvοoρpσoυu",
	} {
		letters := []rune(pairs)
		for i := 0; i < len(letters); i += 2 {
			m[letters[i]] = letters[i+1]
		}
	}
	return m
}()

// alike returns at most maxCautioned cautions about labels that a reader can confuse.
func alike(labels []string) (all []string) {
	fold := cases.Fold()
	shape := func(r rune) rune {
		if as, ok := lookalikes[r]; ok {
			return as
		}
		return r
	}
	first := make(map[string]int, len(labels))
	for i, label := range labels {
		look := strings.Join(strings.Fields(fold.String(strings.Map(shape, norm.NFKC.String(label)))), " ")
		j, known := first[look]
		switch {
		case !known:
			first[look] = i
		case len(all) < maxCautioned:
			all = append(all, fmt.Sprintf("parties %d and %d have labels that look alike", j, i))
		}
	}
	return all
}

func checkVisible(what string, value any) error {
	switch v := value.(type) {
	case string:
		if i := strings.IndexFunc(v, deal.Invisible); i >= 0 {
			r := []rune(v[i:])[0]
			return problem.New(problem.InvalidParams, "%s contains the character U+%04X, which is invisible or reverses text; remove it", what, r)
		}
	case []any:
		for _, one := range v {
			if err := checkVisible(what, one); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := checkVisible(what, name); err != nil {
				return err
			}
			if err := checkVisible(what, v[name]); err != nil {
				return err
			}
		}
	}
	return nil
}
