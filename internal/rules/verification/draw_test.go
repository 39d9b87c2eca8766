package verification_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

// drawn returns a certificate with the result of a vector and with commitments to the
// vector's inputs. The signature of the certificate is all zeros, so it is invalid.
func drawn(t rapid.TB, v algorithm.Vector) map[string]any {
	t.Helper()
	at := func(n int64) *int64 { return &n }
	p := certificate.Payload{
		CertVersion: certificate.Version, CertID: "c", DealID: "d", Outcome: certificate.Computed, Algorithm: v.Algorithm, Mode: "open", Retention: "standard",
		Result: v.ExpectedOutput, Properties: certificate.Properties(certificate.Facts{Algorithm: v.Algorithm, Retention: "standard", Revealed: true, Declaration: strings.Repeat("0d", 32)}),
		Timing: certificate.Timing{CreatedAt: 1, CommitsClosedAt: at(2), RevealsClosedAt: at(3), ComputedAt: at(4)},
	}
	var leaves [][]byte
	for i, input := range v.Input.PartyInputs {
		canonical := canon.Encode(input)
		commitment := canon.Commitment(canonical, []byte("pepper"))
		p.Parties = append(p.Parties, certificate.Party{Index: i, Label: v.Input.PartyLabels[i], Commitment: &commitment, AttestedBy: certificate.AttestedByInitiator})
		leaves = append(leaves, slices.Concat(canonical, []byte("pepper")))
	}
	root := certificate.InputRoot(leaves)
	p.InputRoot = &root
	text, err := canon.Marshal(certificate.Certificate{Payload: p, Signature: "es256:" + strings.Repeat("0", 128), LogProof: certificate.LogProof{TreeSize: 1, InclusionPath: []string{}}})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := canon.ParseObject(text)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// inputsOf returns the inputs of a vector with the salt that the function drawn commits to. The
// inputs are copies, because tests modify inputs and share the vectors.
func inputsOf(t rapid.TB, v algorithm.Vector) []any {
	t.Helper()
	var rows []any
	for _, input := range v.Input.PartyInputs {
		own, err := canon.Parse(canon.Encode(input))
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, map[string]any{"input": own, "salt": "pepper"})
	}
	return rows
}

// failing returns the names of the failed checks. It skips checks that need keys or a tree head,
// because its callers pass neither.
func failing(e verification.Evidence) []string {
	var names []string
	for _, check := range verification.Verify(e).Checks {
		switch check.Name {
		case verification.KeysUsable, verification.Signature, verification.TreeHeadSignature, verification.KeyInForce, verification.TreeSize, verification.MerkleInclusion:
		default:
			if !check.OK {
				names = append(names, check.Name)
			}
		}
	}
	return names
}

// A certificate made from any published vector with a result passes all checks except those
// that need keys or a tree head.
func TestVectorsAsCertificates(t *testing.T) {
	t.Parallel()
	for _, v := range algorithm.Vectors() {
		if v.Void() {
			continue
		}
		e := verification.Evidence{Certificate: drawn(t, v), Known: lists(inputsOf(t, v)), Params: v.Input.AlgorithmParams}
		if failed := failing(e); len(failed) > 0 {
			t.Errorf("vector %s fails %v, want no failed check", v.VectorID, failed)
		}
	}
}

