package verification_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/verification"
)

var update = flag.Bool("update", false, "write the shared cases of bundles again")

// Cases shared by this verifier, the Python one and the page.
const bundleCases = "../../e2e/testdata/bundles"

// bundleCase is a bundle, what its verifier trusts, and the checks that fail. Says is part
// of the detail of a failed check.
type bundleCase struct {
	Bundle  any      `json:"bundle"`
	Policy  string   `json:"policy,omitempty"`
	Pubkeys []string `json:"pubkeys,omitempty"`
	Failed  []string `json:"failed"`
	Says    string   `json:"says,omitempty"`

	Parties  map[int]string `json:"parties,omitempty"`  // seat keys that the verifier knows
	Unproven string         `json:"unproven,omitempty"` // part of a note of a valid report
}

// trustedKeys returns usable keys for those that a document names.
func trustedKeys(named []verification.Trusted) []verification.Key {
	keys := make([]verification.Key, len(named))
	for i, k := range named {
		keys[i].Trusted = k
		if of, err := signing.NewVerifyingKey(k.Label); err != nil {
			keys[i].Problem = err
		} else {
			keys[i].Verify = of.Verify
		}
	}
	return keys
}

func (c bundleCase) report(t *testing.T) verification.Report {
	t.Helper()
	text, err := json.Marshal(c.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := canon.ParseWithin(text, 2)
	if err != nil {
		t.Fatal(err)
	}
	trust := verification.Trust{Open: trustedKeys, Parties: c.Parties}
	if c.Policy != "" {
		if trust.Policy, err = checkpoint.ParsePolicy([]byte(c.Policy)); err != nil {
			t.Fatal(err)
		}
	}
	for _, label := range c.Pubkeys {
		trust.Keys = append(trust.Keys, trustedKeys([]verification.Trusted{{Label: label}})...)
	}
	return verification.VerifyBundle(bundle, trust)
}

// Each forgery fails, and the failed checks name what is wrong. -update writes the cases
// again under new keys.
func TestBundlesAndTheirForgeries(t *testing.T) {
	if *update {
		for name, c := range forgeries(t) {
			text, err := json.MarshalIndent(c, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(bundleCases, name+".json"), append(text, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(bundleCases, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	forged := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c bundleCase
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(name, err)
		}
		report := c.report(t)
		var failed, said []string
		for _, check := range report.Checks {
			if !check.OK {
				failed, said = append(failed, check.Name), append(said, check.Name+": "+check.Detail)
			}
		}
		if !slices.Equal(failed, c.Failed) || report.Valid != (len(failed) == 0) || !strings.Contains(strings.Join(said, "\n"), c.Says) {
			t.Errorf("%s: fails %v, want %v with %q\n%s", name, failed, c.Failed, c.Says, strings.Join(said, "\n"))
		}
		if len(c.Failed) > 0 {
			forged++
		}
		if unproven := strings.Join(report.Notes, "; "); report.Valid && strings.Contains(unproven, "no witness was checked") != (c.Policy == "") {
			t.Errorf("%s: not proven are %q", name, unproven)
		} else if report.Valid && !strings.Contains(unproven, c.Unproven) {
			t.Errorf("%s: not proven are %q, want %q", name, unproven, c.Unproven)
		} else if b := c.Bundle.(map[string]any); report.Valid && b["declaration"] != nil && strings.Contains(unproven, "params and deadlines") || strings.Count(unproven, "params and deadlines") > 1 {
			t.Errorf("%s: not proven are %q", name, unproven)
		} else if own, _ := c.Bundle.(map[string]any)["own_input"].(map[string]any); report.Valid && strings.Contains(unproven, "your input was not checked") != (own["input"] == nil) {
			t.Errorf("%s: not proven are %q", name, unproven)
		}
	}
	if forged < 20 || len(files)-forged < 4 {
		t.Errorf("%d forgeries and %d good bundles: too few to mean anything", forged, len(files)-forged)
	}
}

// Replacing any one value of a good bundle changes the verdict, except for values that
// prove nothing by themselves.
func TestEveryPlaceOfABundleCounts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"good", "good-seats"} {
		everyPlaceCounts(t, name)
	}
}

func everyPlaceCounts(t *testing.T, name string) {
	t.Helper()
	var c bundleCase
	text, err := os.ReadFile(filepath.Join(bundleCases, name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	places := 0
	var walk func(path string, holder any)
	walk = func(path string, holder any) {
		each := func(key any, v any) {
			at := fmt.Sprint(path, "/", key)
			if strings.HasPrefix(at, "/keys/") || strings.HasPrefix(at, "/beacon/") && at != "/beacon/chain_hash" {
				return // keys are compared only with given trusted keys, and the beacon's members only by the check of its signature
			}
			var other any
			switch v := v.(type) {
			case string:
				other = v + "0"
				if len(v) > 0 && v[0] == '1' {
					other = "2" + v[1:]
				} else if len(v) > 0 {
					other = "1" + v[1:]
				}
			case float64:
				other = v + 1
			default:
				walk(at, v)
				return
			}
			places++
			put(holder, key, other)
			if c.report(t).Valid {
				t.Errorf("%s: %s is %v instead of %v, and the bundle is valid", name, at, other, v)
			}
			put(holder, key, v)
		}
		switch h := holder.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(h)) {
				each(name, h[name])
			}
		case []any:
			for i, v := range h {
				each(i, v)
			}
		}
	}
	walk("", c.Bundle)
	if places < 40 || !c.report(t).Valid {
		t.Errorf("%d places were changed, or the bundle is not what it was", places)
	}
}

// ---- The cases are made here

// forger holds all keys.
type forger struct {
	deployment, stranger *ecdsa.PrivateKey
	log, otherLog        ed25519.PrivateKey
	witnesses            []ed25519.PrivateKey
	policy               string
}

const logOrigin = "log.example/fairpact"

func newForger(t *testing.T) *forger {
	t.Helper()
	f := &forger{}
	for _, key := range []**ecdsa.PrivateKey{&f.deployment, &f.stranger} {
		var err error
		if *key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	made := func() ed25519.PrivateKey {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	f.log, f.otherLog, f.witnesses = made(), made(), []ed25519.PrivateKey{made(), made()}
	f.policy = "log " + vkey(logOrigin, checkpoint.TypeEd25519, f.log) + "\n"
	for i, w := range f.witnesses {
		f.policy += fmt.Sprintf("witness w%d %s\n", i, vkey(fmt.Sprintf("w%d.example", i), checkpoint.TypeCosignature, w))
	}
	f.policy += "group both all w0 w1\nquorum both\n"
	return f
}

func vkey(name string, kind byte, key ed25519.PrivateKey) string {
	material := append([]byte{kind}, key.Public().(ed25519.PublicKey)...)
	id := sha256.Sum256(append([]byte(name+"\n"), material...))
	return fmt.Sprintf("%s+%x+%s", name, id[:4], base64.StdEncoding.EncodeToString(material))
}

func es256Label(key *ecdsa.PrivateKey) string {
	return fmt.Sprintf("es256:%x", elliptic.MarshalCompressed(elliptic.P256(), key.X, key.Y))
}

func es256(t *testing.T, key *ecdsa.PrivateKey, message []byte) string {
	t.Helper()
	digest := sha256.Sum256(message)
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	if n := elliptic.P256().Params().N; s.Cmp(new(big.Int).Rsh(n, 1)) > 0 {
		s.Sub(n, s)
	}
	return fmt.Sprintf("es256:%064x%064x", r, s)
}

// checkpoint returns a checkpoint signed by all keys.
func (f *forger) checkpoint(t *testing.T, c checkpoint.Checkpoint, log ed25519.PrivateKey) string {
	t.Helper()
	line := func(vkey string, signature []byte) string {
		key, err := checkpoint.ParseKey(vkey)
		if err != nil {
			t.Fatal(err)
		}
		return key.Line(signature)
	}
	text := c.Text()
	digest := c.Digest()
	der, err := ecdsa.SignASN1(rand.Reader, f.deployment, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	of, err := checkpoint.ECDSAKey(c.Origin, &f.deployment.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	note := text + "\n" + line(vkey(c.Origin, checkpoint.TypeEd25519, log), ed25519.Sign(log, []byte(text))) + of.Line(der)
	for i, w := range f.witnesses {
		const at = 1795257295
		message := fmt.Sprintf("cosignature/v1\ntime %d\n%s", at, text)
		note += line(vkey(fmt.Sprintf("w%d.example", i), checkpoint.TypeCosignature, w), append(binary.BigEndian.AppendUint64(nil, at), ed25519.Sign(w, []byte(message))...))
	}
	return note
}

// issued is a certificate with its proof in a log.
type issued struct {
	certificate map[string]any
	head        map[string]any
	proof       string
}

// issue appends certificates to a log with other entries and proves each.
func (f *forger) issue(t *testing.T, log ed25519.PrivateKey, before string, certs ...map[string]any) []issued {
	t.Helper()
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) (all []tlog.Hash, err error) {
		for _, x := range indexes {
			all = append(all, stored[x])
		}
		return all, nil
	})
	size := int64(0)
	add := func(entry [32]byte) {
		more, err := tlog.StoredHashes(size, entry[:], read)
		if err != nil {
			t.Fatal(err)
		}
		stored, size = append(stored, more...), size+1
	}
	for i := range 3 {
		add(sha256.Sum256(fmt.Appendf(nil, "%s %d", before, i)))
	}
	first := size
	for _, cert := range certs {
		add(sha256.Sum256(signedBytes(cert)))
	}
	add(sha256.Sum256([]byte("the last one")))
	root, err := tlog.TreeHash(size, read)
	if err != nil {
		t.Fatal(err)
	}
	head := map[string]any{"tree_size": size, "root_hash": hex.EncodeToString(root[:])}
	head["signature"] = es256(t, f.deployment, canon.Encode(map[string]any{"tree_size": size, "root_hash": head["root_hash"]}))
	note := f.checkpoint(t, checkpoint.Checkpoint{Origin: logOrigin, Size: size, Root: root}, log)
	var all []issued
	for i, cert := range certs {
		at := first + int64(i)
		path, err := tlog.ProveRecord(size, at, read)
		if err != nil {
			t.Fatal(err)
		}
		proof, hashes := checkpoint.Proof{Index: at, Note: []byte(note)}, []any{}
		for _, hash := range path {
			proof.Path, hashes = append(proof.Path, hash), append(hashes, hex.EncodeToString(hash[:]))
		}
		full := maps.Clone(cert)
		full["log_proof"] = map[string]any{"tree_size": size, "leaf_index": at, "inclusion_path": hashes}
		full["signature"] = es256(t, f.deployment, signedBytes(cert))
		all = append(all, issued{full, maps.Clone(head), string(proof.Marshal())})
	}
	return all
}

func signedBytes(cert map[string]any) []byte {
	payload := maps.Clone(cert)
	delete(payload, "signature")
	delete(payload, "log_proof")
	return canon.Encode(payload)
}

// forgeries returns the cases by name. The draw is a published vector with a real beacon
// value.
func forgeries(t *testing.T) map[string]bundleCase {
	t.Helper()
	f, v := newForger(t), algorithm.VectorsOf(algorithm.Random)[0]
	cert, another := drawn(t, v), drawn(t, v)
	another["deal_id"], another["cert_id"] = "d2", "c2"
	all := f.issue(t, f.log, "leaf", cert, another)
	beacon := cert["result"].(map[string]any)["beacon"].(map[string]any)
	var leaves [][]byte
	for _, row := range inputsOf(t, v) {
		leaves = append(leaves, slices.Concat(canon.Encode(row.(map[string]any)["input"]), []byte("pepper")))
	}
	const party = 1
	path := []any{}
	for _, hash := range certificate.InputPath(leaves, party) {
		path = append(path, hash)
	}
	key := es256Label(f.deployment)
	bundleOf := func(in issued) map[string]any {
		return map[string]any{
			"bundle_version": "1", "certificate": in.certificate, "tree_head": in.head, "log_proof": in.proof,
			"keys": map[string]any{"keys": []any{map[string]any{"pubkey": key, "state": "current"}}},
			"beacon": map[string]any{
				"chain_hash": beacon["chain_hash"], "genesis_time": int64(1692803367), "period": int64(3),
				"public_key": "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",
			},
			"own_input": map[string]any{"party": int64(party), "input": inputsOf(t, v)[party].(map[string]any)["input"], "salt": "pepper", "input_path": path},
		}
	}
	cases := map[string]bundleCase{}
	say := func(name, says string, change func(b map[string]any, c *bundleCase), failed ...string) {
		text, err := json.Marshal(bundleOf(all[0]))
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := canon.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c := bundleCase{Bundle: fresh, Policy: f.policy, Pubkeys: []string{key}, Failed: append([]string{}, failed...), Says: says}
		change(fresh.(map[string]any), &c)
		cases[name] = c
	}
	forge := func(name, says string, change func(b map[string]any), failed ...string) {
		say(name, says, func(b map[string]any, _ *bundleCase) { change(b) }, failed...)
	}
	at := func(b map[string]any, names ...string) map[string]any {
		for _, name := range names {
			b = b[name].(map[string]any)
		}
		return b
	}
	flipHex := func(holder map[string]any, name string) {
		text := []byte(holder[name].(string))
		text[len(text)-1] ^= 1
		if text[len(text)-1] == '`' || text[len(text)-1] == 'g' { // not a hex digit
			text[len(text)-1] = '0'
		}
		holder[name] = string(text)
	}
	inProof := func(edit func(p *checkpoint.Proof)) func(map[string]any) {
		return func(b map[string]any) {
			proof, err := checkpoint.ParseProof([]byte(b["log_proof"].(string)))
			if err != nil {
				t.Fatal(err)
			}
			edit(&proof)
			b["log_proof"] = string(proof.Marshal())
		}
	}
	// line flips one bit of the signature on a line of the checkpoint.
	line := func(n int) func(map[string]any) {
		return inProof(func(p *checkpoint.Proof) {
			text, signatures, _ := strings.Cut(string(p.Note), "\n\n")
			lines := strings.SplitAfter(signatures, "\n")
			at := strings.LastIndex(lines[n], " ") + 1
			raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(lines[n][at:]))
			if err != nil {
				t.Fatal(err)
			}
			raw[len(raw)-1] ^= 1
			lines[n] = lines[n][:at] + base64.StdEncoding.EncodeToString(raw) + "\n"
			p.Note = []byte(text + "\n\n" + strings.Join(lines, ""))
		})
	}
	leaveOut := func(names ...string) func(map[string]any) {
		return func(b map[string]any) {
			for _, name := range names {
				delete(b, name)
			}
		}
	}

	forge("good", "", func(map[string]any) {})
	say("good-by-itself", "", func(_ map[string]any, c *bundleCase) { c.Policy, c.Pubkeys = "", nil })
	say("good-without-checkpoint", "", func(b map[string]any, c *bundleCase) { c.Policy = ""; leaveOut("log_proof")(b) })
	forge("good-without-input", "", leaveOut("own_input"))
	forge("good-as-served", "", func(b map[string]any) { leaveOut("input", "salt")(at(b, "own_input")) })
	say("good-without-witnesses", "", func(_ map[string]any, c *bundleCase) {
		c.Policy = "log " + vkey(logOrigin, checkpoint.TypeEd25519, f.log) + "\nquorum none\n"
	})

	changed := []string{"signature", "key_in_force", "merkle_inclusion"}
	forge("signature", "no key made the certificate", func(b map[string]any) { flipHex(at(b, "certificate"), "signature") }, "signature", "key_in_force")
	forge("certificate-bytes", "does not lead from the certificate", func(b map[string]any) { at(b, "certificate")["mode"] = "sealed" }, append(changed, "log_proof")...)
	forge("result", "the draw gives", func(b map[string]any) {
		result := at(b, "certificate", "result")
		result["winner"] = 1 - result["winner"].(int64)
	}, append(changed, "draw", "log_proof")...)
	forge("beacon-signature", "", func(b map[string]any) { flipHex(at(b, "certificate", "result", "beacon"), "signature") }, append(changed, "draw", "log_proof")...)
	forge("beacon-chain", "the result was not drawn from that", func(b map[string]any) { flipHex(at(b, "beacon"), "chain_hash") }, "beacon_chain")
	forge("tree-head", "no key made the tree head", func(b map[string]any) { flipHex(at(b, "tree_head"), "signature") }, "tree_head_signature", "key_in_force")
	forge("proof-path", "does not lead from the certificate at leaf 3", inProof(func(p *checkpoint.Proof) { p.Path[1][0] ^= 1 }), "log_proof")
	forge("proof-index", "it is of leaf 2, and the certificate of leaf 3", inProof(func(p *checkpoint.Proof) { p.Index = 2 }), "log_proof")
	forge("proof-of-another-deal", "it is of leaf 4, and the certificate of leaf 3", func(b map[string]any) { b["log_proof"] = all[1].proof }, "log_proof")
	forge("proof-unreadable", "not a tlog-proof", func(b map[string]any) { b["log_proof"] = "c2sp.org/tlog-proof@v2\n" }, "log_proof")
	forge("checkpoint-root", "invalid signature", inProof(func(p *checkpoint.Proof) {
		lines := bytes.SplitN(p.Note, []byte("\n"), 4)
		lines[2] = []byte(base64.StdEncoding.EncodeToString(make([]byte, 32)))
		p.Note = bytes.Join(lines, []byte("\n"))
	}), "log_proof", "checkpoint_signature", "witnesses")
	forge("checkpoint-signature", "invalid signature", line(0), "checkpoint_signature", "witnesses")
	forge("checkpoint-second-signature", "invalid signature", line(1), "checkpoint_signature", "witnesses")
	forge("checkpoint-of-another-log", "no signature by a known key", func(b map[string]any) {
		other := newForger(t)
		other.deployment, other.witnesses = f.stranger, f.witnesses
		b["log_proof"] = other.issue(t, other.log, "leaf", cert, another)[0].proof
	}, "checkpoint_signature", "witnesses")
	say("checkpoint-signature-by-itself", "invalid signature", func(b map[string]any, c *bundleCase) { c.Policy, c.Pubkeys = "", nil; line(1)(b) }, "checkpoint_signature")
	forge("cosignature", "invalid signature", line(3), "witnesses")
	forge("cosignature-missing", "the quorum of witnesses is not met", inProof(func(p *checkpoint.Proof) {
		p.Note = p.Note[:bytes.LastIndex(p.Note[:len(p.Note)-1], []byte("\n"))+1]
	}), "witnesses")
	forge("cosignatures-absent", "the bundle has no log_proof", leaveOut("log_proof"), "witnesses")
	say("key-not-trusted", "no key made the certificate", func(_ map[string]any, c *bundleCase) { c.Pubkeys = []string{es256Label(f.stranger)} }, "signature", "tree_head_signature", "key_in_force")
	say("key-retired", "retired at tree size 2", func(b map[string]any, c *bundleCase) {
		c.Policy, c.Pubkeys = "", nil
		b["keys"] = map[string]any{"keys": []any{
			map[string]any{"pubkey": es256Label(f.stranger), "state": "current"},
			map[string]any{"pubkey": key, "state": "retired", "tree_size": int64(2)},
		}}
	}, "key_in_force", "checkpoint_signature")
	forge("fork", "the log is forked", func(b map[string]any) {
		fork := f.issue(t, f.log, "another leaf", cert, another)[0]
		b["log_proof"] = fork.proof
	}, "log_proof")
	forge("own-input", "do not open the commitment of party 1", func(b map[string]any) { at(b, "own_input", "input")["nonce"] = "00" }, "own_input", "input_path")
	forge("own-salt", "do not open the commitment of party 1", func(b map[string]any) { at(b, "own_input")["salt"] = "salt" }, "own_input", "input_path")
	forge("own-salt-missing", "only one of input and salt", func(b map[string]any) { delete(at(b, "own_input"), "salt") }, "own_input")
	forge("own-input-missing", "only one of input and salt", func(b map[string]any) { delete(at(b, "own_input"), "input") }, "own_input")
	forge("own-party", "do not open the commitment of party 0", func(b map[string]any) { at(b, "own_input")["party"] = int64(0) }, "own_input", "input_path")
	forge("own-path", "it does not lead from the input to input_root", func(b map[string]any) {
		at(b, "own_input")["input_path"] = []any{strings.Repeat("0", 64)}
	}, "input_path")
	forge("own-path-missing", "it is missing", func(b map[string]any) { delete(at(b, "own_input"), "input_path") }, "input_path")
	f.seatCases(t, cert, bundleOf, cases)
	forge("version", "bundle_version", func(b map[string]any) { b["bundle_version"] = "2" }, "bundle")
	forge("unknown-member", "note", func(b map[string]any) { b["note"] = "trust me" }, "bundle")
	return cases
}
