package algorithm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

const maxLabelBytes = 200

// CheckLabels checks the number of labels and each label.
func CheckLabels(a *Algorithm, labels []string) error {
	// SPEC 8: each algorithm has a minimum and a maximum number of parties.
	if n := len(labels); n < a.MinParties || n > a.MaxParties {
		return fmt.Errorf("party_labels has %d items: %s takes %d to %d parties; give one label for each party", n, a.ID, a.MinParties, a.MaxParties)
	}
	first := make(map[string]int, len(labels))
	for i, label := range labels {
		switch {
		case label == "":
			return fmt.Errorf("party_labels[%d] is empty: give each party a name", i)
		case len(label) > maxLabelBytes:
			return fmt.Errorf("party_labels[%d] has %d bytes: shorten the label to at most %d bytes", i, len(label), maxLabelBytes)
		case strings.ContainsFunc(label, unicode.IsControl):
			return fmt.Errorf("party_labels[%d] holds a control character: remove the character", i)
		}
		if !a.uniqueLabels {
			continue
		}
		if strings.Contains(label, ",") {
			return fmt.Errorf("party_labels[%d] holds a comma, but %s separates the labels in a coalition key with commas: remove the comma", i, a.ID)
		}
		if j, twice := first[label]; twice {
			return fmt.Errorf("party_labels[%d] is the same as party_labels[%d], but %s names the members of a coalition by label: change one of the two labels", i, j, a.ID)
		}
		first[label] = i
	}
	return nil
}

func unknownMembers(a *Algorithm, params map[string]any) []string {
	unknown := slices.Sorted(maps.Keys(params))
	unknown = slices.DeleteFunc(unknown, func(name string) bool { _, known := a.Params.Members[name]; return known })
	if len(unknown) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("algorithm_params has unknown members, which %s ignores: %s", a.ID, problem.List(unknown, "%.200q", ", "))}
}
