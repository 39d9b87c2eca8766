package algorithms

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairpact/fairpact/e2e"
)

func TestNewAlgorithmTouchesFewPlaces(t *testing.T) {
	if len(places) > mostPlaces {
		t.Errorf("max.v1 touches %d files, want at most %d", len(places), mostPlaces)
	}
	guide, err := os.ReadFile(e2e.Repo(".github/ADDING.md"))
	e2e.Must(t, err)
	for path := range places {
		name := strings.ReplaceAll(filepath.Base(path), "max.v1", "<id>")
		if name = strings.TrimPrefix(strings.TrimPrefix(name, "max_v1"), "max"); !strings.Contains(string(guide), name+"`") {
			t.Errorf("ADDING.md does not list %s among the files of a new algorithm", path)
		}
	}
}

// The tests of the packages pass with a fourth algorithm: none counts or lists the algorithms.
func TestPackagesTakeAnotherAlgorithm(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay="+e2e.Repo("bin/e2e/max.v1/overlay.json"),
		"./internal/rules/...", "./internal/api/...")
	cmd.Dir = e2e.Repo("")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the tests with max.v1: %v\n%s", err, out)
	}
}

// independentlyVerified runs verify.py, with the module of max.v1, on the files that fairpactctl
// wrote into dir.
func independentlyVerified(t *testing.T, dir string) {
	t.Helper()
	verifier := t.TempDir()
	e2e.Must(t, os.CopyFS(verifier, os.DirFS(e2e.Repo("e2e/verifier"))))
	for path, file := range places {
		if at, ours := strings.CutPrefix(path, e2e.Repo("e2e/verifier")); ours {
			text, err := os.ReadFile(file)
			e2e.Must(t, err)
			e2e.Must(t, os.WriteFile(filepath.Join(verifier, at), text, 0o600))
		}
	}
	cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(verifier, "verify.py"), "--certificate", "cert.json", "--tree-head", "head.json",
		"--keys", "keys.json", "--inputs", "inputs.json", "--params", "params.json")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "byte for byte as recomputed") {
		t.Errorf("verify.py: %v\n%s", err, out)
	}
}

// A person creates a deal and seals a bid. Then the page of another deal shows its result and
// verifies it, and the page computes the vectors.
func TestOnThePages(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	path, err := exec.LookPath("chromium")
	e2e.Must(t, err)
	ctx, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true))...)
	defer stop()
	ctx, stop = chromedp.NewContext(ctx)
	defer stop()
	page := func(script string) (said string) {
		t.Helper()
		said, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => {"+script+"})().then((said) => said ?? '')", chromedp.EvalAwaitPromise))
		e2e.Must(t, err)
		return said
	}
	shows := func(selector, want string) {
		t.Helper()
		e2e.Eventually(t, "the page shows "+want, e2e.DefaultTimeout, func() bool {
			return strings.Contains(page("return document.querySelector('"+selector+"')?.textContent ?? ''"), want)
		})
	}
	open := func(path string) { e2e.Must(t, chromedp.Do(ctx, chromedp.Navigate(c.Base+path))) }

	open("/new")
	shows("#kinds", "Sell to the highest bid")
	page("document.querySelector('#kinds input[value=\"" + id + "\"]').click()")
	shows("#part", "What is sold?")
	page("document.querySelector('#names').value = 'Ann\\nBen'; document.querySelector('#thing').value = 'car'; document.querySelector('#create').click()")
	shows("#invitations", "Ben")
	open(strings.TrimPrefix(page("return document.querySelector('#own-seat').href"), c.Base))
	shows("#title", "Ann and Ben bid for car")
	page("document.querySelector('#bid').value = '-3'; document.querySelector('#seal').click()")
	shows("#problem", "input.bid must be an integer of 0 to")
	page("document.querySelector('#bid').value = '3'; document.querySelector('#seal').click()")
	shows("#action", "You are done")

	d := c.Create(declared())
	d.Play(bids...)
	d.Certified(e2e.DefaultTimeout)
	open("/d/" + d.ID + "#" + d.Tokens[0])
	shows("#action .headline", "bob pays 70.")
	page("document.querySelector('#verify-bundle').click()")
	shows("#report", "bob bid most: 70.")
	if said := page(`
		const {known} = await import(document.querySelector('script[type=module]').src.replace(/[^/]*$/, 'algorithms.js'));
		const {algorithms} = await (await fetch('/v1/algorithms')).json();
		const same = ({input: {party_labels, algorithm_params, party_inputs}, expected_output: {winner, bid}}) => {
			const got = known('` + id + `').result(party_labels, algorithm_params, party_inputs);
			return got.winner === winner && got.bid === bid;
		};
		return String(algorithms.at(-1).test_vectors.every(same));`); said != "true" {
		t.Error("the page computes a vector wrongly")
	}
}
