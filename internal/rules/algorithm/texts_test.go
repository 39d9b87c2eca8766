package algorithm

import (
	"encoding/json"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	labels := []string{"ann", "bob"}
	for _, a := range All() {
		t.Run(a.ID, func(t *testing.T) {
			params, input := object(t, string(a.Params.Example)), object(t, string(a.Input.Example))
			if warnings, err := a.CheckParams(labels, params); err != nil || len(warnings) > 0 {
				t.Errorf("CheckParams of the example %s: %v, warnings %q; want neither", a.Params.Example, err, warnings)
			}
			if err := a.CheckInput(labels, params, input, a.InputLimit(params)); err != nil {
				t.Errorf("CheckInput of the example %s: %v, want no error", a.Input.Example, err)
			}
			if a.Title == "" || a.Purpose == "" || a.Ready == "" || a.Result.Description == "" || len(a.Result.Example) == 0 {
				t.Errorf("title %q, purpose %q, ready %q, result %q, its example %q: want all five", a.Title, a.Purpose, a.Ready, a.Result.Description, a.Result.Example)
			}
			for _, s := range []Schema{a.Params, a.Input} {
				for name, words := range s.Members {
					if words == "" {
						t.Errorf("member %s has no description, want one", name)
					}
				}
			}
		})
	}
}

func TestFillJSON(t *testing.T) {
	t.Parallel()
	got, err := FillJSON([]byte(`{"enum":"{{ids here}}","text":"of {{params}}"}`), map[string]any{"ids here": IDs()})
	if err != nil {
		t.Fatal(err)
	}
	var filled struct {
		Enum []string
		Text string
	}
	if err := json.Unmarshal(got, &filled); err != nil || len(filled.Enum) != len(All()) || filled.Text != "of "+texts()["params"] {
		t.Errorf("FillJSON = %s (%v), want all ids in enum and the text %q", got, err, "of "+texts()["params"])
	}
	if got, err := FillJSON([]byte(`"{{no such words}}"`), nil); err == nil {
		t.Errorf("FillJSON with an unknown placeholder = %s, want an error", got)
	}
	if _, err := canon.Parse(got); err != nil {
		t.Errorf("FillJSON wrote %s, which canon.Parse refuses: %v", got, err)
	}
}
