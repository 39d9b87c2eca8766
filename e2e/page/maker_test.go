package page

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// The maker of a deal closes its tab. Another tab of the same browser finds the seat and the invitations
// again, and cancels the deal. Once somebody else has sealed, the page says that it cannot be cancelled.
func TestMakerFindsAndCancelsItsDeals(t *testing.T) {
	c, p := browser(t)
	for _, sealed := range []bool{false, true} {
		p.open("/new", 390, "light")
		p.until("the form is there", "document.querySelector('#kinds input:checked')")
		p.enter("#names", "Ann\rBen")
		p.enter("#items", "car\rboat")
		p.set("#title", "<b>Car</b> or boat")
		p.click("#act-once")
		p.enter("#create", "\r")
		p.until("the deal is made", "!document.querySelector('#made').hidden")
		other := p.beside()
		other.open("/new", 390, "light")
		other.until("the deal is listed", "!document.querySelector('#mine').hidden")
		other.enter("#mine summary", "\r")
		other.until("the list says what is to be done", "document.querySelector('#mine .badge').textContent === 'your turn'")
		other.accessible("deals of this device phone light")
		seat, err := url.Parse(eval[string](other, "document.querySelector('#mine a').href"))
		e2e.Must(t, err)
		if named := other.text("#mine a"); named != "<b>Car</b> or boat" {
			t.Errorf("the deal is listed as %q, want its title", named)
		}
		path := "/v1" + strings.Replace(seat.Path, "/d/", "/deals/", 1)
		if a := c.Want(200, "GET", path, seat.Fragment, nil); a.Header.Get("Fairpact-Party") != "0" {
			t.Errorf("the listed link is of party %s, want the maker's own seat", a.Header.Get("Fairpact-Party"))
		}
		other.enter("#mine button", "\r")
		other.until("the invitations are there again", "document.querySelector('#invitations textarea')?.value.includes('#it_')")
		if sealed {
			token := regexp.MustCompile(`#(it_\S+)`).FindStringSubmatch(eval[string](other, "document.querySelector('#invitations textarea').value"))[1]
			c.Want(200, "POST", path+"/commit", token, e2e.Seal(t, e2e.AnnsValues).Act("commit"))
		}
		other.enter("#cancel-part summary", "\r")
		other.accessible("cancel phone light")
		if sealed {
			other.bears = "status of 409"
			other.enter("#cancel", "\r")
			other.until("it is too late", "document.querySelector('#cancel-problem').textContent.startsWith('Somebody else has sealed already')")
			continue
		}
		other.enter("#cancel", "\r")
		other.until("the page says that the deal is cancelled", "document.querySelector('#made-title').textContent === 'The deal is cancelled'")
		var v struct{ State string }
		if c.Want(200, "GET", path, seat.Fragment, nil).Into(t, &v); v.State != "CANCELLED" {
			t.Errorf("the deal is %s, want CANCELLED", v.State)
		}
		other.open("/new", 390, "light")
		other.until("the form is there", "document.querySelector('#kinds input:checked')")
		if !eval[bool](other, "document.querySelector('#mine').hidden") {
			t.Error("the cancelled deal is still listed")
		}
		p.click("#another")
	}
}

// Three people share a gain. The form asks what each is worth alone and all together; a smaller group is
// added, and the others count as the sum of their members.
func TestShapleyFormStartsSmall(t *testing.T) {
	c, p := browser(t)
	p.open("/new", 390, "dark")
	p.until("the form is there", "document.querySelector('#kinds input:checked')")
	p.click("#kinds input[value=\"shapley.v1\"]")
	p.until("the fields are there", "document.querySelector('#worths')")
	p.enter("#names", "A\rB\rC")
	p.until("there is a field for each and for all", "document.querySelectorAll('#worths input').length === 4")
	for i, worth := range []string{"10", "20", "30", "120"} {
		p.enter("#worth-"+string(rune('0'+i)), worth)
	}
	p.until("the preview is there", "document.querySelector('#would-get')?.textContent === 'A 30, B 40, C 50'")
	p.enter("#group", "A + B")
	p.enter("#add-group", "\r")
	p.until("the group has a field", "document.activeElement.matches('#worth-3') && document.querySelector('#worth-4').value === '120'")
	p.enter("#worth-3", "60")
	p.until("the preview follows", "document.querySelector('#would-get')?.textContent === 'A 35, B 45, C 40'")
	p.accessible("new shapley of three phone dark")
	p.enter("#create", "\r")
	p.until("the deal is made: "+p.text("#new-problem"), "!document.querySelector('#made').hidden")
	seat, err := url.Parse(eval[string](p, "document.querySelector('#own-seat').href"))
	e2e.Must(t, err)
	var v struct {
		Params struct {
			Values map[string]int64 `json:"coalition_values"`
		} `json:"algorithm_params"`
	}
	c.Want(200, "GET", "/v1"+strings.Replace(seat.Path, "/d/", "/deals/", 1), seat.Fragment, nil).Into(t, &v)
	if got := e2e.JsonText(t, v.Params.Values); got != `{"A":10,"A,B":60,"A,B,C":120,"A,C":40,"B":20,"B,C":50,"C":30}` {
		t.Errorf("the values are %s", got)
	}
}
