package algorithms

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

const (
	id   = "max.v1"
	want = `{"bid":70,"label":"bob","winner":1}`
)

var (
	params = e2e.Body{"thing": "car"}
	bids   = []e2e.Body{{"bid": 40}, {"bid": 70}}
)

func declared() e2e.Body {
	b := e2e.SplitBody(time.Hour, 2*time.Hour)
	b["algorithm"], b["algorithm_params"] = id, params
	return b
}

func checkCertificate(t *testing.T, text []byte) {
	t.Helper()
	var c struct {
		Algorithm  string
		Result     json.RawMessage
		Properties []string
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	e2e.Same(t, "result of the certificate and of the algorithm", c.Result, []byte(want))
	digest, err := certificate.DeclarationIn(c.Properties)
	if want := []string{"inputs-committed-before-reveal", "deterministic-recomputable", "largest-bid", certificate.DeclarationProperty(digest), "logged"}; err != nil || c.Algorithm != id || !slices.Equal(c.Properties, want) {
		t.Errorf("certificate of %s with properties %q (%v), want %s with %q", c.Algorithm, c.Properties, err, id, want)
	}
}

// The client checks every call against this deployment's OpenAPI document.
func TestOverREST(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	d := c.Create(declared())
	sealed := e2e.Seal(t, e2e.Body{"bid": -1})
	other := c.Committed(declared(), sealed.Commitment, sealed)
	if a := c.Do("POST", other.Path("/reveal"), other.Tokens[0], sealed.Act("reveal")); a.Code() != "INVALID_INPUT" || !strings.Contains(a.ErrorText(), "input.bid must be") {
		t.Errorf("reveal of a negative bid: %d %s, want INVALID_INPUT", a.Status, a.Body)
	}
	d.Play(bids...)
	e2e.Same(t, "result of the view and of the algorithm", d.View().Result, []byte(want))
	checkCertificate(t, d.Certified(e2e.DefaultTimeout))
	if r := c.Verify(*d.View().CertificateID); !r.Valid {
		t.Errorf("the certificate is not valid: %+v", r)
	}
	if a := c.Do("POST", d.Path("/entropy"), d.Key, nil); a.Code() != "WRONG_ALGORITHM" {
		t.Errorf("POST entropy: %d %s, want WRONG_ALGORITHM", a.Status, a.Body)
	}
	if a := c.Do("POST", "/v1/deals", d.Key, `{"algorithm":"min.v1","party_labels":["a","b"],"commit_deadline":1,"reveal_deadline":2,"algorithm_params":{}}`); !strings.Contains(a.ErrorText(), "shapley.v1, "+id) {
		t.Errorf("creation with an unknown algorithm: %s, want a list that ends with %s", a.Body, id)
	}
}

func TestOverMCP(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	b, key := declared(), c.Key()
	b["api_key"] = key
	created := c.Tool("create_deal", b)
	if why := created.Meta.Next.Why; !strings.Contains(why, `{"bid":70}`) {
		t.Errorf("the next step shows no example of the input: %s", why)
	}
	d := c.Created(key, e2e.Answer{Body: created.Structured})
	for i, bid := range bids {
		var hashed struct{ Commitment string }
		c.Tool("compute_commitment_tool", e2e.Body{"input": bid, "salt": fmt.Sprintf("%032d", i)}).Into(t, &hashed)
		c.Tool("commit_input", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[i], "commitment": hashed.Commitment})
	}
	for i, bid := range bids {
		c.Tool("reveal_input", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[i], "input": bid, "salt": fmt.Sprintf("%032d", i)})
	}
	d.Certified(e2e.DefaultTimeout)
	checkCertificate(t, c.Tool("get_certificate", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[1]}).Structured)
	var r e2e.Report
	if c.Tool("verify_certificate", e2e.Body{"cert_id": *d.View().CertificateID}).Into(t, &r); !r.Valid {
		t.Errorf("verify_certificate: the certificate is not valid: %+v", r)
	}
}

func TestOverFairpactctl(t *testing.T) {
	c := e2e.NewCtl(t, e2e.BaseURL(t))
	c.Create(id, params, "ann", "bob")
	c.Run(0, "seal", c.File("input.json", e2e.Body{"bid": "much"}), "--out", "unfit.json")
	if _, said := c.Run(1, "deal", "commit", "unfit.json", "--state", "party-0.json"); !strings.Contains(said, "input.bid is a string") {
		t.Errorf("commit of the bid \"much\": %s, want a message that input.bid is a string", said)
	}
	for i, bid := range bids {
		c.Seal(i, bid)
	}
	for i := range bids {
		c.Reveal(i)
	}
	c.Run(0, "deal", "watch", "--state", "deal.json")
	c.Fetched()
	checkCertificate(t, c.Read("cert.json"))
	c.Inputs(len(bids))
	if out := c.Offline(4, "verify", "bundle.json", "--inputs", "inputs.json"); !strings.Contains(out, "byte for byte as recomputed") {
		t.Errorf("fairpactctl verify: %s, want a recomputed result", out)
	}
	independentlyVerified(t, c.Dir)
	if help, _ := c.Run(0, "deal", "create", "--help"); !strings.Contains(help, id) {
		t.Errorf("the help of deal create does not name %s:\n%s", id, help)
	}
}

func TestIsDescribed(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	var catalogue struct {
		Algorithms []struct {
			ID      string
			Parties string
			Input   map[string]string `json:"party_input"`
			Vectors []any             `json:"test_vectors"`
		}
	}
	c.Want(200, "GET", "/v1/algorithms", "", nil).Into(t, &catalogue)
	if n := len(catalogue.Algorithms); n != 4 || catalogue.Algorithms[3].ID != id || catalogue.Algorithms[3].Parties != "2 to 5" || catalogue.Algorithms[3].Input["bid"] == "" || len(catalogue.Algorithms[3].Vectors) != 5 {
		t.Errorf("%d algorithms, the last %+v; want 4 with %s at the end, for 2 to 5 parties and with five vectors", n, catalogue.Algorithms[n-1], id)
	}
	line := "- max.v1, who bids most for one thing, 2 to 5 parties: `{\"thing\":\"car\"}` -> `{\"bid\":70}`"
	if page := c.Want(200, "GET", "/llms.txt", "", nil).Body; !strings.Contains(string(page), line) {
		t.Errorf("/llms.txt has no line %q", line)
	}
	if page := c.Want(200, "GET", "/openapi.json", "", nil).Body; !strings.Contains(string(page), `"MaxParams"`) {
		t.Error("/openapi.json has no schema MaxParams")
	}
	if said := c.Post(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`).Body; !strings.Contains(string(said), "max.v1: thing (string: what the bids are for)") {
		t.Errorf("no tool describes the params of %s", id)
	}
}
