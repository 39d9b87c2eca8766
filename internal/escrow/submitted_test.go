package escrow

import (
	"context"
	"fmt"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/attestation"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

func TestSeatKeysAreNotCheckedAfterTheEndOfTheCall(t *testing.T) {
	const seats, until = 10_000, 10
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opened := 0
	open := whileRunning(ctx, func(named []verification.Trusted) []verification.Key {
		if opened++; opened == until {
			cancel()
		}
		return []verification.Key{{Verify: func([]byte, string) error { return nil }}}
	})
	hash := fmt.Sprintf("sha256:%064d", 0)
	var parties []any
	for i := range seats {
		by := attestation.Attestation{Declared: true, Key: fmt.Sprintf("ed25519:%064d", i), Signature: fmt.Sprintf("ed25519:%0128d", 0), Origin: "https://a"}
		parties = append(parties, map[string]any{"index": int64(i), "label": fmt.Sprint(i), "commitment": hash, "attested_by": by.String()})
	}
	report := verification.Verify(verification.Evidence{VerifyingKeys: open, Certificate: map[string]any{
		"cert_version": certificate.Version, "cert_id": "c_1", "deal_id": "d_1", "outcome": certificate.Computed, "algorithm": "random.v1", "mode": "sealed", "retention": "standard",
		"parties": parties, "input_root": hash, "result": map[string]any{}, "void_flakers": nil, "properties": []any{attestation.Property(fmt.Sprintf("%064d", 0))},
		"timing":          map[string]any{"created_at": int64(1), "commits_closed_at": int64(2), "reveals_closed_at": int64(3), "computed_at": int64(4)},
		"tee_attestation": nil, "log_proof": map[string]any{"tree_size": int64(1), "leaf_index": int64(0), "inclusion_path": []any{}}, "signature": fmt.Sprintf("es256:%0128d", 0),
	}})
	if opened != until || report.Holds(verification.PartySignatures) {
		t.Errorf("%d keys were opened, want %d and no valid party signatures; the report: %.300v", opened, until, report.Checks)
	}
}
