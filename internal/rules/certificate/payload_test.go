package certificate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

func ptr[T any](v T) *T { return &v }

func computed() Payload {
	return Payload{
		CertVersion: Version, CertID: "c_1", DealID: "d_1", Outcome: Computed, Algorithm: "split.v1", Mode: "sealed", Retention: "standard",
		Parties: []Party{
			{0, "Zoë <a&b>", ptr("sha256:" + strings.Repeat("0a", 32)), AttestedByInitiator},
			{1, "b", ptr("sha256:" + strings.Repeat("0b", 32)), AttestedByInitiator},
		},
		InputRoot: ptr("sha256:" + strings.Repeat("0c", 32)), Result: json.RawMessage(`{"method": "proportional", "shares": []}`),
		Properties: Properties(Facts{Algorithm: "split.v1", Retention: "standard", Revealed: true, Declaration: "0d"}),
		Timing:     Timing{CreatedAt: 1, CommitsClosedAt: ptr(int64(2)), RevealsClosedAt: ptr(int64(3)), ComputedAt: ptr(int64(4))},
	}
}

func void() Payload {
	return Payload{
		CertVersion: Version, CertID: "c_2", DealID: "d_2", Outcome: Void, Algorithm: "random.v1", Mode: "open", Retention: "purge",
		Parties:     []Party{{0, "a", nil, AttestedByInitiator}, {1, "b", nil, AttestedByInitiator}},
		VoidFlakers: []int{0, 1}, Properties: Properties(Facts{Algorithm: "random.v1", Retention: "purge", Void: MissedCommit, Declaration: "0d"}), Timing: Timing{CreatedAt: 1},
	}
}

func signingBytes(t testing.TB, p Payload) []byte {
	t.Helper()
	b, err := p.SigningBytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The wanted bytes were written by hand from SPEC 2.5 and RFC 8785. They MUST NOT change,
// because a change would invalidate published signatures.
func TestSigningBytesNeverChange(t *testing.T) {
	for _, row := range []struct {
		payload Payload
		want    string
	}{
		{computed(), `{"algorithm":"split.v1","cert_id":"c_1","cert_version":"1","deal_id":"d_1",` +
			`"input_root":"sha256:` + strings.Repeat("0c", 32) + `","mode":"sealed","outcome":"COMPUTED","parties":[` +
			`{"attested_by":"initiator","commitment":"sha256:` + strings.Repeat("0a", 32) + `","index":0,"label":"Zoë <a&b>"},` +
			`{"attested_by":"initiator","commitment":"sha256:` + strings.Repeat("0b", 32) + `","index":1,"label":"b"}],` +
			`"properties":["inputs-committed-before-reveal","deterministic-recomputable","declaration-sha256:0d","logged"],` +
			`"result":{"method":"proportional","shares":[]},"retention":"standard","tee_attestation":null,` +
			`"timing":{"commits_closed_at":2,"computed_at":4,"created_at":1,"reveals_closed_at":3},"void_flakers":null}`},
		{void(), `{"algorithm":"random.v1","cert_id":"c_2","cert_version":"1","deal_id":"d_2",` +
			`"input_root":null,"mode":"open","outcome":"VOID","parties":[` +
			`{"attested_by":"initiator","commitment":null,"index":0,"label":"a"},` +
			`{"attested_by":"initiator","commitment":null,"index":1,"label":"b"}],` +
			`"properties":["void:missed-commit","declaration-sha256:0d","logged"],` +
			`"result":null,"retention":"purge","tee_attestation":null,` +
			`"timing":{"commits_closed_at":null,"computed_at":null,"created_at":1,"reveals_closed_at":null},"void_flakers":[0,1]}`},
	} {
		got := signingBytes(t, row.payload)
		if string(got) != row.want {
			t.Errorf("signing bytes of %s:\n got %s\nwant %s", row.payload.CertID, got, row.want)
		}
		if read, err := Parse(got); err != nil || string(signingBytes(t, read)) != row.want {
			t.Errorf("parsed and written again: %s, %v; want the same bytes", signingBytes(t, read), err)
		}
		sum := sha256.Sum256([]byte(row.want))
		if Entry(got) != sum {
			t.Errorf("entry of %s is not SHA-256 of its signing bytes", row.payload.CertID)
		}
	}
}

// SPEC 2.5: the signed bytes are the canonical form of the certificate without log_proof
// and signature.
func TestCertificateContainsWhatIsSigned(t *testing.T) {
	for _, p := range []Payload{computed(), void()} {
		text, err := json.Marshal(Certificate{Payload: p, LogProof: LogProof{TreeSize: 1, InclusionPath: []string{}}, Signature: "es256:00"})
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			t.Fatal(err)
		}
		if proof, signature := string(members["log_proof"]), string(members["signature"]); proof != `{"tree_size":1,"leaf_index":0,"inclusion_path":[]}` || signature != `"es256:00"` {
			t.Errorf("log_proof is %s and signature %s, want those of the certificate", proof, signature)
		}
		delete(members, "log_proof")
		delete(members, "signature")
		if rest, err := canon.Marshal(members); err != nil || string(rest) != string(signingBytes(t, p)) {
			t.Errorf("certificate %s without log_proof and signature is %s (%v), want its signing bytes", p.CertID, rest, err)
		}
	}
}

