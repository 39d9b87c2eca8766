package ops

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// One command draws from a list of names, and continues after an interruption. A stranger verifies the public proof.
func TestRaffleOfAList(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	list := ""
	for i := range 30 {
		list += fmt.Sprintf("Member %d\n", i/2)
	}
	ctl := e2e.NewCtl(t, c.Base)
	ctl.File("names.txt", []byte(list+"\n"))
	var ran []string
	var made struct {
		DealID string `json:"deal_id"`
		Names  int
	}
	ctl.File("latin1.txt", []byte("M\xfcller\nMeier\n"))
	if _, _, said := ctl.Try("deal", "raffle", "latin1.txt", "--out", "latin1.json"); !strings.Contains(said, "latin1.txt is not UTF-8") {
		t.Errorf("a list in Latin-1 is answered %q, want that it is not UTF-8", said)
	}
	e2e.InTime(t, 12*time.Second, func(lead time.Duration) bool {
		out := fmt.Sprintf("raffle-%d.json", lead/time.Second)
		args := []string{"deal", "raffle", "names.txt", "--out", out, "--draw-in", lead.String(), "--title", "Raffle"}
		if code, _, said := ctl.Try(args...); code != 0 {
			if code != 1 || !strings.Contains(said, "DEADLINE_PASSED") && !strings.Contains(said, "is VOID") {
				t.Fatalf("the raffle fails with %d and says %s", code, said)
			}
			return false
		}
		ran = args
		ctl.Json(&made, args...) // all parties have acted, so it has nothing to do
		return true
	})
	if made.Names != 30 {
		t.Errorf("the raffle has %d names, want 30", made.Names)
	}
	var shown struct{ Bundle json.RawMessage }
	e2e.Eventually(t, "the draw has its proof", e2e.DefaultTimeout, func() bool {
		c.Want(200, "GET", "/v1/public/"+made.DealID, "", nil).Into(t, &shown)
		return string(shown.Bundle) != "null"
	})
	ctl.Json(&made, ran...) // also after the draw
	if _, _, said := ctl.Try(append(ran, "--base-url", "http://127.0.0.1:1")...); !strings.Contains(said, "give the same URL") {
		t.Errorf("with the URL of another deployment the command says %q, want that it sends no token there", said)
	}
	ctl.File("proof.json", []byte(shown.Bundle))
	if said := ctl.Offline(4, "verify", "proof.json"); !strings.Contains(said, "the initiator acted for all parties") {
		t.Errorf("fairpactctl verify says\n%s\nwant who acted", said)
	}
	ctl.File("deal.json", []byte(`{"base_url": "`+c.Base+`", "deal_id": "d_x", "invite_tokens": []}`))
	if _, _, said := ctl.Try("deal", "raffle", "names.txt", "--out", "deal.json"); !strings.Contains(said, "no raffle") {
		t.Errorf("with the state file of another deal the command says %q, want that it is no raffle", said)
	}
}
