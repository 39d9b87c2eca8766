package algorithm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

type game struct {
	worth []int64  // worth[c] is the worth of coalition c; bit i of c is set if party i is a member
	given []bool   // given[c] reports whether the params contain the worth of coalition c
	names []string // names[i] is the name of party i in the keys, either its label or its index
}

// readGame reads algorithm_params.coalition_values. Either all keys name parties by label, or
// all keys name parties by index. readGame tries labels and indexes, and chooses the form in
// which fewer keys contain an unknown name. On a tie, readGame chooses labels.
func readGame(labels []string, params map[string]any) (*game, error) {
	m := canon.MembersOf(params, "algorithm_params.")
	values := m.Object("coalition_values", "an object that maps coalition keys to non-negative integers")
	if m.Err() != nil {
		return nil, m.Err()
	}
	keys := slices.Sorted(maps.Keys(values)) // sorted, so that equal params always return the same error
	g := &game{worth: make([]int64, 1<<len(labels)), given: make([]bool, 1<<len(labels)), names: labels}
	if indexes := indexNames(len(labels)); misfits(keys, indexes) < misfits(keys, labels) {
		g.names = indexes
	}
	for _, key := range keys {
		members, unknown := g.members(key)
		if unknown || key != g.key(members) {
			return nil, g.keyError(key)
		}
		worth, ok := values[key].(int64)
		if !ok || worth < 0 || worth > canon.MaxInt {
			return nil, fmt.Errorf("algorithm_params.coalition_values[%.200q] must be an integer of 0 to %d", key, canon.MaxInt)
		}
		g.worth[members], g.given[members] = worth, true
	}
	return g, nil
}

func indexNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}

// misfits returns how many coalition keys contain a name that is not in names.
func misfits(keys, names []string) int {
	g := game{names: names}
	n := 0
	for _, key := range keys {
		if _, unknown := g.members(key); unknown {
			n++
		}
	}
	return n
}

func (g *game) members(key string) (members int, unknown bool) {
	for name := range strings.SplitSeq(key, ",") {
		i := slices.Index(g.names, name)
		if i < 0 {
			return members, true
		}
		members |= 1 << i
	}
	return members, false
}

// key returns the key of a coalition (SPEC 1): the sorted names of its members, joined by
// commas.
func (g *game) key(members int) string {
	var names []string
	for i, name := range g.names {
		if members>>i&1 == 1 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// keyError returns an error that says how to correct a key. If every name in the key is known,
// the error shows the correct key. Blanks around a name are a common mistake, so keyError also
// looks up the name without them.
func (g *game) keyError(key string) error {
	if key == "" {
		return fmt.Errorf("algorithm_params.coalition_values has an empty key: the empty coalition is worth 0 and needs no key; remove this key")
	}
	known, stranger := 0, ""
	for name := range strings.SplitSeq(key, ",") {
		members, unknown := g.members(name)
		if trimmed := strings.TrimSpace(name); unknown && trimmed != "" {
			members, unknown = g.members(trimmed)
		}
		if unknown && name != "" && stranger == "" {
			stranger = name
		}
		known |= members
	}
	if known != 0 && stranger == "" {
		return fmt.Errorf("algorithm_params.coalition_values: the key %.200q must be %q: sort the members by their UTF-8 bytes, name each member once, and join the names by ',' without blanks",
			key, g.key(known))
	}
	return fmt.Errorf("algorithm_params.coalition_values: the key %.200q names %.200q, which is not a party; the key of all parties is %q, and the key of a smaller coalition names only its members",
		key, stranger, g.key(len(g.worth)-1))
}

func (g *game) warnings() []string {
	var warnings, missing []string
	all := len(g.worth) - 1
	for members := 1; members < all; members++ {
		if !g.given[members] {
			missing = append(missing, g.key(members))
		}
	}
	if len(missing) > 0 {
		warnings = append(warnings, fmt.Sprintf("algorithm_params.coalition_values leaves out %d coalition(s), which count 0: %s", len(missing), problem.List(missing, "%.200q", ", ")))
	}
	if !g.given[all] {
		warnings = append(warnings, fmt.Sprintf("algorithm_params.coalition_values: the coalition of all parties (%q) is left out and counts 0, so there is nothing to share", g.key(all)))
	}
	if w := g.ambiguity(); w != "" {
		warnings = append(warnings, w)
	}
	return warnings
}

// ambiguity returns a warning if a label equals the index of another party, or "". The keys
// are read as labels, but their author may have meant indexes.
func (g *game) ambiguity() string {
	n := len(g.names)
	indexes := indexNames(n)
	for i, name := range g.names {
		if j := slices.Index(indexes, name); j >= 0 && j != i {
			return fmt.Sprintf("algorithm_params.coalition_values: keys are read as labels, so %q is party %d, not party %d", name, i, j)
		}
	}
	return ""
}
