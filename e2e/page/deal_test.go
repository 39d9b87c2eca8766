package page

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	cdpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/api/invitation"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/signing"
)

func (p *tab) reaches(phase string) {
	p.t.Helper()
	p.until("the page shows the phase "+phase, "document.querySelector('#status-box')?.dataset.phase === '"+phase+"'")
}

// seals reviews the form, confirms what the page doubts, and seals.
func (p *tab) seals() {
	p.t.Helper()
	p.enter("#review", "\r")
	p.until("the review is shown", "document.querySelector('#reviewed')")
	if eval[bool](p, "Boolean(document.querySelector('#meant'))") {
		p.enter("#meant", " ")
	}
	p.enter("#seal", "\r")
}

func (p *tab) take(d *e2e.CreatedDeal, party int, width int64, scheme string) {
	p.t.Helper()
	p.open("/d/"+d.ID+"#"+d.Tokens[party], width, scheme)
}

// Two people fill in the forms by keyboard. Ann's window has the width of a desktop, and Ben's the
// width of a phone. Ben's token stays neither in the address bar nor in a log of the service.
func TestPeopleSettleASplit(t *testing.T) {
	c, ann := browser(t)
	ben := newTab(t, c.Base)
	ann.open("/new", 1280, "light")
	ann.until("the form is there", "document.querySelector('#kinds input:checked')")
	ann.accessible("1 new split desk")
	if preset := eval[string](ann, "document.querySelector('#modes input:checked').value"); preset != "open" {
		t.Errorf("the form presets the mode %q, want open", preset)
	}
	ann.click("#modes input[value=sealed]")
	ann.click("#act-once")
	ann.enter("#names", "Ann")
	ann.enter("#items", "car\rboat\rpiano")
	for _, wrong := range []struct{ keys, said string }{
		{"", "Give 2 to 16 names, one per line. You gave 1."},
		{"\rAnn", "“Ann” is there twice: give each its own name."},
	} {
		ann.enter("#names", wrong.keys)
		ann.enter("#create", "\r")
		ann.until("the focus goes to the names", "document.activeElement.matches('#names')")
		if said := eval[string](ann, "document.activeElement.validationMessage"); said != wrong.said {
			t.Errorf("the field says %q, want %q", said, wrong.said)
		}
	}
	ann.set("#names", "Ann\nBen")
	ann.click("#words-part summary")
	const title, message = `<img src=x onerror="document.title='hacked'">`, "Hello Ben,\n\n<b>{token}</b> is yours."
	ann.set("#title", "gpj\u202eexe")
	ann.set("#message", " "+message+"\n")
	ann.bears = "status of 400"
	ann.enter("#create", "\r")
	ann.until("a title that turns around is refused", "document.querySelector('#new-problem').textContent.includes('title has the character U+202E at position 4')")
	ann.bears = ""
	ann.set("#title", title)
	ann.accessible("1 new split with words desk")
	ann.enter("#create", "\r")
	ann.until("the deal is made", "!document.querySelector('#made').hidden")
	ann.accessible("2 made desk")

	text := eval[string](ann, "document.querySelector('#invitations textarea').value")
	link, err := url.Parse(regexp.MustCompile(`https?://\S+#it_\S+`).FindString(text))
	if err != nil || link.Fragment == "" {
		t.Fatalf("the invitation has no link: %s", text)
	}
	if only := eval[string](ann, `(async () => {
		let copied;
		navigator.clipboard.writeText = async (text) => { copied = text; };
		document.querySelector('#invitations .copy:nth-child(2)').click();
		return copied;
	})()`); only != link.String() {
		t.Errorf("the button for the link alone copies %q, want only the link", only)
	}
	token, id := link.Fragment, strings.TrimPrefix(link.Path, "/d/")
	var view struct {
		CommitDeadline int64 `json:"commit_deadline"`
		RevealDeadline int64 `json:"reveal_deadline"`
	}
	seen := c.Want(200, "GET", "/v1/deals/"+id, token, nil)
	seen.Into(t, &view)
	if seen.Header.Get("Fairpact-Party") != "1" {
		t.Errorf("the token of party 1 is of party %q, want 1", seen.Header.Get("Fairpact-Party"))
	}
	alg, _ := algorithm.Lookup("split.v1")
	if want := invitation.Text(c.Base, invitation.Seat{DealID: id, Algorithm: alg, From: "Ann", Party: 1, Label: "Ben", Token: token, CommitDeadline: view.CommitDeadline, RevealDeadline: view.RevealDeadline, Title: title, Message: message}); text != want {
		t.Errorf("the page's invitation is\n%s\nwant, as from the service,\n%s", text, want)
	}
	ann.do(chromedp.Reload())
	ann.until("the invitations outlast a reload", "document.querySelector('#invitations textarea')?.value.includes('"+token+"')")

	if own := eval[string](ann, "document.querySelector('#own-link').value"); own != eval[string](ann, "document.querySelector('#own-seat').href") || !strings.Contains(own, link.Path+"#it_") {
		t.Errorf("the initiator's own link is %q, want the link of the own seat, under %s", own, link.Path)
	}

	ben.open(link.Path+"#"+token, 390, "dark")
	ben.reaches("seal")
	ben.accessible("3 seal phone dark")
	if at := eval[string](ben, "location.href"); at != c.Base+"/d/"+id {
		t.Errorf("the address bar shows %s, want no token", at)
	}
	if subject := ben.text("#subject"); subject != "Ann and Ben divide car, boat and piano" {
		t.Errorf("the subject is %q, want that Ann and Ben divide car, boat and piano", subject)
	}
	if got := eval[[]string](ben, "[document.querySelector('#title').textContent, document.querySelector('#message').textContent, String(document.querySelectorAll('#deal img, #title b, #message *').length)]"); got[0] != title || got[1] != message || got[2] != "0" {
		t.Errorf("title, message and the number of elements in them are %q, want the words of Ann as text", got)
	}
	if said := ben.text("#words .hint"); !strings.HasPrefix(said, "Written by Ann, not by the service.") {
		t.Errorf("below the message the page says %q, want who wrote it", said)
	}
	if said := ben.text("#what-happens"); !strings.Contains(said, "one thing may be cut in two: car, boat or piano.") {
		t.Errorf("before sealing the page says %q, want that one of the things may be cut", said)
	}
	ben.enter("#points-0", "30")
	ben.enter("#points-1", "1.5")
	if said := ben.text("#points-total"); said != "whole numbers only" {
		t.Errorf("the total of the points is %q, want \"whole numbers only\"", said)
	}
	ben.enter("#review", "\r")
	ben.until("a half is refused", "document.querySelector('#problem').textContent")
	if said := ben.text("#problem"); said != "The points for \u2068boat\u2069 must be a whole number, 0 or more: “1.5” is not one." {
		t.Errorf("the page shows the problem %q, want that the points for boat must be a whole number", said)
	}
	eval[bool](ben, "document.querySelector('#points-1').value = '', true")
	ben.enter("#points-1", "50")
	ben.enter("#points-2", "20")
	ben.do(chromedp.Reload())
	ben.reaches("seal")
	if total, part := ben.text("#points-total"), ben.text("#part-1"); total != "100" || part != "50 %" {
		t.Errorf("after a reload in the middle the total is %s and the boat is %s, want 100 and 50 %%", total, part)
	}
	ben.seals()
	ben.reaches("sealed")
	if focus := eval[string](ben, "document.activeElement.textContent"); focus != "Sealed" {
		t.Errorf("after sealing, the focus is on %q, want Sealed", focus)
	}
	ben.accessible("4 sealed phone dark")

	ann.enter("#own-seat", "\r")
	ann.reaches("seal")
	own := eval[string](ann, `(async () => {
		let copied;
		navigator.clipboard.writeText = async (text) => { copied = text; };
		document.querySelector('#copy-link button').click();
		return copied;
	})()`)
	if !strings.HasPrefix(own, c.Base+link.Path+"#it_") || strings.Contains(own, token) {
		t.Errorf("the button copies %q, want Ann's link under %s", own, link.Path)
	}
	for i, points := range []string{"50", "30", "20"} {
		ann.enter(fmt.Sprintf("#points-%d", i), points)
	}
	ann.accessible("5 seal desk light")
	ben.do(chromedp.Reload()) // the browser must have kept the sealed input
	ben.reaches("sealed")
	ann.seals()
	for _, p := range []*tab{ann, ben} {
		p.reaches("done")
		p.until("the proof is there", "document.querySelector('#verify-bundle')")
		if said := p.text("#action .headline"); said != "You get what is worth 60 % of everything to you." {
			t.Errorf("the headline is %q, want that the party gets what is worth 60 %% to it", said)
		}
		// In mode "sealed", the table has only the viewer's row: what each part is worth by the
		// viewer's points.
		if rows := eval[int](p, "document.querySelectorAll('.worths tbody tr').length"); rows != 1 {
			t.Errorf("the page shows the worths of %d parties, want 1", rows)
		}
	}
	if said := ben.text("#wanted"); said != "You wanted boat most, 50 of your 100 points; you get all of it." {
		t.Errorf("the page says %q, want what Ben gets of the boat", said)
	}
	if rows := eval[[]string](ben, "[...document.querySelectorAll('.things li')].map((row) => row.textContent)"); strings.Join(rows, "; ") != "carAnn: all of it; boatBen (you): all of it; pianoBen (you): 50 % (1/2), Ann: 50 % (1/2)" {
		t.Errorf("the things are divided as %q", rows)
	}
	if row := eval[[]string](ben, "[...document.querySelectorAll('.worths tbody td')].map((cell) => cell.textContent)"); strings.Join(row, " ") != "60 % 40 %" {
		t.Errorf("by Ben's points the parts are worth %v, want 60 %% and 40 %%", row)
	}
	ben.declares(false)
	ben.enter("#verify-bundle", "\r")
	ben.until("it verifies", "document.querySelector('#report').dataset.valid === 'true'")
	if !eval[bool](ben, "document.activeElement.matches('#verify-bundle')") {
		t.Error("the button that verifies lost the focus")
	}
	if folded := eval[bool](ben, "!document.querySelector('#report .checked').open"); !folded {
		t.Error("the checks of a valid proof are unfolded")
	}
	if said := ben.text("#report .verdict strong"); said != "Valid" {
		t.Errorf("the verdict on the deal's own proof is %q, want Valid", said)
	}
	if said := ben.text("#report"); !strings.Contains(said, "the things were divided.Ann: car, 50 % of pianoBen: boat, 50 % of piano") {
		t.Errorf("the report does not say who gets what, as the certificate does: %s", said)
	}
	if claims := ben.claims("#report"); claims["issued"] != "proven" || claims["result"] != "not proven" {
		t.Errorf("the claims on a sealed split are %v, want its issuer proven and its result not", claims)
	}
	if said := ben.text("#action"); !strings.Contains(said, "some points can be computed from the result") || !strings.Contains(said, "that is the operator’s word") || !strings.Contains(said, "the keys that this deployment, "+strings.TrimPrefix(c.Base, "http://")+", names") {
		t.Errorf("the result does not say what it gives away, that it is the operator's word, and whose keys the check uses: %s", said)
	}
	ben.accessible("6 done phone dark")
	ann.accessible("7 done desk light")
	consents(t, ann, ben)
	ann.open(link.Path, 390, "light")
	ann.reaches("done")
	ann.until("the picture is drawn", "document.querySelector('.worths')")
	ann.accessible("8 done phone light")

	if os.Getenv("FAIRPACT_BASE_URL") == "" {
		stack := e2e.Shared(t)
		for _, name := range stack.Names() {
			log, err := os.ReadFile(stack.Log(name))
			e2e.Must(t, err)
			if len(log) == 0 {
				t.Errorf("the log of %s is empty: there is nothing to search", name)
			}
			if strings.Contains(string(log), token) || strings.Contains(string(log), token[3:]) {
				t.Errorf("the log %s contains the token", filepath.Base(stack.Log(name)))
			}
		}
	}
}

