package algorithm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	o, err := canon.ParseObject([]byte(text))
	if err != nil {
		t.Fatalf("ParseObject(%s): %v, want no error", text, err)
	}
	return o
}

func labelsN(n int) []string {
	labels := make([]string, n)
	for i := range labels {
		labels[i] = fmt.Sprintf("p%d", i)
	}
	return labels
}

func says(t *testing.T, name string, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("%s: got error %v, want none", name, err)
	case part != "" && err == nil:
		t.Errorf("%s: got no error, want one with %q", name, part)
	case part != "" && !strings.Contains(err.Error(), part):
		t.Errorf("%s: got error %v\nwant one with %q", name, err, part)
	}
}

func TestCheckLabels(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		id     string
		labels []string
		err    string
	}{
		{Split, labelsN(2), ""},
		{Split, labelsN(16), ""},
		{Split, labelsN(17), "party_labels has 17 items: split.v1 takes 2 to 16 parties"},
		{Split, labelsN(1), "party_labels has 1 items"},
		{Split, nil, "party_labels has 0 items"},
		{Random, labelsN(10_000), ""},
		{Random, labelsN(10_001), "takes 2 to 10000 parties"},
		{Shapley, labelsN(8), ""},
		{Shapley, labelsN(9), "takes 2 to 8 parties"},
		{Split, []string{"a", ""}, "party_labels[1] is empty"},
		{Split, []string{strings.Repeat("é", 100), "b"}, ""},
		{Split, []string{strings.Repeat("é", 100) + "x", "b"}, "party_labels[0] has 201 bytes"},
		{Split, []string{"a\n", "b"}, "party_labels[0] holds a control character"},
		{Split, []string{"a", "\x00"}, "control character"},
		{Split, []string{"a,b", "a,b"}, ""},
		{Random, []string{"a", "a"}, ""},
		{Shapley, []string{"a", "a"}, "party_labels[1] is the same as party_labels[0]"},
		{Shapley, []string{"a", "b,c"}, "party_labels[1] holds a comma"},
		{Shapley, []string{"e\u0301", "\u00e9"}, ""},
	} {
		a, _ := Lookup(tc.id)
		says(t, fmt.Sprintf("%s %.3q", tc.id, tc.labels), CheckLabels(a, tc.labels), tc.err)
	}
}

