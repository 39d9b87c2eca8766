package abuse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// A new deal reserves what it can store at most, within a day's limit of its API key and of the network. So
// neither many reveals of one key nor many keys fill the disk, and no commitment or reveal is refused
// because too much is stored.
func TestDealsReserveTheirStorage(t *testing.T) {
	t.Parallel()
	const parties, perParty = 16, 8704 // bytes of the largest seal
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[localstack.DealAPI] = []string{"FAIRPACT_KEY_MIB_PER_DAY=1", "FAIRPACT_NETWORK_MIB_PER_DAY=3"}
	})
	c := from(t, stack, "127.0.3.1")
	body := e2e.SplitBody(hour, 2*hour)
	labels := make([]string, parties)
	for i := range labels {
		labels[i] = fmt.Sprint("party ", i)
	}
	body["party_labels"] = labels
	var first *e2e.CreatedDeal
	made := 0
	for range 18 { // keys
		key, ofKey := c.Key(), 0
		for ; ofKey < 20; ofKey++ {
			a := c.Do("POST", "/v1/deals", key, body)
			if a.Status == 429 {
				if a.Code() != "RATE_LIMITED" || a.Header.Get("Retry-After") == "" || !strings.Contains(string(a.Body), "storage") {
					t.Errorf("429 %s with header %v, want RATE_LIMITED for storage and Retry-After", a.Body, a.Header)
				}
				break
			}
			if a.Status != 201 {
				t.Fatalf("create a deal: %d %s, want 201 or 429", a.Status, a.Body)
			}
		}
		if most := (1 << 20) / (parties * perParty); ofKey > most {
			t.Errorf("one key made %d deals, want at most %d", ofKey, most)
		}
		made += ofKey
	}
	if most := (3 << 20) / (parties * perParty); made > most || made < most/2 {
		t.Errorf("18 keys of one network made %d deals of %d bytes, want at most %d and not far fewer", made, parties*perParty, most)
	}
	other := from(t, stack, "127.0.3.2")
	first = other.CreateWith(other.Key(), body)

	// The network at its limit plays its deals to the end, with the largest inputs.
	largest := 4<<10 + len(`"car""boat"`) + 2*18
	sealed := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 30, "car": 70}, "x": strings.Repeat("x", largest-len(`{"valuations":{"boat":30,"car":70},"x":""}`))})
	for _, action := range []string{"commit", "reveal"} {
		many(t, c, parties, func(i int) (string, string, string, any) {
			return "POST", first.Path("/" + action), first.Tokens[i], sealed.Act(action)
		})
	}
	first.Certified(e2e.DefaultTimeout)
}

// What the algorithm ignores in algorithm_params is neither stored nor declared.
func TestUnknownParamsAreNotStored(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	body := e2e.SplitBody(hour, 2*hour)
	body["algorithm_params"] = e2e.Body{"items": []string{"car", "boat"}, "padding": strings.Repeat("x", 100<<10)}
	key := c.Key()
	a := c.Want(201, "POST", "/v1/deals", key, body)
	if !strings.Contains(string(a.Body), "padding") {
		t.Errorf("%s, want a warning that names the unknown member", a.Body)
	}
	var made struct {
		DealID string `json:"deal_id"`
	}
	a.Into(t, &made)
	for _, path := range []string{"/v1/deals/" + made.DealID, "/v1/deals/" + made.DealID + "/declaration"} {
		if a := c.Want(200, "GET", path, key, nil); strings.Contains(string(a.Body), "padding") || !strings.Contains(string(a.Body), `"items":["car","boat"]`) {
			t.Errorf("GET %s: %.300s, want the items and no unknown member", path, a.Body)
		}
	}
}