// The result of a sealed split is proven to Ben by the file of Ann's opening, and to both once both
// have consented. Before that, nobody sees the input of the other.
func consents(t *testing.T, ann, ben *tab) {
	t.Helper()
	proven := func(p *tab, what string) {
		t.Helper()
		p.enter("#verify-bundle", "\r")
		p.until(what, "document.querySelector('#report [data-claim=result]')?.dataset.status === 'proven'")
	}
	ann.click("#exchange summary")
	opening, err := os.ReadFile(ann.download("#save-opening"))
	e2e.Must(t, err)
	var file map[string]any
	if e2e.Must(t, json.Unmarshal(opening, &file)); len(file) != 4 || file["salt"] == nil {
		t.Errorf("the file of an opening is %s, want deal_id, party, input and salt", opening)
	}
	ben.click("#exchange summary")
	ben.hand("#openings", string(opening))
	proven(ben, "Ann's opening proves the result to Ben")
	ben.enter("#disclose", "\r")
	ben.until("the page says who is missing", "document.querySelector('#missing')?.textContent.includes('Still missing: Ann.')")
	ben.do(chromedp.Reload())
	ben.until("Ben's consent outlasts a reload", "document.querySelector('#missing')")
	if rows := eval[int](ben, "document.querySelectorAll('.worths tbody tr').length"); rows != 1 {
		t.Errorf("before Ann has consented, Ben sees the points of %d parties, want 1", rows)
	}
	ben.accessible("consented phone dark")
	ann.enter("#disclose", "\r")
	ann.until("Ann has consented", "!document.querySelector('#showing')")
	for _, p := range []*tab{ann, ben} {
		p.do(chromedp.Reload())
		p.until("the points of both are there", "document.querySelectorAll('.worths tbody tr').length === 2")
		proven(p, "the bundle proves the result")
	}
}

