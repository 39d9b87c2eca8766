package docs

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

func TestLLMsNamesTheDeployment(t *testing.T) {
	chain := drand.Quicknet()
	chain.Hash, chain.Genesis, chain.Period = strings.Repeat("ab", 32), 1234567, 11
	page := Full(Deployment{Chain: chain, PublicURL: "https://fairpact.example.com"})
	page, _, _ = strings.Cut(page, "\n## Every error code")
	for _, want := range []string{chain.Hash, "BASE_URL=${BASE_URL:-https://fairpact.example.com}", hex.EncodeToString(chain.PublicKey), "(NOW - 1234567) / 11", "/v1/algorithms"} {
		if !strings.Contains(page, want) {
			t.Errorf("llms.txt does not contain %s", want)
		}
	}
	if strings.Contains(page, "1692803367") {
		t.Error("llms.txt has quicknet's genesis 1692803367, want only the deployment's chain")
	}
	for _, a := range algorithm.All() {
		if !strings.Contains(page, "- "+a.ID+", "+a.Purpose) {
			t.Errorf("llms.txt does not say what %s is for", a.ID)
		}
	}
	const development = "its certificates prove nothing"
	if strings.Contains(page, "{{") || strings.Contains(page, development) {
		t.Errorf("llms.txt has a placeholder {{, or says %q of a deployment without a development key", development)
	}
	page = LLMs(Deployment{Chain: chain, Development: true})
	if !strings.Contains(page, development) || !strings.Contains(page, "BASE_URL=${BASE_URL:?set it") {
		t.Errorf("llms.txt of a development deployment without a public URL does not say %q, or does not ask for BASE_URL", development)
	}
}

func TestTrustNamesWhoRunsTheBeacon(t *testing.T) {
	other := drand.Quicknet()
	other.Hash = strings.Repeat("ab", 32)
	const public, own = "this operator cannot, and nobody else", "Whoever runs that chain could open the seals at any time"
	for chain, want := range map[*drand.Chain][]string{
		new(drand.Quicknet()): {"is that of drand quicknet, not the operator's", "**In a timelock seal: nobody before its beacon round,", public, "with a random salt;"},
		&other:                {"The operator may run that chain", "**In a timelock seal: whoever runs the beacon before its round,", own, "with a random salt, unless a timelock seal holds it"},
	} {
		page := strings.Join(strings.Fields(Trust(*chain)), " ")
		for _, want := range want {
			if !strings.Contains(page, want) || strings.Contains(page, "{{") {
				t.Errorf("/trust for the chain %s does not say %q, or has a placeholder:\n%s", chain.Hash, want, page)
			}
		}
		if strings.Contains(page, public) && strings.Contains(page, own) {
			t.Errorf("/trust for the chain %s says both %q and %q", chain.Hash, public, own)
		}
	}
}

// An agent reads llms.txt before it does anything. What few agents need is in llms-full.txt.
func TestLLMsIsShort(t *testing.T) {
	page := LLMs(Deployment{Chain: drand.Quicknet(), PublicURL: "https://fairpact.example.com"})
	const perAlgorithm = 30 // a further algorithm has a line in the list
	if words, most := len(strings.Fields(page)), 1500+perAlgorithm*(len(algorithm.All())-3); words > most {
		t.Errorf("llms.txt has %d words, want at most %d", words, most)
	}
	if full := Full(Deployment{Chain: drand.Quicknet(), PublicURL: "https://fairpact.example.com"}); !strings.HasPrefix(full, page) || strings.Contains(full, "{{") {
		t.Error("llms-full.txt does not begin with llms.txt, or has a placeholder {{")
	}
}

// The trust model alone answers what a new user asks about the operator and everybody else.
func TestTrustAnswers(t *testing.T) {
	page := strings.Join(strings.Fields(Trust(drand.Quicknet())), " ")
	for question, want := range map[string]string{
		"when does the operator see my input":    "**After you reveal: the operator.**",
		"who sees it after the result":           "once all parties have consented (`POST /v1/deals/{id}/disclose`)",
		"what does the result give away":         "If two parties divide two things, each can compute the other's points.",
		"can it change a sealed split":           "| split, mode `sealed` | yes,",
		"can it change an open split":            "| split, mode `open` | not unnoticed | each party,",
		"can it change a draw":                   "| draw (`random.v1`) | not unnoticed | anybody with the bundle",
		"is adjusted winner safe to know of":     "rewards a party that knows the other's points and misstates its own",
		"what if it refuses":                     "After the end, a bundle needs no service",
		"the operator in the table, before":      "| the operator, before the end |",
		"the operator in the table, after":       "| the operator, after the end |",
		"the other parties in the table, before": "| all other parties together, before the end |",
		"the other parties in the table, after":  "| all other parties together, after the end |",
		"the beacon in the table":                "| the beacon |",
		"a witness in the table":                 "| a witness |",
		"who can read a seal too early":          "A threshold of drand's operators together could read it early; this operator cannot",
		"what does a stall of the beacon do":     "If the beacon stalls, the seals wait, and if the round never comes the deal is EXPIRED and names nobody.",
		"what do backups hold of a seal":         "after the round, whoever has both can read the input",
		"can it name a sealed party falsely":     "Your receipt for a seal proves to anyone that you committed in time and to what",
	} {
		t.Run(question, func(t *testing.T) {
			if !strings.Contains(page, want) {
				t.Errorf("/trust does not contain %q", want)
			}
		})
	}
}

// The program seal.py in llms.txt computes the same commitment as the service. The input has
// member names whose order by UTF-16 code units differs from their order by code points.
func TestLLMsRecipe(t *testing.T) {
	_, rest, found := strings.Cut(llms, "cat > seal.py <<'PY'\n")
	program, _, ended := strings.Cut(rest, "PY\n")
	if !found || !ended {
		t.Fatal("llms.txt does not contain the program seal.py")
	}
	file := filepath.Join(t.TempDir(), "seal.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	input := `{"valuations":{"ﬁ":3,"😀":1,"a":2},"list":[{"｡":1,"𝒳":{"\uffee":"\u007f\t","𐀀":[]}}]}`
	tree, err := canon.ParseObject([]byte(input))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "python3", file, input, "pepper").CombinedOutput()
	if want := canon.Commitment(canon.Encode(tree), []byte("pepper")); err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("seal.py (error: %v) prints %q, want %s", err, out, want)
	}
}
