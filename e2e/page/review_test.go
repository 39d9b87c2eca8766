package page

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fairpact/fairpact/e2e"
)

// A person types a decimal comma, forgets things and presses Enter. Nothing is sealed until the person
// has seen the input and pressed the button of the review. Afterwards the page shows the input again.
func TestEnterNeverSeals(t *testing.T) {
	c, p := browser(t)
	request := e2e.SplitBody(time.Hour, 2*time.Hour)
	request["algorithm_params"] = e2e.Body{"items": []string{"flat", "car", "dog"}}
	d := c.Create(request)
	p.take(d, 0, 390, "light")
	p.reaches("seal")
	unsealed := func(when string) {
		t.Helper()
		if seen := string(c.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Body); strings.Contains(seen, `"committed":true`) {
			t.Fatalf("%s, the deal is %s, want nothing sealed", when, seen)
		}
	}
	says := func(selector, want string) {
		t.Helper()
		p.until(selector+" says "+want, "document.querySelector('"+selector+"')?.textContent.replace(/[\u2068\u2069]/g, '').includes("+e2e.JsonText(t, want)+")")
	}
	for _, wrong := range []string{"1,5", "1e3", "-2", "abc", "1 000"} {
		p.set("#points-0", "")
		p.enter("#points-0", wrong+"\r")
		says("#problem", "The points for flat must be a whole number, 0 or more: “"+wrong+"” is not one.")
	}
	p.set("#points-0", "")
	p.enter("#points-1", "\r")
	says("#reviewed", "You give no points to anything.")
	p.enter("#change", "\r")
	p.enter("#points-0", "70\r")
	says("#reviewed", "You left car and dog empty.")
	says("#reviewed table", "70")
	says("#action", "It stays in this browser until all have sealed.")
	if focus := eval[string](p, "document.activeElement.textContent"); focus != "Seal this?" {
		t.Errorf("at the review, the focus is on %q, want its heading", focus)
	}
	p.accessible("review phone light")
	p.do(chromedp.KeyEvent("\r"))
	p.enter("#seal", "\r")
	says("#problem", "Tick the box above")
	unsealed("after Enter in a field and a review without a tick")
	p.enter("#change", "\r")
	if kept := eval[string](p, "document.querySelector('#points-0').value"); kept != "70" {
		t.Errorf("back from the review, the points are %q, want 70", kept)
	}
	p.enter("#points-1", "0")
	p.enter("#points-2", "30\r")
	says("#reviewed table", "100")
	if eval[bool](p, "Boolean(document.querySelector('#meant'))") {
		t.Error("the review doubts a zero that the person typed")
	}
	unsealed("before the last button")
	p.enter("#seal", "\r")
	p.reaches("sealed")
	says("#own-input", "70 %")
	p.do(chromedp.Reload())
	p.reaches("sealed")
	says("#own-input", "70 %")
	// Another tab of this device finds the seat without the link.
	other := p.beside()
	other.open("/new", 390, "dark")
	other.until("the deal is listed", "!document.querySelector('#mine').hidden")
	state := func(want string) {
		t.Helper()
		other.enter("#mine summary", "\r")
		other.until("the list says "+want, "document.querySelector('#mine .badge').textContent === '"+want+"'")
	}
	state("1 of 2 have sealed")
	other.accessible("my deals phone dark")
	other.enter("#mine a", "\r")
	other.reaches("sealed")
	other.open("/new", 390, "dark") // so that only one tab opens the input
	bob := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}})
	d.Commit(1, bob)
	p.reaches("opened")
	says("#own-input", "70 %")
	d.Reveal(1, bob)
	p.reaches("done")
	p.until("the result is there", "document.querySelector('#verify-bundle')")
	p.enter("#own-input summary", "\r")
	says("#own-input", "70 %")
	p.accessible("result with the own points phone light")
	other.open("/new", 390, "dark")
	other.until("the deal is listed", "!document.querySelector('#mine').hidden")
	state("has a result")
	other.accessible("my deals with a result phone dark")
	other.enter("#mine button", "\r")
	if kept := eval[string](other, "JSON.stringify(localStorage)"); strings.Contains(kept, "fairpact:seat:") || strings.Contains(kept, "fairpact:sealed:") {
		t.Errorf("after the deal is forgotten the browser keeps %s", kept)
	}
	p.do(chromedp.Reload())
	p.reaches("done")
	p.until("the result is there without the points", "document.querySelector('#verify-bundle')")
	if eval[bool](p, "Boolean(document.querySelector('#own-input'))") {
		t.Error("a deal that was forgotten still shows what was sealed")
	}
	other.open("/new", 390, "dark")
	other.until("the form is there", "document.querySelector('#kinds input:checked')")
	if !eval[bool](other, "document.querySelector('#mine').hidden") {
		t.Error("a seat that was deleted is still listed")
	}
}
