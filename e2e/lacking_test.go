package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

// readiness is what a process's /readyz answers; 0 while nothing listens.
func readiness(t testing.TB, stack *localstack.Stack, name string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(stack.AdminURL(name) + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// signedByKey reports whether a certificate is signed by the labelled key.
func signedByKey(t testing.TB, certificate []byte, label string) bool {
	t.Helper()
	tree, err := canon.ParseObject(certificate)
	if err != nil {
		t.Fatal(err)
	}
	signature, _ := tree["signature"].(string)
	delete(tree, "signature")
	delete(tree, "log_proof")
	key, err := signing.NewVerifyingKey(label)
	if err != nil {
		t.Fatal(err)
	}
	return key.Verify(canon.Encode(tree), signature) == nil
}

// A process does not have the document when the new key begins to sign, a
// deal-api first and then the log-server. Certificates wait or are signed with
// the other key, no verdict is wrong, and the roll-out heals all.
func TestProcessWithoutTheKeySet(t *testing.T) {
	t.Parallel()
	firstURI, firstKey := keyFile(t)
	secondURI, secondKey := keyFile(t)
	thirdURI, thirdKey := keyFile(t)
	k := newKeyholder(t, firstURI, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} })
	has, lacks := newClient(t, k.stack.BaseURL()), newClient(t, k.stack.URL(secondAPI))
	played := func(c *client) *dealt {
		t.Helper()
		d := c.create(splitBody(time.Hour, 2*time.Hour))
		d.play(annsValues, bobsValues)
		return d
	}
	certID := func(d *dealt) string { return *d.view().CertificateID }
	seen := func(c *client, d *dealt) *dealt { there := *d; there.c = c; return &there }
	old := played(has)
	old.certified(patience)

	// The second deal-api lacks the key.
	k.keys(0, "rotate", "--to", secondURI, "--in", "20s")
	k.rollOut(localstack.LogServer, localstack.DealAPI, localstack.DeadlineWorker)
	if out := k.keys(1, "check"); !strings.Contains(out, "1 of 4 have another key set") {
		t.Error(out)
	}
	k.switched()
	d := played(has)
	if !signedByKey(t, d.certified(patience), secondKey) {
		t.Error("the new key does not sign when its time has come")
	}
	eventually(t, "the process without the key is not ready", patience, func() bool {
		status, text := readiness(t, k.stack, secondAPI)
		return status == http.StatusServiceUnavailable && strings.Contains(text, secondKey)
	})
	for _, id := range []string{certID(d), certID(old)} {
		if a := lacks.do("GET", "/v1/verify/"+id, "", nil); a.status != http.StatusServiceUnavailable {
			t.Errorf("verify without the key: %d %s", a.status, a.body)
		}
	}
	if a := lacks.do("GET", d.path("/certificate"), d.Tokens[0], nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("a certificate without the key: %d %s", a.status, a.body)
	}
	through := played(lacks)
	if certificate := seen(has, through).certified(patience); !signedByKey(t, certificate, firstKey) && !signedByKey(t, certificate, secondKey) {
		t.Errorf("neither key signed %s", certificate)
	}
	k.rollOut(secondAPI)
	for _, deal := range []*dealt{old, d, through} {
		if !lacks.verify(certID(deal)).Valid || !has.verify(certID(deal)).Valid {
			t.Errorf("%s is not valid", deal.ID)
		}
	}

	// The log-server lacks the key after that.
	k.keys(0, "rotate", "--to", thirdURI, "--in", "20s")
	k.rollOut(localstack.DealAPI, secondAPI, localstack.DeadlineWorker)
	k.switched()
	waits := played(has)
	if a := has.do("GET", waits.path("/certificate"), waits.Tokens[0], nil); a.code() != "CERT_NOT_READY" {
		t.Errorf("a certificate that the log does not take: %d %s", a.status, a.body)
	}
	for _, deal := range []*dealt{old, d, through} {
		if a := has.do("GET", "/v1/verify/"+certID(deal), "", nil); a.status == http.StatusOK && !strings.Contains(string(a.body), `"valid":true`) {
			t.Errorf("%s: %s", deal.ID, a.body)
		}
	}
	k.rollOut(localstack.LogServer)
	if !signedByKey(t, waits.certified(patience), thirdKey) {
		t.Error("what waited is not signed with the new key")
	}
	if out := k.keys(0, "check"); !strings.Contains(out, "4 run (1 deadline-worker, 2 deal-api, 1 log-server), all with the key set") {
		t.Error(out)
	}
	database(t, k.stack).converged()
	invariants(t, k.stack)
}
