package escrow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/fairpact/fairpact/internal/problem"
)

const (
	longest      = 366 * 24 * 3600 // seconds that a deal may wait for a deadline, or for its beacon round after the last
	shortest     = 60              // seconds of a phase below which a party may come too late
	labelBytes   = 512 << 10       // of all labels of a deal
	maxCautioned = 3               // pairs of labels that are named
)

// Cautions are what each party should know of a deal before it commits. The
// initiator, who may be the one to gain, is told at the creation.
func (d *Deal) Cautions() []string {
	d.cautions.once.Do(func() { d.cautions.all = append(cautionsOf(d, d.CreatedAt), d.odd()...) })
	return d.cautions.all
}

// cautions are found when they are first asked for.
type cautions struct {
	once sync.Once
	all  []string
}

// cautionsOf finds them. from is when parties can begin to commit. No word of the
// initiator's stands in them: they go into the advice to the others' agents.
func cautionsOf(d *Deal, from int64) (all []string) {
	if d.RoundTime != nil && *d.RoundTime <= d.RevealDeadline {
		all = append(all, fmt.Sprintf("beacon_round %d is out at %d, not after reveal_deadline %d, so the last to reveal can know the winner first", *d.BeaconRound, *d.RoundTime, d.RevealDeadline))
	}
	if commits, reveals := d.CommitDeadline-from, d.RevealDeadline-d.CommitDeadline; commits < shortest || reveals < shortest {
		all = append(all, fmt.Sprintf("the parties have %d s to commit and %d s to reveal; who is late makes the deal VOID", commits, reveals))
	}
	return append(all, alike(d.Labels)...)
}

// odd counts what the creator was warned of about the params.
func (d *Deal) odd() []string {
	warnings, err := d.algorithm.CheckParams(d.Labels, d.params)
	if err != nil || len(warnings) == 0 { // an older release may have accepted more
		return nil
	}
	return []string{fmt.Sprintf("algorithm_params are legal and unusual, and the initiator was warned of them %d times; read them closely", len(warnings))}
}

// seen is what a reader sees of a character: nothing of joiners and variation
// selectors, and of Cyrillic and Greek letters the Latin one that has their shape
// (Unicode TR39, confusables.txt).
var seen = func() map[rune]rune {
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

func shape(r rune) rune {
	if as, ok := seen[r]; ok {
		return as
	}
	return r
}

// alike names labels that a reader may take for each other: they differ by case,
// width, joiners, white space or the script of a letter alone.
func alike(labels []string) (all []string) {
	fold := cases.Fold()
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

// legible refuses text that does not show as it is: format characters turn its
// order around or are not seen.
func legible(what string, value any) error {
	switch v := value.(type) {
	case string:
		if i := strings.IndexFunc(v, unseen); i >= 0 {
			r := []rune(v[i:])[0]
			return problem.New(problem.InvalidParams, "%s holds the character U+%04X, which does not show or turns text around; leave it out", what, r)
		}
	case []any:
		for _, one := range v {
			if err := legible(what, one); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := legible(what, name); err != nil {
				return err
			}
			if err := legible(what, v[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// What joins letters in Persian, in Sinhala and in emoji.
const joiners = "\u200c\u200d"

// unseen reports whether a character is of the class Cf (format) and no joiner, or
// a filler.
func unseen(r rune) bool {
	return unicode.Is(unicode.Cf, r) && !strings.ContainsRune(joiners, r) || r == '\u034f' || r == '\u115f' || r == '\u1160' || r == '\u3164' || r == '\uffa0'
}
