package pages

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// Every text that a module shows is in the catalogue, and every text of the catalogue is shown.
func TestCatalogueOfTexts(t *testing.T) {
	groups, key := regexp.MustCompile(`(?ms)^export const ([A-Z]+) = \{\n(.*?)^\};`), regexp.MustCompile(`(?m)^  (\w+):`)
	catalogue, err := fs.ReadFile(static, "static/texts.js")
	if err != nil {
		t.Fatal(err)
	}
	unused := map[string]bool{}
	for _, group := range groups.FindAllStringSubmatch(string(catalogue), -1) {
		for _, one := range key.FindAllStringSubmatch(group[2], -1) {
			name := group[1] + "." + one[1]
			if unused[name] {
				t.Errorf("%s is there twice", name)
			}
			unused[name] = true
		}
	}
	if len(unused) < 200 {
		t.Fatalf("the catalogue has %d texts, want at least 200", len(unused))
	}
	known := map[string]bool{}
	for name := range unused {
		known[name] = true
	}
	use, destructured := regexp.MustCompile(`\b([A-Z]+\.[a-z]\w*)`), regexp.MustCompile(`export const \{ (\w+) \} = ([A-Z]+);`)
	modules, err := fs.Glob(static, "static/*.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range modules {
		body, err := fs.ReadFile(static, path)
		if err != nil {
			t.Fatal(err)
		}
		text := destructured.ReplaceAllString(string(body), "$2.$1")
		if !strings.Contains(text, "from './texts.js'") && path != "static/texts.js" {
			continue
		}
		groups := regexp.MustCompile(`import \{ ([A-Z, ]+) \} from './texts.js'`).FindStringSubmatch(text + "\nimport { COMMON } from './texts.js'")[1]
		for _, found := range use.FindAllStringSubmatch(text, -1) {
			group, _, _ := strings.Cut(found[1], ".")
			if !strings.Contains(", "+groups+",", " "+group+",") {
				continue
			}
			if !known[found[1]] {
				t.Errorf("%s shows %s, which the catalogue does not have", path, found[1])
			}
			delete(unused, found[1])
		}
	}
	for name := range unused {
		t.Errorf("nothing shows %s", name)
	}
}
