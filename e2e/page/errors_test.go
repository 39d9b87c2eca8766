package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/fairpact/fairpact/e2e"
)

// blocks makes the browser fail all requests to these paths, as if the network were gone for them.
func (p *tab) blocks(paths ...string) {
	p.t.Helper()
	params := network.SetBlockedURLsParams{URLPatterns: []*network.BlockPattern{}}
	for _, path := range paths {
		params.URLPatterns = append(params.URLPatterns, &network.BlockPattern{URLPattern: p.origin + path, Block: true})
	}
	if _, err := chromedp.Call(p.ctx, network.SetBlockedURLs, params); err != nil {
		p.t.Fatal(err)
	}
}

// Each page that cannot work says so in words, with the one thing to do.
func TestErrorsForPeople(t *testing.T) {
	c, p := browser(t)
	says := func(what, selector, want string) {
		t.Helper()
		p.until(what+": "+want, "document.querySelector('"+selector+"')?.checkVisibility({visibilityProperty: true}) && document.querySelector('"+selector+"').textContent.includes("+e2e.JsonText(t, want)+")")
		p.accessible(what + " phone light")
	}
	p.bears = "status of 404"
	p.open("/nowhere", 390, "light")
	says("unknown page", "main .lead", "If you followed an invitation, open its whole link")
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	other := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	p.bears = "status of 40"
	p.open("/d/"+other.ID+"#"+d.Tokens[0], 390, "light")
	says("foreign link", "#stranger", "Your link belongs to another deal. Open the link in the invitation to this deal.")
	p.open("/d/"+d.ID+"#it_cut", 390, "light")
	says("cut link", "#stranger", "The link is not complete")

	// A slow network: the page stands before its scripts come, and says what to do if they do not.
	p.bears = "ERR_BLOCKED_BY_CLIENT"
	for name, page := range map[string]string{"deal": "/d/" + other.ID, "new": "/new", "public": "/r/" + d.ID} {
		p.blocks("/assets/*/*.js")
		p.open(page, 390, "light")
		p.until(name+" stands without its scripts", "document.querySelector('#loading').textContent.startsWith('Loading the ')")
		if eval[bool](p, "document.querySelector('.late').checkVisibility({visibilityProperty: true})") {
			t.Errorf("%s: the page calls the network slow at once", name)
		}
		eval[bool](p, "document.getAnimations().forEach((one) => one.finish()), true") // the eight seconds
		says(name+" slow", ".late", "It takes long: if nothing comes, load this page again.")
		p.blocks()
	}
	// Offline: the page says so, and continues once the network is there.
	body := e2e.SplitBody(time.Hour, 2*time.Hour)
	body["audience"] = "public"
	public := c.Create(body)
	for name, x := range map[string]struct{ page, calls, there string }{
		"deal":   {"/d/" + public.ID + "#" + public.Tokens[0], "/v1/deals/*", "document.querySelector('#input-form')"},
		"public": {"/r/" + public.ID, "/v1/public/*", "!document.querySelector('#deal').hidden"},
	} {
		p.blocks(x.calls)
		p.open(x.page, 390, "light")
		says(name+" offline", "#trouble", "The connection is lost. Trying again.")
		p.blocks()
		p.until(name+" is there with the network", x.there)
		p.until(name+" is silent about the loss", "document.querySelector('#trouble').hidden")
	}
	p.open("/new", 390, "light")
	p.until("the form is there", "document.querySelector('#kinds input:checked') && document.querySelector('#items')")
	p.enter("#names", "Ann\rBen")
	p.enter("#items", "car\rboat")
	p.blocks("/v1/*")
	p.enter("#create", "\r")
	says("new offline", "#new-problem", "The connection is lost. Try again.")
	p.blocks()
	p.enter("#create", "\r")
	p.until("the deal is made", "!document.querySelector('#made').hidden")
}

// Without JavaScript the pages show no dead form and no endless wait, but what to do instead.
func TestPagesWithoutJavaScript(t *testing.T) {
	_, p := browser(t)
	if _, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	for path, dead := range map[string]string{"/new": "#new-form", "/d/d_x": "#loading", "/r/d_x": "#loading"} {
		p.open(path, 390, "light")
		p.until("the page is there", "document.querySelector('noscript')")
		if said, shown := p.text("noscript"), eval[bool](p, "document.querySelector('"+dead+"').checkVisibility()"); shown || !strings.Contains(said, "needs JavaScript") {
			t.Errorf("%s without JavaScript shows %s: %t, and says %q", path, dead, shown, said)
		}
		p.shot(fmt.Sprintf("no javascript %s phone light", strings.Split(path, "/")[1])) // axe is JavaScript
	}
}