// A person takes part in a draw with one button. The page warns that the beacon round is
// published before the reveal deadline. The page computes the same winner as the service.
func TestPersonDraws(t *testing.T) {
	c, p := browser(t)
	request := e2e.RandomBody(3, e2e.BeaconChain(t).RoundAt(time.Now().Unix())-10, time.Hour, 2*time.Hour)
	request["party_labels"] = []string{"Ann", "Ann ", "שלום"}
	d := c.Create(request)
	p.take(d, 2, 320, "light")
	p.reaches("seal")
	if said := p.text("#cautions"); !strings.Contains(said, "whoever opens last can know the winner first") || !strings.Contains(said, "Parties 0 and 1 have labels that look alike.") {
		t.Errorf("the cautions are %q, want those on the early round and on labels that look alike", said)
	}
	if chain := e2e.BeaconChain(t); p.text("#chain") != chain.Hash || !strings.Contains(p.text("#rules"), "of a beacon that is not drand quicknet") {
		t.Errorf("the rules of a draw from the chain %s: %s", chain.Hash, p.text("#rules"))
	}
	p.accessible("draw seal phone light")
	others := []e2e.Sealed{e2e.Seal(t, e2e.Body{"nonce": "aa"}), e2e.Seal(t, e2e.Body{"nonce": "bb"})}
	for i, s := range others {
		d.Commit(i, s)
	}
	p.enter("#prove summary", "\r")
	p.enter("#new-key", "\r")
	if seen := string(c.Want(200, "GET", d.Path(""), d.Tokens[2], nil).Body); strings.Count(seen, `"committed":true`) != 2 {
		t.Errorf("after Enter in a box the deal is %s, want nothing sealed by the person", seen)
	}
	p.enter("#seal", "\r")
	p.reaches("opened")
	p.accessible("draw opened phone light")
	for i, s := range others {
		d.Reveal(i, s)
	}
	p.reaches("done")
	p.until("the tickets are shown", "document.querySelectorAll('.tickets tbody tr').length === 3")
	var result struct {
		Result struct {
			Winner int
		}
	}
	c.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Into(t, &result)
	if said := p.text("#action"); !strings.Contains(said, "from the numbers of all, and found the same winner") {
		t.Errorf("the page shows %q, want that it found the same winner from the numbers of all", said)
	}
	want := []string{"Ann is drawn.", "Ann  is drawn.", "You are drawn."}[result.Result.Winner]
	if said := p.text("#action .headline"); said != want {
		t.Errorf("the page shows %q, want %q", said, want)
	}
	if loses := p.text("#not-drawn") == "You were not drawn."; loses != (result.Result.Winner != 2) {
		t.Errorf("party %d is drawn, and the page of party 2 says that it was not: %t", result.Result.Winner, loses)
	}
	p.until("the proof is there", "document.querySelector('#verify-bundle')")
	p.enter("#verify-bundle", "\r")
	p.until("it verifies", "document.querySelector('#report').dataset.valid === 'true'")
	if claims := p.claims("#report"); claims["result"] != "proven" {
		t.Errorf("the claims on a draw are %v, want its result proven by the openings of the bundle", claims)
	}
	p.accessible("draw done phone light")
}

