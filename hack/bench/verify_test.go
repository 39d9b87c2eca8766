package main

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

func TestOnlyGoodCertificatesPass(t *testing.T) {
	signer, err := signing.Open(t.Context(), "dev://"+filepath.Join(t.TempDir(), "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := keys.New(signer.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	payload := map[string]any{"cert_id": "c_1", "deal_id": "d_1", "outcome": "COMPUTED", "input_root": "sha256:00"}
	signature, err := signer.Sign(t.Context(), sha256.Sum256(canon.Encode(payload)))
	if err != nil {
		t.Fatal(err)
	}
	entry := sha256.Sum256(canon.Encode(payload))
	payload["signature"] = signature
	payload["log_proof"] = map[string]any{"tree_size": int64(1), "leaf_index": int64(0), "inclusion_path": []any{}}
	good := string(canon.Encode(payload))

	heads := newHeads()
	if id, err := verifyCertificate([]byte(good), key, heads, "d_1", "sha256:00"); err != nil || id != "c_1" {
		t.Fatalf("verifyCertificate of a valid certificate returned %q, %v, want c_1 and no error", id, err)
	}
	if want := hex.EncodeToString(rfc6962.DefaultHasher.HashLeaf(entry[:])); heads.roots[1] != want {
		t.Errorf("the roots noted are %v, want %s for size 1", heads.roots, want)
	}
	for what, bad := range map[string]string{
		"another outcome":     strings.Replace(good, "COMPUTED", "VOID", 1),
		"another signature":   strings.Replace(good, "es256:", "es256:0", 1),
		"a path too long":     strings.Replace(good, `"inclusion_path":[]`, `"inclusion_path":["00"]`, 1),
		"no proof":            strings.Replace(good, "log_proof", "log_prooof", 1),
		"a leaf out of range": strings.Replace(good, `"leaf_index":0`, `"leaf_index":1`, 1),
	} {
		if bad == good {
			t.Fatalf("%s: the replacement changed nothing", what)
		}
		if _, err := verifyCertificate([]byte(bad), key, newHeads(), "d_1", "sha256:00"); err == nil {
			t.Errorf("a certificate with %s passes, want an error", what)
		}
	}
	if _, err := verifyCertificate([]byte(good), key, heads, "d_2", "sha256:00"); err == nil {
		t.Error("the certificate of deal d_1 passes for deal d_2, want an error")
	}
	if err := heads.note(1, "another root"); err == nil {
		t.Error("a second root of tree size 1 passes, want an error")
	}
}