func itemList(n int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(`"i%d"`, i)
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

func TestCheckParams(t *testing.T) {
	t.Parallel()
	abc := []string{"a", "b", "c"}
	for _, tc := range []struct {
		id     string
		labels []string
		params string
		err    string
	}{
		{Split, abc, `{"items":["x"]}`, ""},
		{Split, abc, `{"items":["x","X","x ","\u0000"]}`, ""},
		{Split, []string{"a"}, `{"items":["x"]}`, "party_labels"},
		{Split, abc, `{}`, "algorithm_params.items is missing: give an array"},
		{Split, abc, `{"items":null}`, "algorithm_params.items is null"},
		{Split, abc, `{"items":[]}`, "has 0 items: give 1 to 1000"},
		{Split, abc, `{"items":["x",1]}`, "algorithm_params.items[1] is an integer"},
		{Split, abc, `{"items":[""]}`, "algorithm_params.items[0] is empty"},
		{Split, abc, `{"items":["x","y","x"]}`, "items[2] is the same as items[0]"},
		{Split, abc, `{"items":["` + strings.Repeat("x", 200) + `"]}`, ""},
		{Split, abc, `{"items":["` + strings.Repeat("x", 201) + `"]}`, "items[0] has 201 bytes"},
		{Split, abc, itemList(1000), ""},
		{Split, abc, itemList(1001), "has 1001 items: give 1 to 1000"},
		{Split, labelsN(16), itemList(256), ""},
		{Split, labelsN(16), itemList(257), "items × parties is 4112: use fewer items or parties, so that this product is at most 4096"},

		{Random, abc, `{"beacon_round":1}`, ""},
		{Random, abc, `{"beacon_round":9007199254740991}`, ""},
		{Random, abc, `{"beacon_round":0}`, "beacon_round is 0"},
		{Random, abc, `{"beacon_round":"7"}`, "beacon_round is a string"},
		{Random, abc, `{}`, "beacon_round is missing"},

		{Shapley, abc, `{"coalition_values":{"a":1,"b":2,"c":3,"a,b":4,"a,c":5,"b,c":6,"a,b,c":7}}`, ""},
		{Shapley, abc, `{"coalition_values":{"0":1,"1":2,"0,2":3,"0,1,2":7}}`, ""},
		{Shapley, abc, `{"coalition_values":{}}`, ""},
		{Shapley, abc, `{}`, "coalition_values is missing"},
		{Shapley, abc, `{"coalition_values":{"a":-1}}`, `coalition_values["a"] must be an integer of 0 to 9007199254740991`},
		{Shapley, abc, `{"coalition_values":{"a":"1"}}`, `coalition_values["a"] must be an integer`},
		{Shapley, abc, `{"coalition_values":{"":0}}`, "the empty coalition is worth 0"},
		{Shapley, abc, `{"coalition_values":{"b,a":1}}`, `the key "b,a" must be "a,b"`},
		{Shapley, abc, `{"coalition_values":{"a,a":1}}`, `the key "a,a" must be "a"`},
		{Shapley, abc, `{"coalition_values":{" c ,a":1}}`, `the key " c ,a" must be "a,c"`},
		{Shapley, abc, `{"coalition_values":{"a,,b":1}}`, `the key "a,,b" must be "a,b"`},
		{Shapley, abc, `{"coalition_values":{",":1}}`, `the key of all parties is "a,b,c"`},
		{Shapley, abc, `{"coalition_values":{"a,x":1}}`, `the key "a,x" names "x", which is not a party; the key of all parties is "a,b,c"`},
		{Shapley, abc, `{"coalition_values":{"1,0":1}}`, `the key "1,0" must be "0,1"`},
		{Shapley, abc, `{"coalition_values":{"0":1,"0,3":1}}`, `names "3", which is not a party; the key of all parties is "0,1,2"`},
		{Shapley, abc, `{"coalition_values":{"00":1,"0":2}}`, `names "00", which is not a party; the key of all parties is "0,1,2"`},
		{Shapley, abc, `{"coalition_values":{"a":1,"a,b":2,"0":1}}`, `the key "0" names "0", which is not a party; the key of all parties is "a,b,c"`},
		{Shapley, []string{"z", "ö", "Z"}, `{"coalition_values":{"ö,z":1}}`, `must be "z,ö"`},
		{Shapley, []string{"z", "ö", "Z"}, `{"coalition_values":{"Z,z,ö":1}}`, ""},
		{Shapley, []string{"\ufb33", "😀"}, "{\"coalition_values\":{\"😀,\ufb33\":1}}", "must be \"\ufb33,😀\""},
		{Shapley, []string{" a", "b"}, `{"coalition_values":{" a,b":1}}`, ""},
		{Shapley, []string{"0", "b"}, `{"coalition_values":{"0":1,"1":1,"0,1":1}}`, ""},
		{Shapley, abc, `{"coalition_values":{"` + strings.Repeat("a,", 1_000_000) + `b":1}}`, `" must be "a,b"`},
		{Shapley, abc, `{"coalition_values":{"` + strings.Repeat("x", 1_000_000) + `":1}}`, `names "` + strings.Repeat("x", 200) + `", which`},
	} {
		a, _ := Lookup(tc.id)
		_, err := a.CheckParams(tc.labels, object(t, tc.params))
		says(t, fmt.Sprintf("%s %.80s", tc.id, tc.params), err, tc.err)
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%.80s: the error has %d bytes, want at most 1000", tc.params, len(err.Error()))
		}
	}
	for _, a := range All() {
		_, err := a.CheckParams([]string{"a", "b"}, nil)
		says(t, a.ID+" without params", err, "is missing")
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	abc := []string{"a", "b", "c"}
	const full = `"a":1,"b":2,"c":3,"a,b":4,"a,c":5,"b,c":6,"a,b,c":7`
	for _, tc := range []struct {
		id     string
		labels []string
		params string
		want   []string
	}{
		{Split, abc, `{"items":["x"]}`, nil},
		{Split, abc, `{"items":["x"],"z":1,"item":[]}`, []string{`algorithm_params has unknown members, which split.v1 ignores: "item", "z"`}},
		{Split, abc, `{"items":["x"],"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1}`, []string{`"8", and 1 more`}},
		{Random, abc, `{"beacon_round":7,"nonce":"00"}`, []string{`algorithm_params has unknown members, which random.v1 ignores: "nonce"`}},
		{Shapley, abc, `{"coalition_values":{` + full + `}}`, nil},
		{Shapley, abc, `{"coalition_values":{` + full + `},"x":null}`, []string{`ignores: "x"`}},
		{Shapley, abc, `{"coalition_values":{"a":1,"b":2,"a,b":4,"a,b,c":7}}`, []string{`leaves out 3 coalition(s), which count 0: "c", "a,c", "b,c"`}},
		{Shapley, abc, `{"coalition_values":{"0":1,"1":2,"0,1":4,"0,1,2":7}}`, []string{`leaves out 3 coalition(s), which count 0: "2", "0,2", "1,2"`}},
		{Shapley, abc, `{"coalition_values":{"a":1,"b":2,"c":3,"a,b":4,"a,c":5,"b,c":6}}`, []string{`the coalition of all parties ("a,b,c") is left out`}},
		{Shapley, abc, `{"coalition_values":{}}`, []string{"leaves out 6 coalition(s)", `("a,b,c") is left out`}},
		{Shapley, labelsN(8), `{"coalition_values":{}}`, []string{"leaves out 254 coalition(s), which count 0", "is left out and counts 0"}},
		{Shapley, []string{"0", "1"}, `{"coalition_values":{"0":1,"1":2,"0,1":3}}`, nil},
		{Shapley, []string{"1", "0"}, `{"coalition_values":{"0":1,"1":2,"0,1":3}}`, []string{`"1" is party 0, not party 1`}},
	} {
		a, _ := Lookup(tc.id)
		got, err := a.CheckParams(tc.labels, object(t, tc.params))
		if err != nil || len(got) != len(tc.want) {
			t.Errorf("CheckParams(%s): got warnings %q, %v; want %q", tc.params, got, err, tc.want)
			continue
		}
		for i, part := range tc.want {
			if !strings.Contains(got[i], part) {
				t.Errorf("CheckParams(%s): got the warning %q, want one with %q", tc.params, got[i], part)
			}
		}
	}
}

var someParams = map[string]string{
	Split:   `{"items":["car","boat"]}`,
	Random:  `{"beacon_round":7}`,
	Shapley: `{"coalition_values":{"a":1,"b":1,"a,b":3}}`,
}

// An error may reach a log, so it must not contain any part of the refused input.
func TestCheckInput(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ id, input, err string }{
		{Split, `{"valuations":{"car":1,"boat":2}}`, ""},
		{Split, `{"valuations":{"car":9007199254740991}}`, ""},
		{Split, `{"valuations":{}}`, ""},
		{Split, `{"valuations":{"car":null}}`, `input.valuations: the value of item "car" is null; send an integer of 0 to 9007199254740991, or leave the item out to value it at 0`},
		{Split, `{"valuations":{"car":0,"boat":0},"note":"x"}`, ""},
		{Split, `{"SECRET":4242}`, "input.valuations is missing: give an object"},
		{Split, `{"valuations":null}`, "input.valuations is null"},
		{Split, `{"valuations":"SECRET"}`, "input.valuations is a string"},
		{Split, `{"valuations":{"car":-4242}}`, `input.valuations: the value of item "car" must be an integer of 0 to 9007199254740991`},
		{Split, `{"valuations":{"car":1,"boat":"SECRET"}}`, `the value of item "boat" must be an integer`},
		{Split, `{"valuations":{"car":{"SECRET":4242}}}`, `must be an integer`},
		{Split, `{"valuations":{"car":1,"SECRET":0,"x":1}}`, `input.valuations has 2 member(s) that are not items of this deal; the items are "car", "boat"`},

		{Random, `{"nonce":""}`, ""},
		{Random, `{"nonce":"aBc"}`, ""},
		{Random, `{"nonce":"00","x":1}`, ""},
		{Random, `{"nonce":"` + strings.Repeat("a", 1024) + `"}`, ""},
		{Random, `{"nonce":"` + strings.Repeat("42", 512) + `4"}`, "input.nonce is too long: a nonce has at most 1024 hex digits"},
		{Random, `{"nonce":"0x4242"}`, "input.nonce holds a character that is not a hex digit"},
		{Random, `{"nonce":"SECRET"}`, "not a hex digit"},
		{Random, `{"nonce":4242}`, "input.nonce is an integer: give a string of hex digits"},
		{Random, `{"SECRET":null}`, "input.nonce is missing"},

		{Shapley, `{"accept":true}`, ""},
		{Shapley, `{"accept":false,"why":"too little"}`, ""},
		{Shapley, `{"accept":null}`, "input.accept is null: give true, or false to reject"},
		{Shapley, `{"accept":"SECRET"}`, "input.accept is a string"},
		{Shapley, `{"accept":4242}`, "input.accept is an integer"},
		{Shapley, `{"SECRET":true}`, "input.accept is missing"},
	} {
		a, _ := Lookup(tc.id)
		params := object(t, someParams[tc.id])
		err := a.CheckInput([]string{"a", "b"}, params, object(t, tc.input), a.InputLimit(params))
		says(t, fmt.Sprintf("%s %.60s", tc.id, tc.input), err, tc.err)
		if err != nil && (strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "4242")) {
			t.Errorf("%s %.60s: the error shows the input: %v", tc.id, tc.input, err)
		}
	}
	for _, a := range All() {
		says(t, a.ID+" without input", a.CheckInput([]string{"ann", "bob"}, object(t, string(a.Params.Example)), nil, a.MaxInput), "is missing")
	}
}