func TestPersonAnswersTerms(t *testing.T) {
	c, p := browser(t)
	for _, accepts := range []bool{true, false} {
		body := e2e.ShapleyBody(time.Hour, 2*time.Hour)
		body["title"], body["message"] = "The & of <us>", "Two\nlines"
		d := c.Create(body)
		other := e2e.Seal(t, e2e.Body{"accept": accepts})
		p.take(d, 0, 1280, "dark")
		p.until("the terms are shown", "document.querySelector('.terms')")
		p.reaches("seal")
		p.enter("#review", "\r")
		p.until("an answer is asked for", "document.querySelector('#problem').textContent")
		p.enter("input[name=accept]", " ")
		if accepts {
			p.accessible("terms seal desk dark")
		}
		p.seals()
		p.reaches("sealed")
		d.Commit(1, other)
		p.reaches("opened")
		d.Reveal(1, other)
		if accepts {
			p.reaches("done")
			p.until("the shares are shown", "document.querySelector('#action .shares') && document.querySelector('#verify-bundle')")
			if rows := eval[[]string](p, "[...document.querySelectorAll('#action .shares li')].map((row) => row.textContent)"); strings.Join(rows, "; ") != "ann (you)75 %: 90; bob25 %: 30" {
				t.Errorf("the shares are %q, want parts of the whole", rows)
			}
			p.accessible("terms done desk dark")
		} else {
			p.reaches("void")
			if said := p.text("#status"); !strings.HasSuffix(said, "rejected the terms.") {
				t.Errorf("the status is %q, want that a party rejected the terms", said)
			}
			p.until("the proof is there", "document.querySelector('#verify-bundle')")
			p.enter("#verify-bundle", "\r")
			p.until("it verifies", "document.querySelector('#report').dataset.valid === 'true'")
			if said := p.text("#report"); !strings.Contains(said, "It says: nothing was settled, since bob rejected the terms.") {
				t.Errorf("the report is %q, want that bob rejected the terms", said)
			}
			p.accessible("terms void desk dark")
			eval[bool](p, "sessionStorage.setItem('fairpact:created', JSON.stringify({deal: '"+d.ID+"', own: 'it_dead', texts: []})), true")
			p.enter("#try-again", "\r")
			p.until("the terms are entered again", "document.querySelector('#worth-2')?.value === '120'")
			if got := eval[string](p, "[document.querySelector('#kinds :checked').value, document.querySelector('#names').value, document.querySelector('#worth-0').value, document.querySelector('#title').value, document.querySelector('#message').value, document.querySelector('#words-part').open, document.querySelector('#made').hidden, sessionStorage.getItem('fairpact:created')].join()"); got != "shapley.v1,ann\nbob,60,The & of <us>,Two\nlines,true,true," {
				t.Errorf("the new form holds %q, want the terms of the void deal and no dead invitations", got)
			}
			p.enter("#create", "\r")
			p.until("the deal is made again", "!document.querySelector('#made').hidden")
		}
	}
}

// Two tabs seal different inputs at the same time, and neither receives the service's first answer. The
// service accepts one commitment. The browser keeps only the input of that commitment.
func TestPageSealsOnce(t *testing.T) {
	c, one := browser(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	two := one.beside()
	for i, p := range []*tab{one, two} {
		p.bears = "status of 409"
		p.take(d, 0, 1280, "light")
		p.reaches("seal")
		p.set("#points-0", fmt.Sprint(10+i))
		// `fetch` now holds the tab's first commit until the test calls `release`. Then `fetch` sends the
		// commit but throws, as if the answer were lost.
		eval[bool](p, `(() => {
			const real = window.fetch;
			let lost = false;
			window.fetch = async (path, options) => {
				if (lost || !path.endsWith('/commit')) return real(path, options);
				lost = true;
				await new Promise((done) => { globalThis.release = done; });
				await real(path, options);
				throw new TypeError('the network is gone');
			};
			return true;
		})()`)
	}
	for _, p := range []*tab{one, two} {
		p.seals()
		p.until("the commit is under way", "globalThis.release")
	}
	for _, p := range []*tab{one, two} {
		eval[bool](p, "release(), true")
	}
	one.reaches("sealed")
	two.reaches("sealed")
	const kept = "Object.keys(localStorage).filter((key) => key.startsWith('fairpact:sealed:')).length"
	two.until("the input that was not taken is deleted", kept+" === 1")

	eval[bool](one, "globalThis.online = window.fetch, true")
	for _, loss := range []struct{ fetch, shown string }{
		{"Promise.reject(new TypeError('offline'))", "document.querySelector('#trouble').textContent.startsWith('The connection is lost')"},
		{"Promise.resolve(new Response('<h1>Sign in</h1>', {status: 403}))", "document.querySelector('#trouble').textContent.includes('the service answered 403')"},
		{"Promise.resolve(Response.json({error: 'INVALID_CREDENTIAL: no such token'}, {status: 401}))", "!document.querySelector('#stranger').hidden"},
	} {
		eval[bool](one, "window.fetch = () => "+loss.fetch+", dispatchEvent(new Event('online')), true")
		one.until("the page shows the loss: "+loss.fetch, loss.shown)
		eval[bool](one, "window.fetch = globalThis.online, dispatchEvent(new Event('online')), true")
		one.until("the page continues after "+loss.fetch, "document.querySelector('#trouble').hidden && document.querySelector('#stranger').hidden")
	}
	other := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 1}})
	d.Commit(1, other)
	one.reaches("opened")
	two.reaches("opened")
	d.Reveal(1, other)
	one.reaches("done")
	one.until("the input can be deleted", "document.querySelector('#forget')")
	one.click("#forget")
	one.until("nothing is kept", kept+" === 0")
}