func TestProperties(t *testing.T) {
	for _, row := range []struct {
		facts Facts
		want  string
	}{
		{Facts{"split.v1", "standard", "", true, "0d", 0, false}, "inputs-committed-before-reveal deterministic-recomputable declaration-sha256:0d logged"},
		{Facts{"shapley.v1", "purge", "", true, "0d", 0, false}, "inputs-committed-before-reveal deterministic-recomputable inputs-purged declaration-sha256:0d logged"},
		{Facts{"random.v1", "purge", "", true, "0d", 0, false}, "inputs-committed-before-reveal deterministic-recomputable beacon-verified inputs-purged declaration-sha256:0d logged"},
		{Facts{"random.v1", "standard", MissedReveal, true, "0d", 0, false}, "inputs-committed-before-reveal void:missed-reveal declaration-sha256:0d logged"},
		{Facts{"split.v1", "purge", MissedCommit, false, "0d", 0, false}, "void:missed-commit declaration-sha256:0d logged"},
		{Facts{"split.v1", "standard", "", true, "0d", 77, false}, "inputs-committed-before-reveal deterministic-recomputable opened-by-timelock:77 declaration-sha256:0d logged"},
		{Facts{"random.v1", "standard", "", true, "0d", 0, true}, "inputs-committed-before-reveal deterministic-recomputable beacon-verified acted-by-initiator declaration-sha256:0d logged"},
		{Facts{"shapley.v1", "purge", Rejected, true, "0d", 0, false}, "inputs-committed-before-reveal void:rejected inputs-purged declaration-sha256:0d logged"},
	} {
		if got := strings.Join(Properties(row.facts), " "); got != row.want {
			t.Errorf("properties of %+v: %s, want %s", row.facts, got, row.want)
		}
	}
}

// SPEC 2.9: input_root is well-formed, or null in a VOID certificate.
func TestInputRootWellFormed(t *testing.T) {
	digits := hex.EncodeToString(make([]byte, 32))
	for i, row := range []struct {
		root    *string
		outcome string
		want    bool
	}{
		{nil, Void, true},
		{nil, Computed, false},
		{ptr("sha256:" + digits), Computed, true},
		{ptr("sha256:" + digits), Void, true}, // shapley.v1: all parties revealed, the last one with `accept: false`
		{ptr(""), Void, false},
		{ptr(digits), Computed, false},
		{ptr("sha256:" + digits[2:]), Computed, false},
		{ptr("sha256:" + digits + "00"), Computed, false},
		{ptr("sha256:" + digits + "\n"), Computed, false},
		{ptr("sha256:" + digits[1:] + "A"), Computed, false},
		{ptr("SHA256:" + digits), Computed, false},
	} {
		if got := (Payload{Outcome: row.outcome, InputRoot: row.root}).InputRootWellFormed(); got != row.want {
			t.Errorf("row %d: %v, want %v", i, got, row.want)
		}
	}
}
