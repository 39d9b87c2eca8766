package wire_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func ptr[T any](v T) *T { return &v }

func parsed(t *testing.T, body []byte, err error) map[string]any {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := canon.ParseObject(body)
	if err != nil {
		t.Fatalf("ParseObject(%s): %v, want no error", body, err)
	}
	return tree
}

func members(t *testing.T, object any, want string) {
	t.Helper()
	got := slices.Sorted(maps.Keys(object.(map[string]any)))
	if names := slices.Sorted(strings.FieldsSeq(want)); !slices.Equal(got, names) {
		t.Errorf("got members %v\nwant        %v", got, names)
	}
}

// SPEC 2.5: a certificate without log_proof and signature is exactly the signed bytes,
// whatever texts it contains.
func TestCertificateHoldsTheSignedBytes(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0a", 32)
	computed := certificate.Payload{
		CertVersion: certificate.Version, CertID: "c_1", DealID: "d_1", Mode: "sealed", Retention: "standard",
		Parties: []certificate.Party{
			{Index: 0, Label: "<a> & \"b\"\u2028\\\x01", Commitment: &hash, AttestedBy: certificate.AttestedByInitiator},
			{Index: 1, Label: "é", AttestedBy: certificate.AttestedByInitiator},
		},
		Outcome: certificate.Computed, Algorithm: "split.v1", InputRoot: &hash, Result: json.RawMessage(`{"allocation":{"log_proof":{"tree_size":9007199254740991},"signature":"<item>"}}`),
		Timing:     certificate.Timing{CreatedAt: 1, CommitsClosedAt: ptr(int64(2)), RevealsClosedAt: ptr(int64(3)), ComputedAt: ptr(int64(4))},
		Properties: certificate.Properties(certificate.Facts{Algorithm: "split.v1", Retention: "standard", Revealed: true, Declaration: strings.Repeat("0", 64)}),
	}
	void := computed
	void.Outcome, void.InputRoot, void.Result, void.VoidFlakers, void.Timing = certificate.Void, nil, nil, []int{0, 1}, certificate.Timing{CreatedAt: 1}
	for _, payload := range []certificate.Payload{computed, void} {
		for _, path := range [][]string{{}, {strings.Repeat("0", 64), strings.Repeat("f", 64)}} {
			signed, err := payload.SigningBytes()
			if err != nil {
				t.Fatal(err)
			}
			before := string(signed)
			whole := certificate.Certificate{Payload: payload, Signature: "es256:00", LogProof: certificate.LogProof{TreeSize: 7, LeafIndex: 3, InclusionPath: path}}
			body, err := wire.Certificate(escrow.Issued{
				CertID: payload.CertID, Outcome: payload.Outcome, Payload: slices.Clip(signed), Signature: whole.Signature, Proof: whole.LogProof,
			})
			got := parsed(t, body, err)
			text, err := json.Marshal(whole)
			if want := parsed(t, text, err); !reflect.DeepEqual(got, want) {
				t.Errorf("Certificate: got %s\nwant %s", body, text)
			}
			members(t, got, "cert_version cert_id deal_id outcome algorithm mode retention parties input_root result void_flakers properties timing log_proof tee_attestation signature")
			members(t, got["log_proof"], "tree_size leaf_index inclusion_path")
			members(t, got["timing"], "created_at commits_closed_at reveals_closed_at computed_at")
			members(t, got["parties"].([]any)[0], "index label commitment attested_by")
			delete(got, "log_proof")
			delete(got, "signature")
			if string(canon.Encode(got)) != before || string(signed) != before {
				t.Errorf("certificate without log_proof and signature: got %s\nwant %s\nthe payload is now %s", canon.Encode(got), before, signed)
			}
		}
	}
}

// SPEC 2.4: every member is present, unused ones as null.
func TestViewHasAllMembers(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0a", 32)
	const declared = `{"deal_id":"d_1","algorithm":"split.v1","algorithm_params":{"items":["<car>"]},"mode":"sealed","retention":"standard","initiator":0,"commit_deadline":10,"reveal_deadline":20,"created_at":1,`
	for want, change := range map[string]func(*escrow.View){
		`"state":"OPEN","parties":[{"index":0,"label":"a","committed":false,"commitment":null,"revealed":false},{"index":1,"label":"<b>","committed":false,"commitment":null,"revealed":false}],
			"commits_closed_at":null,"reveals_closed_at":null,"computed_at":null,"result":null,"void_flakers":null,"certificate_id":null}`: func(v *escrow.View) { v.State = deal.Open },
		`"state":"COMPUTED","parties":[{"index":0,"label":"a","committed":true,"commitment":"` + hash + `","revealed":true},{"index":1,"label":"<b>","committed":true,"commitment":"` + hash + `","revealed":true}],
			"commits_closed_at":2,"reveals_closed_at":3,"computed_at":4,"result":{"x":1},"void_flakers":null,"certificate_id":"c_1"}`: func(v *escrow.View) {
			v.State, v.Parts = deal.Computed, []store.PartyStatus{{Commitment: &hash, Revealed: true}, {Commitment: &hash, Revealed: true}}
			v.CommitsClosedAt, v.RevealsClosedAt, v.ComputedAt = ptr(int64(2)), ptr(int64(3)), ptr(int64(4))
			v.Result, v.CertificateID, v.Sealed = []byte(`{"x":1}`), ptr("c_1"), [][]byte{[]byte("sealed input")}
		},
		`"state":"VOID","parties":[{"index":0,"label":"a","committed":true,"commitment":"` + hash + `","revealed":false},{"index":1,"label":"<b>","committed":false,"commitment":null,"revealed":false}],
			"commits_closed_at":null,"reveals_closed_at":null,"computed_at":null,"result":null,"void_flakers":[1],"certificate_id":null}`: func(v *escrow.View) { // the deal has a CertID, but no CertificateID until the certificate is published
			v.State, v.Parts[0].Commitment, v.VoidFlakers, v.CertID = deal.Void, &hash, []int{1}, ptr("c_1")
		},
	} {
		v := escrow.View{Deal: &escrow.Deal{Declaration: &store.Declaration{
			DealID: "d_1", OwnerHash: []byte("owner"), CreatedAt: 1, Terms: deal.Terms{
				Algorithm: "split.v1", Params: []byte(`{"items":["<car>"]}`), Mode: "sealed", Retention: "standard",
				Labels: []string{"a", "<b>"}, CommitDeadline: 10, RevealDeadline: 20,
			},
		}}, Snapshot: &store.Snapshot{Parts: make([]store.PartyStatus, 2)}}
		change(&v)
		body, err := web.Encode(wire.ViewOf(v))
		if got, want := parsed(t, body, err), parsed(t, []byte(declared+want), nil); !reflect.DeepEqual(got, want) {
			t.Errorf("View: got %s\nwant %v", body, want)
		}
	}
}