// A browser without storage commits only after the person has saved a copy of the input. The token
// stays in the address bar, because the page cannot store it. The skip link (#main) does not reload
// the page.
func TestPageCommitsAfterACopyIsSaved(t *testing.T) {
	c, p := browser(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	p.take(d, 0, 390, "light")
	p.reaches("seal")
	hashes := eval[[]string](p, `(async () => {
		Storage.prototype.setItem = () => { throw new DOMException('storage is off', 'QuotaExceededError'); };
		const hashes = [];
		for (const hash of ['#`+d.Tokens[0]+`', '#main']) {
			const changed = new Promise((done) => { addEventListener('hashchange', () => setTimeout(done), {once: true}); });
			location.hash = hash;
			await changed;
			hashes.push(location.hash);
		}
		return hashes;
	})()`)
	if hashes[0] != "#"+d.Tokens[0] || hashes[1] != "#main" {
		t.Errorf("the address bar shows the fragments %q, want the token and #main", hashes)
	}
	p.set("#points-0", "7")
	p.seals()
	p.until("a copy is asked for", "document.querySelector('#seal-saved')?.disabled")
	p.accessible("save first phone light")
	if seen := string(c.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Body); strings.Contains(seen, `"committed":true`) {
		t.Errorf("the page committed before a copy was saved: %s", seen)
	}
	text, err := os.ReadFile(p.download("#save-sealed"))
	e2e.Must(t, err)
	p.enter("#seal-saved", "\r")
	p.reaches("sealed")
	copied := e2e.AsBody(t, string(text))
	if seen := string(c.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Body); !strings.Contains(seen, fmt.Sprint(copied["commitment"])) {
		t.Errorf("the copy %s does not have the commitment of the view %s", text, seen)
	}
	// Without the page, fairpactctl opens with the copy.
	p.open("/", 390, "light")
	bob := e2e.Seal(t, e2e.BobsValues)
	d.Commit(1, bob)
	d.Reveal(1, bob)
	ctl := e2e.NewCtl(t, c.Base)
	ctl.Run(0, "deal", "reveal", ctl.File("copy.json", text), "--deal", d.ID, "--token", d.Tokens[0])
	d.Certified(e2e.DefaultTimeout)
}

// The page accepts a saved copy of the input that another browser sealed, and refuses a copy of a
// different input. Without a token, the page does not show the deal.
func TestPageTakesASavedCopy(t *testing.T) {
	c, p := browser(t)
	d := c.Create(e2e.SplitBody(time.Hour, 8*24*time.Hour))
	mine := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}})
	d.Commit(0, mine)
	p.bears = "status of 401"
	p.open("/d/"+d.ID, 390, "light")
	p.until("a stranger is told so", "!document.querySelector('#stranger').hidden")
	if deal := eval[string](p, "document.querySelector('#deal').hidden ? document.querySelector('#deal').textContent : 'shown'"); strings.Contains(deal, "boat") || deal == "shown" {
		t.Errorf("a browser without a token shows the deal %s", deal)
	}
	p.accessible("stranger phone light")
	// With this service's keys, a proof of another deployment is not valid. Without any keys,
	// the page reports only that the proof is consistent in itself.
	foreign, err := os.ReadFile(e2e.Repo("e2e/testdata/bundles/good.json"))
	e2e.Must(t, err)
	proof := e2e.JsonText(t, e2e.AsBody(t, string(foreign))["bundle"])
	verdict := func(what, want string) {
		t.Helper()
		eval[bool](p, "delete document.querySelector('#submitted-report').dataset.valid")
		p.hand("#submitted", proof)
		p.until("a verdict", "document.querySelector('#submitted-report').dataset.valid")
		if said := p.text("#submitted-report .verdict strong"); said != want {
			t.Errorf("%s, the verdict on a proof of another deployment is %q, want %q", what, said, want)
		}
		if open := eval[bool](p, "document.querySelector('#submitted-report .checked').open"); open != (want == "Not valid") {
			t.Errorf("%s, the checks are unfolded: %v", what, open)
		}
	}
	verdict("with the keys of this service", "Not valid")
	eval[bool](p, "globalThis.online = window.fetch, window.fetch = () => Promise.reject(new TypeError('offline')), true")
	verdict("without keys", "Consistent in itself, but its issuer is not known")
	p.accessible("stranger verdict phone light")
	eval[bool](p, "window.fetch = globalThis.online, true")
	p.enter("#token", "it_"+strings.Repeat("x", 43)+"\r")
	p.until("an unknown token is refused in words", "document.querySelector('#refusal').textContent.startsWith('The link is not complete')")
	p.bears = "status of 40"
	another := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	p.enter("#token", another.Tokens[0]+"\r")
	p.until("the token of another deal is refused in words", "document.querySelector('#refusal').textContent.startsWith('Your link belongs to another deal')")
	p.enter("#token", d.Tokens[0]+"\r")
	p.reaches("elsewhere")
	p.accessible("elsewhere phone light")
	bring := func(salt string) {
		p.hand("#sealed-file", e2e.JsonText(t, e2e.Body{"input": mine.Input, "salt": salt}))
	}
	bring("another")
	p.until("another opening is refused", "document.querySelector('#action [role=alert]').textContent.includes('not what was sealed')")
	bring(mine.Salt)
	p.reaches("sealed")
	if n := eval[int](p, "performance.getEntriesByType('resource').filter(({name}) => name.endsWith('/declaration')).length"); n != 1 {
		t.Errorf("after the commit of a split the page has read the declaration %d times, want once, for what it says about seals", n)
	}
	if said := p.text("#action"); !strings.Contains(said, "after seven days without a visit") {
		t.Errorf("for a deal of eight days the page says %q, want a warning about seven days without a visit", said)
	}
}

