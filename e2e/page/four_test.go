package page

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

type counting struct {
	http.RoundTripper
	calls, bytes atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls.Add(1)
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &countedBody{resp.Body, &c.bytes}
	}
	return resp, err
}

type countedBody struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// newAgent takes the address of the service, the deal id and the invite token from the link in the
// invitation, because an agent has no other source.
func newAgent(t *testing.T, invited string) (*e2e.Client, *counting, e2e.Body) {
	t.Helper()
	link, err := url.Parse(regexp.MustCompile(`https?://\S+#it_\S+`).FindString(invited))
	if err != nil || link.Fragment == "" {
		t.Fatalf("the invitation has no link: %s", invited)
	}
	c := e2e.NewClient(t, link.Scheme+"://"+link.Host)
	count := &counting{RoundTripper: c.Http.Transport}
	c.Http.Transport = count
	return c, count, e2e.Body{"deal_id": strings.TrimPrefix(link.Path, "/d/"), "invite_token": link.Fragment}
}

func with(base e2e.Body, more e2e.Body) e2e.Body {
	all := e2e.Body{}
	for _, b := range []e2e.Body{base, more} {
		for name, v := range b {
			all[name] = v
		}
	}
	return all
}

// Two people in browsers, an agent over MCP and an agent over REST settle one split.v1 deal.
// Ann creates the deal, and the other three get only their invitations. An agent needs at most four
// calls, besides the reads that wait up to 45 s for the other commits.
func TestPeopleAndAgentsSettleASplit(t *testing.T) {
	t.Parallel()
	base := e2e.NewClient(t, e2e.BaseURL(t)).Base
	ann, ben := newTab(t, base), newTab(t, base)
	ann.open("/new", 1280, "light")
	ann.until("the form is there", "document.querySelector('#kinds input:checked')")
	ann.enter("#names", "Ann\rBen\rCat\rDan")
	ann.enter("#items", "car\rboat")
	ann.click("#act-once") // the agents open their inputs by hand
	ann.enter("#create", "\r")
	ann.until("the deal is made", "!document.querySelector('#made').hidden")
	invitations := eval[[]string](ann, "[...document.querySelectorAll('#invitations textarea')].map((field) => field.value)")
	if len(invitations) != 3 {
		t.Fatalf("%d invitations, want 3", len(invitations))
	}
	own := eval[string](ann, "document.querySelector('#own-link').value")

	var agents sync.WaitGroup
	defer agents.Wait()
	results := make(chan string, 2)
	cat, catCount, seat := newAgent(t, invitations[1])
	agents.Go(func() {
		sealed := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 10, "boat": 90}})
		calls := 0
		call := func(tool string, more e2e.Body) e2e.ToolResult {
			calls++
			text, _ := json.Marshal(with(seat, more))
			return cat.Raw(tool, string(text))
		}
		call("get_deal", nil)
		next := call("commit_input", e2e.Body{"commitment": sealed.Commitment}).Meta.Next
		waits := 0
		for ; next.Tool == "get_deal"; waits++ {
			next = call("get_deal", e2e.Body{"wait_seconds": 45}).Meta.Next
		}
		call("reveal_input", e2e.Body{"input": sealed.Input, "salt": sealed.Salt})
		got := call("get_certificate", e2e.Body{"wait_seconds": 45})
		if got.IsError || calls-waits > 4 {
			t.Errorf("the agent over MCP took %d calls and %d waits: %+v", calls-waits, waits, got.Content)
		}
		results <- string(got.Structured)
	})
	dan, danCount, theirs := newAgent(t, invitations[2])
	agents.Go(func() {
		token, path := theirs["invite_token"].(string), "/v1/deals/"+theirs["deal_id"].(string)
		want := func(method, path string, body any) e2e.Answer {
			a, err := dan.Try(t.Context(), method, path, token, body)
			if err != nil || a.Status != 200 {
				t.Errorf("%s %s: %d %s (%v), want success", method, path, a.Status, a.Body, err)
			}
			return a
		}
		sealed := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 60, "boat": 40}})
		want("GET", path, nil)
		want("POST", path+"/commit", e2e.Body{"commitment": sealed.Commitment})
		waits := int64(0)
		for state := "COMMITTING"; state == "COMMITTING" || state == "OPEN"; waits++ {
			var view struct{ State string }
			want("GET", path+"?wait=45&since="+state, nil).Into(t, &view)
			state = view.State
		}
		want("POST", path+"/reveal", e2e.Body{"input": sealed.Input, "salt": sealed.Salt})
		got := want("GET", path+"/certificate?wait=45", nil)
		if calls := danCount.calls.Load() - waits; calls > 4 {
			t.Errorf("the agent over REST took %d calls and %d waits", calls, waits)
		}
		results <- string(got.Body)
	})

	for i, person := range []struct {
		tab  *tab
		link string
	}{{ann, own}, {ben, regexp.MustCompile(`https?://\S+#it_\S+`).FindString(invitations[0])}} {
		p := person.tab
		link, err := url.Parse(person.link)
		if err != nil {
			t.Fatal(err)
		}
		p.open(link.Path+"#"+link.Fragment, 390, "light")
		p.reaches("seal")
		p.enter("#points-0", fmt.Sprint(50+10*i))
		p.enter("#points-1", fmt.Sprint(50-10*i))
		p.seals()
	}
	for _, p := range []*tab{ann, ben} {
		p.reaches("done")
	}
	var certificates [2]struct {
		CertID  string `json:"cert_id"`
		Outcome string
	}
	for i := range certificates {
		if err := json.Unmarshal([]byte(<-results), &certificates[i]); err != nil {
			t.Fatal(err)
		}
	}
	if certificates[0] != certificates[1] || certificates[0].Outcome != "COMPUTED" {
		t.Errorf("the agents have the certificates %+v", certificates)
	}
	t.Logf("MCP: %d calls, %d bytes; REST: %d calls, %d bytes",
		catCount.calls.Load(), catCount.bytes.Load(), danCount.calls.Load(), danCount.bytes.Load())
}