// SPEC 4: the answer to a commitment is `{deal_id, state, party, committed, next}`.
func TestCommitted(t *testing.T) {
	d := &escrow.Deal{Declaration: &store.Declaration{Terms: deal.Terms{RevealDeadline: 20}}}
	for state, next := range map[deal.State]string{
		deal.Committing: "wait for the others: call GET /v1/deals/d_1?wait=45&since=COMMITTING until the state is REVEALING, then call POST /v1/deals/d_1/reveal with your input and salt before reveal_deadline 20",
		deal.Revealing:  "all have committed: call POST /v1/deals/d_1/reveal with your input and salt before reveal_deadline 20",
		deal.Void:       "the deal is VOID: read it with GET /v1/deals/d_1",
	} {
		body, err := web.Encode(wire.CommittedOf(d, escrow.Committed{DealID: "d_1", State: state, Party: 1, Committed: true}, wire.REST))
		want := map[string]any{"deal_id": "d_1", "state": string(state), "party": int64(1), "committed": true, "next": next}
		if got := parsed(t, body, err); !reflect.DeepEqual(got, want) {
			t.Errorf("answer in state %s: got %s\nwant %v", state, body, want)
		}
	}
}

func TestDeclared(t *testing.T) {
	const good = `"algorithm":"split.v1","party_labels":["a","b"],"commit_deadline":10,"reveal_deadline":20`
	for _, row := range []struct{ more, want string }{
		{``, `split.v1 {} sealed standard [a b] [] 10 20 []`},
		{`,"mode":null,"retention":null,"algorithm_params":null,"party_keys":null`, `split.v1 {} sealed standard [a b] [] 10 20 []`},
		{`,"mode":"open","retention":"purge","algorithm_params":{"items":["x"]}`, `split.v1 {"items":["x"]} open purge [a b] [] 10 20 []`},
		{`,"z":1,"b":{}`, `split.v1 {} sealed standard [a b] [] 10 20 [b z]`},
		{`,"party_keys":[null,null]`, `split.v1 {} sealed standard [a b] [<nil> <nil>] 10 20 []`},
		{`,"party_keys":[null,1]`, "party_keys[1] is an integer: give a string or null"},
		{`,"party_keys":{}`, "party_keys is an object: give an array"},
	} {
		d, err := ops.Declared(parsed(t, []byte(`{`+good+row.more+`}`), nil))
		got := fmt.Sprintf("%s %s %s %s %v %v %d %d %v", d.Algorithm, d.Params, d.Mode, d.Retention, d.Labels, d.SeatKeys, d.CommitDeadline, d.RevealDeadline, d.Unknown)
		if err == nil && got != row.want {
			t.Errorf("Declared with %q: got %s, want %s", row.more, got, row.want)
		}
		if err != nil && (!problem.Is(err, problem.InvalidRequest) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("Declared with %q: got error %v, want INVALID_REQUEST with %q", row.more, err, row.want)
		}
	}
}

func TestSeatKeyOfACommitment(t *testing.T) {
	commitment := `{"commitment":"sha256:` + strings.Repeat("0a", 32) + `"`
	for more, valid := range map[string]bool{
		`}`: true, `,"party_key":"k","party_signature":"s"}`: true,
		`,"party_key":"k"}`: false, `,"party_signature":"s"}`: false, `,"party_key":1,"party_signature":"s"}`: false,
	} {
		got, err := ops.Commitment(parsed(t, []byte(commitment+more), nil))
		if valid && (err != nil || got.Hash[0] != 10) || !valid && !problem.Is(err, problem.InvalidRequest) {
			t.Errorf("Commitment with %q: got %+v, %v; want it accepted: %t", more, got, err, valid)
		}
	}
}

func TestErrorsNeverQuoteTheBody(t *testing.T) {
	for _, body := range []string{`{"secret":1,"secret":2}`, `{"secret":1.5}`, `{"secret"`, `["secret"]`, `"secret"`,
		`{"salt":"secret"}`, `{"input":"secret"}`, `{"input":{"secret":1},"salt":7}`, `{"input":{},"salt":"` + strings.Repeat("secret", 200) + `"}`} {
		tree, err := new(ops.Operation).Object(t.Context(), []byte(body))
		if err == nil {
			_, err = ops.Opening(tree)
		}
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("body %.60s: got error %v, want one without the word secret", body, err)
		}
	}
}