func TestCreationPageMakesEachKind(t *testing.T) {
	c, p := browser(t)
	chain := e2e.BeaconChain(t)
	p.open("/new", 390, "dark")
	for _, id := range []string{"random.v1", "shapley.v1"} {
		p.until("the form is there", "document.querySelector('#kinds input:checked')")
		eval[bool](p, "document.querySelector('#kinds input[value=\""+id+"\"]').click(), true")
		p.enter("#names", "Zoe, Éva")
		p.until("the form does not ask who sees the inputs", "document.querySelector('#modes').hidden")
		if id == "shapley.v1" {
			p.enter("#worth-0", "60")
			p.enter("#create", "\r")
			p.until("a deal without anything to share is refused", "document.activeElement.matches('#worth-2') && document.activeElement.validationMessage.startsWith('Say what all are worth together')")
			p.enter("#worth-2", "120")
			p.until("the preview is right", "document.querySelector('#would-get')?.textContent === 'Zoe 90, Éva 30'")
		}
		p.accessible("new " + id + " phone dark")
		p.enter("#create", "\r")
		p.until("the deal is made: "+p.text("#new-problem"), "!document.querySelector('#made').hidden")
		p.accessible("made " + id + " phone dark")
		seat, err := url.Parse(eval[string](p, "document.querySelector('#own-seat').href"))
		e2e.Must(t, err)
		if advice := p.text("#advice p"); advice != "" {
			t.Errorf("%s: the service warns %s, want no warning", id, advice)
		}
		var v struct {
			RevealDeadline int64 `json:"reveal_deadline"`
			Mode           string
			Params         struct {
				Round  int64            `json:"beacon_round"`
				Values map[string]int64 `json:"coalition_values"`
			} `json:"algorithm_params"`
		}
		path := "/v1/deals/" + strings.TrimPrefix(seat.Path, "/d/")
		c.Want(200, "GET", path, seat.Fragment, nil).Into(t, &v)
		var declared struct{ Declaration struct{ Seals string } }
		if c.Want(200, "GET", path+"/declaration", seat.Fragment, nil).Into(t, &declared); declared.Declaration.Seals != "required" {
			t.Errorf("%s: the declared seals are %q, want required", id, declared.Declaration.Seals)
		}
		if v.Mode != "open" {
			t.Errorf("%s: the mode is %q, want open", id, v.Mode)
		}
		if id == "random.v1" && v.Params.Round != chain.RoundAt(v.RevealDeadline)+1 {
			t.Errorf("the deal has the round %d, want %d", v.Params.Round, chain.RoundAt(v.RevealDeadline)+1)
		}
		if got := v.Params.Values; id == "shapley.v1" && (len(got) != 3 || got["Zoe"] != 60 || got["Zoe,Éva"] != 120) {
			t.Errorf("the coalition values are %v, want 3 of them, with Zoe 60 and Zoe,Éva 120", got)
		}
		p.click("#another")
		p.until("the form is empty", "document.querySelector('#names')?.value === '' && !document.querySelector('#make').hidden")
	}
	// For an algorithm without its own form, the page shows a field for JSON.
	said := eval[[]string](p, `(async () => {
		const folder = document.querySelector('script[type=module]').src.replace('new.js', '');
		const {form: make} = await import(folder + 'generic.page.js');
		const form = make({algorithm: 'max.v1', algorithm_params: {}, parties: []}, 0);
		document.body.append(form.fields);
		const field = document.querySelector('#any-input');
		const read = (text) => { field.value = text; try { return JSON.stringify(form.read()); } catch (fault) { return fault.message; } };
		const deep = (levels) => '{"bid":'.repeat(levels) + '7' + '}'.repeat(levels);
		return ['{"bid":7}', '{"bid":0.5}', '[1]', deep(31), deep(32)].map(read);
	})()`)
	if !strings.HasPrefix(said[3], `{"bid":{`) || !strings.Contains(said[4], "nested too deep") {
		t.Errorf("the field for JSON yields %q for 31 and 32 levels, want the input and a refusal", said[3:])
	}
	if said[0] != `{"bid":7}` || !strings.Contains(said[1], "not written as an integer") || !strings.Contains(said[2], "must be an object") {
		t.Errorf("the field for JSON yields %q, want the input and two messages about wrong inputs", said)
	}
}

