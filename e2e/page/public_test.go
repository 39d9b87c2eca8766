package page

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/fairpact/fairpact/e2e"
)

// A club draws one of 40 names: one organiser fills in the empty form, and nobody else does anything. A stranger sees the countdown
// and then the name, checks the draw in the page, and verifies the downloaded proof with fairpactctl.
func TestARaffleByOneOrganiser(t *testing.T) {
	c, organiser := browser(t)
	stranger := newTab(t, c.Base)
	const title, message = `<img src=x onerror="document.title='hacked'"> raffle`, "1st: a bicycle\n2nd: <b>a ham</b>"
	list := make([]string, 40)
	for i := range list {
		list[i] = fmt.Sprintf("Member %d", i+1)
	}
	list[7] = list[6] // two tickets
	address := ""
	e2e.InTime(t, 10*time.Second, func(lead time.Duration) bool {
		organiser.open("/", 1280, "light")
		organiser.click("main a[href=\"/new#raffle\"]")
		organiser.until("the form for a raffle is there", "document.querySelector('#organise')?.checked && document.querySelector('#organise').checkVisibility()")
		organiser.set("#names", strings.Join(list, "\n"))
		organiser.click("#words-part summary")
		organiser.set("#title", title)
		organiser.set("#message", message)
		organiser.accessible("new raffle desk light")
		seconds := fmt.Sprint(2 * int(lead/time.Second))
		eval[bool](organiser, "document.querySelector('#draw-seconds').append(new Option('soon', '"+seconds+"', true, true)), true")
		eval[bool](organiser, `(globalThis.fetch = ((real) => (at, options) => (globalThis.refuses && String(at).endsWith('/commit')
			? Promise.resolve(new Response('{"error": "FORBIDDEN: a proxy refuses"}', {status: 403})) : real(at, options)))(fetch), globalThis.refuses = true)`)
		organiser.enter("#create", "\r")
		organiser.until("the page says that the draw is not complete", "!document.querySelector('#acting-again').hidden && document.querySelector('#acting-status').textContent.includes('The draw is not complete')")
		organiser.accessible("raffle refused desk light")
		eval[bool](organiser, "globalThis.refuses = false, true")
		began := time.Now()
		organiser.enter("#acting-again", "\r")
		organiser.until("the page of the draw is there", "location.pathname.startsWith('/r/') && document.querySelector('#status')?.textContent")
		t.Logf("40 names were sealed and opened %v after the click", time.Since(began).Round(time.Millisecond))
		address = eval[string](organiser, "location.pathname")
		return strings.HasPrefix(organiser.text("#status"), "All is sealed and opened.") || !strings.HasPrefix(organiser.text("#status"), "Void")
	})
	stranger.open(address, 390, "dark")
	stranger.until("the deal is there", "!document.querySelector('#deal').hidden")
	if got := eval[[]string](stranger, "[document.querySelector('#title').textContent, document.querySelector('#message').textContent, String(document.querySelectorAll('#title *:not(bdi), #message *').length)]"); got[0] != title || got[1] != message || got[2] != "0" {
		t.Errorf("title, message and the number of elements in them are %q, want the organiser's words as text", got)
	}
	if said := stranger.text("#writer"); said != "Written by the organiser, not by the service. One organiser acts for all names on the list." {
		t.Errorf("the page says %q, want who wrote and who acts", said)
	}
	if !eval[bool](stranger, "document.querySelector('#other-beacon').checkVisibility()") {
		t.Error("the page does not say that the beacon is not drand quicknet")
	}
	stranger.accessible("raffle countdown phone dark")
	stranger.until("somebody is drawn", "document.querySelector('#drawn')")
	stranger.until("the QR code is there", "document.querySelector('#qr').naturalWidth > 0")
	drawn := stranger.text("#drawn strong")
	if picture := stranger.text("#action"); !strings.Contains(picture, "The organiser made the numbers of all, so chance comes from the beacon alone.") || strings.Contains(picture, "(you)") || strings.Contains(picture, "You were") {
		t.Errorf("the result says %q, want where chance comes from and nothing about the reader", picture)
	}
	stranger.until("the proof is there", "document.querySelector('#verify-bundle')")
	stranger.until("the page has computed the tickets from all numbers", "document.querySelector('#action').textContent.includes('computed the tickets again from the numbers of all, and found the same winner')")
	stranger.enter("#verify-bundle", "\r")
	stranger.until("the report is there", "document.querySelector('#report [data-claim]')")
	if claims := stranger.claims("#report"); claims["result"] != "proven" || claims["agreed"] != "" {
		t.Errorf("the claims are %v, want the result proven, and none that the names agreed", claims)
	}
	stranger.accessible("raffle result phone dark")
	stranger.open(address, 1280, "light")
	stranger.until("the name is there again", "document.querySelector('#drawn strong')?.textContent === "+e2e.JsonText(t, drawn))
	stranger.accessible("raffle result desk light")
	_, err := chromedp.Call(stranger.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	e2e.Must(t, err)
	stranger.accessible("raffle print sheet")
	if shown := eval[bool](stranger, "[...document.querySelectorAll('nav, footer, button')].some((node) => node.checkVisibility())"); shown {
		t.Error("the print sheet has navigation or buttons")
	}

	_, err = chromedp.Call(stranger.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	e2e.Must(t, err)
	ctl := e2e.NewCtl(t, c.Base)
	saved, err := os.ReadFile(stranger.download("#save-bundle"))
	e2e.Must(t, err)
	if code, said, _ := ctl.Try("verify", ctl.File("proof.json", saved), "--base-url", c.Base); code != 4 || !strings.Contains(said, "the initiator acted for all parties") {
		t.Errorf("fairpactctl verifies the proof with exit code %d and says\n%s\nwant 4 (a development key), and who acted", code, said)
	}

	organiser.open("/new", 390, "light")
	organiser.until("the draw is listed", "!document.querySelector('#mine').hidden")
	if kept := eval[string](organiser, "JSON.stringify(localStorage)"); strings.Contains(kept, `\"tokens\"`) || !strings.HasSuffix(eval[string](organiser, "document.querySelector('#mine a').href"), address) {
		t.Errorf("the browser keeps %.80q…, want the address of the draw and no tokens", kept)
	}
}

// A public split shows an audience who got what, and a private deal nothing.
func TestAnAudienceSeesASplit(t *testing.T) {
	c, p := browser(t)
	private := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	p.bears = "status of 404"
	for _, id := range []string{private.ID, "d_AAAAAAAAAAAAAAAAAAAAAA"} {
		p.open("/r/"+id, 390, "light")
		p.until("nothing is shown", "!document.querySelector('#stranger').hidden")
		if !eval[bool](p, "document.querySelector('#deal').hidden") {
			t.Errorf("the page of %s shows a deal", id)
		}
	}
	p.accessible("no public deal phone light")
	p.bears = ""
	body := e2e.SplitBody(time.Hour, 2*time.Hour)
	body["audience"] = "public"
	d := c.Create(body)
	p.take(d, 1, 390, "light")
	p.until("the party reads that the deal is public", "document.querySelector('#public-page')?.getAttribute('href') === '/r/"+d.ID+"'")
	p.open("/r/"+d.ID, 1280, "dark")
	p.until("the page waits", "document.querySelector('#status').textContent === 'Waiting for 2 of 2 parties to seal.'")
	d.Play(e2e.AnnsValues, e2e.BobsValues)
	p.open("/r/"+d.ID, 1280, "dark")
	p.until("the result is there", "document.querySelector('#action .things')")
	p.until("the proof is there", "document.querySelector('#verify-bundle')")
	if picture := p.text("#action"); strings.Contains(picture, "You ") || !strings.Contains(picture, "the operator’s word, to the parties too until all of them consent") {
		t.Errorf("the result says %q, want nothing about the reader, and what is not proven", picture)
	}
	p.accessible("public split desk dark")
	for retention, want := range map[string]string{"standard": "the operator’s word to everybody but the parties.", "purge": "the operator’s word, unless the parties compare what they kept."} {
		body["mode"], body["retention"] = "open", retention
		d := c.Create(body)
		d.Play(e2e.AnnsValues, e2e.BobsValues)
		p.open("/r/"+d.ID, 390, "light")
		p.until("the proof is there", "document.querySelector('#verify-bundle')")
		if said := p.text("#action"); !strings.Contains(said, want) {
			t.Errorf("with mode open and retention %s the page says %q, want %q", retention, said, want)
		}
	}
}