// Every input without unknown members fits its limit, so that nobody commits to an input that the reveal refuses.
func TestInputLimitFitsEveryValuation(t *testing.T) {
	t.Parallel()
	a, _ := Lookup(Split)
	for _, item := range []string{"%d", "\x01\"\\%d", "é%d", strings.Repeat("x", 190) + "%d"} {
		for _, n := range []int{1, 2, 256, maxItems} {
			items, valuations := make([]any, n), make(map[string]any, n)
			for i := range items {
				items[i] = fmt.Sprintf(item, i)
				valuations[items[i].(string)] = canon.MaxInt
			}
			params, input := map[string]any{"items": items}, map[string]any{"valuations": valuations}
			limit := a.InputLimit(params)
			if err := a.CheckInput([]string{"a", "b"}, params, input, limit); err != nil {
				t.Errorf("%d items like %q: the largest input is refused: %v", n, item, err)
			}
			input["note"] = strings.Repeat("x", spareInput)
			if err := a.CheckInput([]string{"a", "b"}, params, input, limit); err == nil {
				t.Errorf("%d items like %q: an input with %d bytes of unknown members fits %d bytes", n, item, spareInput, limit)
			}
		}
	}
}

// The largest results that are known keep to ResultLimit, and are not far from it.
func TestResultLimit(t *testing.T) {
	label := strings.Repeat(`"`, maxLabelBytes-2)
	labels := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%s%02d", label, i))
		}
		return all
	}
	split := func(parties, items int) (map[string]any, []map[string]any) {
		names, inputs := make([]any, items), make([]map[string]any, parties)
		for i := range names {
			names[i] = fmt.Sprintf("%s%03d", strings.Repeat("\x01", maxItemBytes-3), i)
		}
		for p := range inputs {
			values := map[string]any{}
			for i, name := range names {
				values[name.(string)] = canon.MaxInt - int64(1_000_003*(i+1)*(p+7)+7919*p*p)
			}
			inputs[p] = map[string]any{"valuations": values}
		}
		return map[string]any{"items": names}, inputs
	}
	for _, row := range []struct {
		id             string
		parties, items int
	}{{Split, 2, 1}, {Split, 2, 800}, {Split, 3, 1}, {Split, 3, 800}, {Split, 16, 256}, {Random, 2, 0}, {Shapley, 8, 0}} {
		t.Run(fmt.Sprint(row.id, " ", row.parties, " ", row.items), func(t *testing.T) {
			a, _ := Lookup(row.id)
			params, inputs := split(row.parties, row.items)
			switch row.id {
			case Random:
				params, inputs = map[string]any{"beacon_round": quicknetRound.Round}, []map[string]any{{"nonce": "aa"}, {"nonce": "bb"}}
			case Shapley:
				params = map[string]any{"coalition_values": worths(labels(row.parties))}
				for p := range inputs {
					inputs[p] = map[string]any{"accept": true}
				}
			}
			if _, err := a.CheckParams(labels(row.parties), params); err != nil {
				t.Fatal(err)
			}
			got, err := a.Compute(labels(row.parties), params, inputs, &quicknetRound)
			if err != nil {
				t.Fatal(err)
			}
			if most := a.ResultLimit(labels(row.parties), params); len(got) > most || len(got) < most/2 {
				t.Errorf("the result has %d bytes, want at most %d, and at least half of that if it is large", len(got), most)
			}
		})
	}
}

// worths returns coalition_values in which no share is an integer.
func worths(labels []string) map[string]any {
	all := map[string]any{}
	for coalition := 1; coalition < 1<<len(labels); coalition++ {
		var names []string
		for i, label := range labels {
			if coalition>>i&1 == 1 {
				names = append(names, label)
			}
		}
		all[strings.Join(names, ",")] = canon.MaxInt - int64(coalition*coalition%1009)
	}
	return all
}