// If the person chooses the file of another key, the page sends nothing.
func TestPersonSignsWithASeatKey(t *testing.T) {
	c, p := browser(t)
	dir := t.TempDir()
	made := func(name string) (label, text string) {
		path := filepath.Join(dir, name)
		label, err := signing.MakeKeyFile(path, "es256")
		e2e.Must(t, err)
		private, err := os.ReadFile(path)
		e2e.Must(t, err)
		return label, string(private)
	}
	key, own := made("own.pem")
	otherKey, other := made("other.pem")
	request := e2e.SplitBody(time.Hour, 2*time.Hour)

	// Before a party seals, the page shows the declared keys of the other parties, even if the
	// party has no key of its own.
	request["party_labels"] = []string{"Ann", "Ben", "Cho"}
	for phase, own := range map[string]any{"seal": nil, "keyed": key} {
		request["party_keys"] = []any{nil, own, otherKey}
		p.take(c.Create(request), 1, 320, "light")
		p.reaches(phase)
		want := "A seat key is declared for one other: compare it with what they told youCho (party 2): " + otherKey
		if said := p.text("#other-keys[open]"); said != want {
			t.Errorf("in the phase %s the page says %q, want %q", phase, said, want)
		}
		p.accessible(phase + " with the key of another phone light")
	}

	request["party_labels"], request["party_keys"] = []string{"Ann", "Ben"}, []any{nil, key}
	d := c.Create(request)
	p.take(d, 1, 320, "light")
	p.reaches("keyed")
	if said := p.text("#action"); !strings.Contains(said, key) || strings.Contains(said, "declared for") {
		t.Errorf("for a seat with a key the page shows %q, want its key %s", said, key)
	}
	p.accessible("keyed phone light")
	p.enter("#points-0", "40")
	p.enter("#points-1", "60")
	p.hand("#seat-key", other)
	p.enter("#review", "\r")
	p.until("another key is refused", "document.querySelector('#problem').textContent.includes('another key')")
	p.hand("#seat-key", own)
	p.seals()
	p.reaches("sealed")
	ann := e2e.Seal(t, e2e.AnnsValues)
	d.Commit(0, ann)
	p.reaches("opened")
	d.Reveal(0, ann)
	p.reaches("done")
	d.Certified(e2e.DefaultTimeout)
	bundle := c.Want(200, "GET", d.Path("/bundle"), d.Tokens[1], nil).Body
	if good, said := e2e.Verifier(t, "--bundle", e2e.File(t, bundle), "--seat-key", "1="+key); !good {
		t.Errorf("the commitment is not signed by %s: %s", key, said)
	}
	// About half of WebCrypto's ECDSA signatures are high-S, which the service refuses. So the
	// function `sign` of p256.js converts them to low-S. `sign` throws if a signature does not verify.
	if n := eval[int](p, `(async () => {
		const {sign} = await import(document.querySelector('script[type=module]').src.replace('deal.js', 'p256.js'));
		for (let i = 0; i < 16; i++) await sign(`+e2e.JsonText(t, own)+", "+e2e.JsonText(t, key)+`, new Uint8Array([i]));
		return 16;
	})()`); n != 16 {
		t.Errorf("the page made %d signatures, want 16", n)
	}
}