func TestDrawIsCheckedWithoutInputs(t *testing.T) {
	t.Parallel()
	v := vectorOfDraw()
	zeros := strings.Repeat("0", 64)
	for what, forge := range map[string]func(result, beacon map[string]any){
		"another winner":           func(result, _ map[string]any) { result["winner"] = 1 - result["winner"].(int64) },
		"another label":            func(result, _ map[string]any) { result["label"] = "mallory" },
		"another ticket":           func(result, _ map[string]any) { result["ticket"] = zeros },
		"another digest":           func(result, _ map[string]any) { result["nonce_digest"] = zeros },
		"another round":            func(_, beacon map[string]any) { beacon["round"] = int64(1) },
		"another chain":            func(_, beacon map[string]any) { beacon["chain_hash"] = zeros },
		"other randomness":         func(_, beacon map[string]any) { beacon["randomness"] = zeros },
		"another signature":        func(_, beacon map[string]any) { beacon["signature"] = strings.Repeat("0", 96) },
		"a short signature":        func(_, beacon map[string]any) { beacon["signature"] = "00" },
		"no beacon":                func(result, _ map[string]any) { delete(result, "beacon") },
		"a beacon that is no tree": func(result, _ map[string]any) { result["beacon"] = "x" },
		"a member more":            func(result, _ map[string]any) { result["note"] = "x" },
		"other randomness, hashed": func(_, beacon map[string]any) {
			raw := sha256.Sum256(make([]byte, 48))
			beacon["signature"], beacon["randomness"] = strings.Repeat("0", 96), hex.EncodeToString(raw[:])
		},
	} {
		cert := drawn(t, v)
		result := cert["result"].(map[string]any)
		forge(result, result["beacon"].(map[string]any))
		if failed := failing(verification.Evidence{Certificate: cert}); !slices.Equal(failed, []string{verification.Draw}) {
			t.Errorf("%s: fails %v, want only draw", what, failed)
		}
	}
}

// A certificate does not show reveal_deadline, before which the round may have been out.
func TestCertificateAloneProvesNoDraw(t *testing.T) {
	t.Parallel()
	v := vectorOfDraw()
	r := verification.Verify(verification.Evidence{Certificate: drawn(t, v), Known: lists(inputsOf(t, v)), Params: v.Input.AlgorithmParams, Beacon: true})
	if claim := r.Claims[6]; claim.Status != verification.NotProven || !strings.Contains(claim.Detail, "a certificate alone") {
		t.Errorf("the claim is %+v, want it not proven, because a certificate alone shows no deadline", claim)
	}
}

// Verify must not panic if any value of the certificate or of the inputs is replaced. Without
// keys, no certificate is valid.
func TestVerifyAnswersWhateverItIsGiven(t *testing.T) {
	t.Parallel()
	vectors := slices.DeleteFunc(algorithm.Vectors(), algorithm.Vector.Void)
	anything := rapid.OneOf(rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64Range(-canon.MaxInt, canon.MaxInt).AsAny(), rapid.String().AsAny(),
		rapid.Just[any]([]any{}), rapid.Just[any](map[string]any{}), rapid.Just[any]([]any{nil, map[string]any{"index": int64(1)}}))
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SampledFrom(vectors).Draw(t, "vector")
		cert := any(drawn(t, v))
		inputs, params := any(inputsOf(t, v)), v.Input.AlgorithmParams
		var holder any = map[string]any{"certificate": cert, "inputs": inputs}
		for {
			var names []any
			switch h := holder.(type) {
			case map[string]any:
				for name := range h {
					names = append(names, name)
				}
				slices.SortFunc(names, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
			case []any:
				for i := range h {
					names = append(names, i)
				}
			}
			if len(names) == 0 {
				break
			}
			key := rapid.SampledFrom(names).Draw(t, "place")
			inner := at(holder, key)
			_, isMap := inner.(map[string]any)
			_, isList := inner.([]any)
			if (isMap || isList) && rapid.IntRange(0, 3).Draw(t, "deeper") > 0 {
				holder = inner
				continue
			}
			put(holder, key, anything.Draw(t, "value"))
			break
		}
		if verification.Verify(verification.Evidence{Certificate: cert, TreeHead: anything.Draw(t, "head"), Known: lists(inputs), Params: params}).Valid {
			t.Fatal("valid without keys")
		}
		verification.Verify(verification.Evidence{Certificate: anything.Draw(t, "certificate"), Known: lists(anything.Draw(t, "inputs"))})
	})
}

func at(holder, key any) any {
	if m, ok := holder.(map[string]any); ok {
		return m[key.(string)]
	}
	return holder.([]any)[key.(int)]
}

func put(holder, key, v any) {
	if m, ok := holder.(map[string]any); ok {
		m[key.(string)] = v
		return
	}
	holder.([]any)[key.(int)] = v
}

func vectorOfDraw() algorithm.Vector {
	a, _ := algorithm.Lookup(algorithm.Random)
	return a.Vectors[0]
}

func lists(inputs any) (known verification.Known) {
	if inputs != nil {
		known.Lists = []any{inputs}
	}
	return known
}
