package algorithm

import "fmt"

// CatalogueEntry describes one algorithm (SPEC 2.10).
type CatalogueEntry struct {
	ID              string            `json:"id"`
	Name            string            `json:"name"`
	Parties         string            `json:"parties"`          // "2 to 16"
	AlgorithmParams map[string]string `json:"algorithm_params"` // what each member holds
	PartyInput      map[string]string `json:"party_input"`      // what each member holds
	TestVectors     []Vector          `json:"test_vectors"`
}

// Catalogue returns the published description of every algorithm, the same each
// time. The caller MUST NOT change what it holds.
func Catalogue() []CatalogueEntry {
	var entries []CatalogueEntry
	for _, a := range All() {
		entries = append(entries, CatalogueEntry{
			ID:              a.ID,
			Name:            a.Name,
			Parties:         fmt.Sprintf("%d to %d", a.MinParties, a.MaxParties),
			AlgorithmParams: a.paramsShape,
			PartyInput:      a.inputShape,
			TestVectors:     VectorsOf(a.ID),
		})
	}
	return entries
}