// A person seals with a new seat key. The page and the certificate show the public key, and the
// saved copy contains the private key. A second deal requires this key, and the page signs with the
// saved copy.
func TestPersonProvesItsSeat(t *testing.T) {
	c, p := browser(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	p.take(d, 1, 390, "dark")
	p.reaches("seal")
	p.enter("#prove summary", "\r")
	p.enter("#new-key", " ")
	p.accessible("prove phone dark")
	p.do(chromedp.Reload())
	p.reaches("seal")
	if !eval[bool](p, "document.querySelector('#new-key').checked && document.querySelector('#prove').open") {
		t.Error("a reload forgets or hides the choice of a key")
	}
	eval[bool](p, `(() => {
		const real = window.fetch;
		globalThis.sent = [];
		window.fetch = (path, options) => { sent.push(options?.body ?? ''); return real(path, options); };
		return true;
	})()`)
	p.enter("#points-0", "40")
	p.seals()
	p.reaches("sealed")
	p.accessible("proven phone dark")
	key := p.text("#own-key code")
	text, err := os.ReadFile(p.download("#save-sealed"))
	e2e.Must(t, err)
	ann := e2e.Seal(t, e2e.AnnsValues)
	// A party that seals last never sees the phase "sealed", so the later phases must show the key
	// too.
	shows := func(phase string) {
		p.reaches(phase)
		p.until("the key is shown in the phase "+phase, "document.querySelector('#own-key code')?.textContent === "+e2e.JsonText(t, key)+" && document.querySelector('#save-sealed')")
	}
	d.Commit(0, ann)
	shows("opened")
	d.Reveal(0, ann)
	shows("done")
	d.Certified(e2e.DefaultTimeout)
	p.until("the proof is there", "document.querySelector('#verify-bundle')")
	p.accessible("proven done phone dark")
	p.enter("#verify-bundle", "\r")
	other := newTab(t, c.Base)
	other.take(d, 0, 320, "light")
	other.reaches("done")
	other.until("the proof is there", "document.querySelector('#verify-bundle')")
	other.enter("#verify-bundle", "\r")
	other.until("the check names the key", "document.querySelector('#report [data-claim=agreed]')?.textContent.includes("+e2e.JsonText(t, key)+")")
	other.accessible("the key of another phone light")
	p.until("it verifies under the own key", "document.querySelector('#report').dataset.valid === 'true' && document.querySelector('#report .ok[data-check=party_keys]')")
	if sent := strings.Join(eval[[]string](p, "sent"), "\n"); !strings.Contains(sent, key) || !strings.Contains(string(text), "PRIVATE KEY") || strings.Contains(sent, "PRIVATE") {
		t.Errorf("the saved copy is without the private key, or the page sent it, or it sent no signature: %d bytes sent", len(sent))
	}
	bundle := c.Want(200, "GET", d.Path("/bundle"), d.Tokens[1], nil).Body
	if good, said := e2e.Verifier(t, "--bundle", e2e.File(t, bundle), "--seat-key", "1="+key); !good {
		t.Errorf("the commitment is not signed by %s: %s", key, said)
	}

	if said := p.text("#forget + .hint"); !strings.Contains(said, "deletes the private key, which cannot be made again: save the copy first") {
		t.Errorf("beside the button that deletes the only private key the page says %q", said)
	}
	p.click("#forget")
	if eval[bool](p, "Boolean(document.querySelector('#own-key, #save-sealed'))") {
		t.Error("after the key is deleted the page still offers it")
	}

	p.open("/new", 390, "light")
	p.until("the form is there", "document.querySelector('#kinds input:checked')")
	p.enter("#names", "Ann\rBen de Boer")
	p.enter("#items", "car")
	p.click("#keys-part summary")
	for _, wrong := range []struct{ keys, said string }{
		{"Cho " + key, "is not one of the names"}, {"Ben de Boer es256:aa", "is not `es256:` with 66"}, {"Ann " + key + "\nAnn " + key, "is there twice"},
	} {
		p.set("#keys", wrong.keys)
		p.enter("#create", "\r")
		p.until("the keys are refused: "+wrong.said, "document.querySelector('#new-problem').textContent.includes("+e2e.JsonText(t, wrong.said)+")")
	}
	p.accessible("new with keys phone light")
	p.set("#keys", "Ben de Boer  "+key)
	p.enter("#create", "\r")
	p.until("the deal is made: "+p.text("#new-problem"), "!document.querySelector('#made').hidden")
	link, err := url.Parse(regexp.MustCompile(`https?://\S+#it_\S+`).FindString(eval[string](p, "document.querySelector('#invitations textarea').value")))
	e2e.Must(t, err)
	p.open(link.Path+"#"+link.Fragment, 390, "light")
	p.reaches("keyed")
	p.enter("#points-0", "1")
	p.hand("#seat-key", string(text))
	p.seals()
	p.reaches("sealed")
}

// At first the page cannot read the deal's declaration, which contains the seat keys. After the page
// has read the declaration, the form shows the keys and the offer to sign, and keeps what was typed.
// The person chooses to sign with a key and reloads the page. Until the page reads the declaration
// again, the person cannot seal.
func TestFormWaitsForTheDeclaration(t *testing.T) {
	c, p := browser(t)
	_, err := chromedp.Call(p.ctx, cdpage.AddScriptToEvaluateOnNewDocument, cdpage.AddScriptToEvaluateOnNewDocumentParams{Source: `
		const online = window.fetch;
		globalThis.broken = true;
		window.fetch = (path, options) => broken && String(path).endsWith('/declaration') ? Promise.resolve(new Response('unavailable', {status: 503})) : online(path, options);`})
	e2e.Must(t, err)
	request := e2e.SplitBody(time.Hour, 2*time.Hour)
	key, err := signing.MakeKeyFile(filepath.Join(t.TempDir(), "ann.pem"), "es256")
	e2e.Must(t, err)
	request["party_keys"] = []any{key, nil}
	p.take(c.Create(request), 1, 390, "light")
	p.reaches("seal")
	p.enter("#points-0", "40")
	if eval[bool](p, "Boolean(document.querySelector('#prove, #other-keys'))") {
		t.Error("the page shows keys without the declaration")
	}
	eval[bool](p, "broken = false, true")
	p.until("the form shows the offer and the keys", "document.querySelector('#prove') && document.querySelector('#other-keys')")
	if kept := eval[string](p, "document.activeElement.id + ' ' + document.querySelector('#points-0').value"); kept != "points-0 40" {
		t.Errorf("the new form has the focus and the points %q, want points-0 40", kept)
	}
	p.enter("#prove summary", "\r")
	p.enter("#new-key", " ")
	p.do(chromedp.Reload())
	p.reaches("seal")
	p.enter("#points-0", "1")
	p.enter("#review", "\r")
	p.until("the page does not seal without the chosen key", "document.querySelector('#problem').textContent.includes('chose to sign')")
	eval[bool](p, "broken = false, true")
	p.until("the choice is back", "document.querySelector('#new-key')?.checked")
	p.seals()
	p.reaches("sealed")
	p.until("the key is shown", "document.querySelector('#own-key code')")
}

func TestPageNamesTheAddressThatKeysSignFor(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	p := newTab(t, strings.Replace(c.Base, "127.0.0.1", "localhost", 1))
	p.take(c.Create(e2e.SplitBody(time.Hour, 2*time.Hour)), 1, 320, "light")
	p.reaches("seal")
	if said := p.text("#prove-elsewhere"); !strings.Contains(said, c.Base) {
		t.Errorf("at %s the page says %q, want the address %s", p.origin, said, c.Base)
	}
	p.accessible("seal at another address phone light")
}

func TestPageShowsEachPartysValues(t *testing.T) {
	c, p := browser(t)
	request := e2e.SplitBody(time.Hour, 2*time.Hour)
	request["mode"], request["party_labels"] = "open", []string{"Ann", "Ben", "Cho", "Dana Maria"}
	request["algorithm_params"] = e2e.Body{"items": []string{"car", "boat", "the house in the country"}}
	d := c.Create(request)
	point := func(car, boat, house int) e2e.Body {
		return e2e.Body{"valuations": e2e.Body{"car": car, "boat": boat, "the house in the country": house}}
	}
	d.Play(point(70, 20, 10), point(10, 80, 10), point(30, 30, 40), point(0, 0, 100))
	d.Certified(e2e.DefaultTimeout)
	for _, look := range []struct {
		fragment string
		width    int64
		scheme   string
	}{{"#" + d.Tokens[3], 1280, "light"}, {"", 320, "dark"}} { // the second URL needs no fragment, because the tab keeps the token
		p.open("/d/"+d.ID+look.fragment, look.width, look.scheme)
		p.reaches("done")
		p.until("the proof is there", "document.querySelector('#verify-bundle')")
		if rows, cells := eval[int](p, "document.querySelectorAll('.worths tbody tr').length"), eval[int](p, "document.querySelectorAll('.worths tbody td').length"); rows != 4 || cells != 16 {
			t.Errorf("the page shows %d rows with %d cells, want 4 with 16", rows, cells)
		}
		p.accessible(fmt.Sprintf("open done %d %s", look.width, look.scheme))
	}
}
