package docs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

func parsed(t *testing.T, text string) any {
	t.Helper()
	v, err := canon.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s is not strict JSON: %v", text, err)
	}
	return v
}

func unhex(t *testing.T, digits string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatalf("%q is not hex: %v", digits, err)
	}
	return raw
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: the code computes\n%s\nwant, as in the document,\n%s", what, got, want)
	}
}

func sum(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestProtocolCanonicalForm(t *testing.T) {
	b := blocks(t, Protocol)
	equal(t, "canonical form", string(canon.Encode(parsed(t, b["canonical-from"]))), b["canonical-to"])
}

type opening struct{ party, input, salt, reading, commitment string }

var openingRow = regexp.MustCompile("(?m)^\\| ([0-9–]) \\| `([^`]+)` \\| (?:`([^`]*)`|\\(empty\\)) \\| ([12]) \\| `([^`]+)` \\|$")

func openings(t *testing.T) []opening {
	t.Helper()
	var all []opening
	for _, m := range openingRow.FindAllStringSubmatch(Protocol, -1) {
		all = append(all, opening{m[1], m[2], m[3], m[4], m[5]})
	}
	if len(all) != 5 || all[0].party != "0" || all[1].party != "1" {
		t.Fatalf("the table of commitments has the rows %+v, want 5 rows beginning with parties 0 and 1", all)
	}
	return all
}

func (o opening) saltBytes(t *testing.T) []byte {
	if o.reading == "2" {
		return unhex(t, o.salt)
	}
	return []byte(o.salt)
}

func TestProtocolCommitments(t *testing.T) {
	for _, o := range openings(t) {
		equal(t, "canonical input", string(canon.Encode(parsed(t, o.input))), o.input)
		equal(t, "commitment", canon.Commitment([]byte(o.input), o.saltBytes(t)), o.commitment)
		if got, ok := canon.Open(o.commitment, []byte(o.input), o.salt); !ok || string(got) != string(o.saltBytes(t)) {
			t.Errorf("input and salt of row %+v do not open its commitment", o)
		}
	}
}

func TestProtocolInputRoot(t *testing.T) {
	r := rows(t, blocks(t, Protocol)["input-root"])
	var leaves [][]byte
	for i, o := range openings(t)[:2] {
		leaf := append([]byte(o.input), o.saltBytes(t)...)
		leaves = append(leaves, leaf)
		equal(t, "leaf hash", sum([]byte{0}, leaf), r[fmt.Sprintf("leaf hash %d", i)])
	}
	equal(t, "input_root", certificate.InputRoot(leaves), r["input_root"])
}

func TestProtocolSeat(t *testing.T) {
	b := blocks(t, Protocol)
	digest := certificate.DeclarationDigest(canon.Encode(parsed(t, b["declaration"])))
	equal(t, "declaration-sha256", digest, rows(t, b["declaration-digest"])["declaration-sha256"])
	by, err := certificate.ParseAttestation(strings.TrimSpace(b["attested-by"]))
	if err != nil {
		t.Fatal(err)
	}
	seat := certificate.Seat{DealID: "d_EXAMPLE", Party: 1, Commitment: openings(t)[0].commitment, Declaration: digest}
	equal(t, "signed bytes", strings.TrimSpace(string(seat.Message(by.Origin))), strings.TrimSpace(b["to-sign"]))
	if err := by.Verify(seat); err != nil {
		t.Error(err)
	}
}

// Package verification and verify.py accept the example certificate and recompute its result.
func TestProtocolCertificate(t *testing.T) {
	b := blocks(t, Protocol)
	cert := parsed(t, b["certificate"]).(map[string]any)
	head := parsed(t, b["tree-head"]).(map[string]any)
	var inputs []any
	for _, o := range openings(t)[:2] {
		inputs = append(inputs, map[string]any{"input": parsed(t, o.input), "salt": o.salt})
	}
	params := map[string]any{"items": []any{"car", "boat"}}
	if !strings.Contains(Protocol, "Params `"+string(canon.Encode(params))+"` and the inputs of section 3") {
		t.Errorf("the document does not name the certificate's params %s", canon.Encode(params))
	}
	report := verification.Verify(verification.Evidence{
		Certificate: cert, TreeHead: head, Params: params,
		Known: verification.Known{Keys: keys.Of(b["pubkey"]), Openings: verification.Openings{Lists: []any{inputs}}},
	})
	if !report.Valid || len(report.Checks) != 12 {
		t.Errorf("the example certificate verifies as %+v, want valid with 12 checks", report)
	}

	payload := map[string]any{}
	for name, v := range cert {
		if name != "signature" && name != "log_proof" {
			payload[name] = v
		}
	}
	signed := canon.Encode(payload)
	equal(t, "signing bytes", string(signed), b["signing-bytes"])
	entry := sha256.Sum256(signed)
	e := rows(t, b["entry"])
	equal(t, "entry", hex.EncodeToString(entry[:]), e["entry"])
	equal(t, "leaf hash", sum([]byte{0}, entry[:]), e["leaf hash"])
	message := canon.Encode(map[string]any{"root_hash": head["root_hash"], "tree_size": head["tree_size"]})
	equal(t, "tree head message", string(message), b["tree-head-message"])

	dir := t.TempDir()
	file := func(name string, v any) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, canon.Encode(v), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	out, err := exec.Command("python3", "../../../e2e/verifier/verify.py", "--certificate", file("c", cert), "--tree-head", file("h", head),
		"--pubkey", b["pubkey"], "--inputs", file("i", inputs), "--params", file("p", params)).CombinedOutput()
	if err != nil {
		t.Errorf("verify.py does not accept the example certificate: %v\n%s", err, out)
	}
}

// Section 8 of protocol.md lists the hashes from the example certificate to the root of the tree
// head.
func TestProtocolInclusion(t *testing.T) {
	b := blocks(t, Protocol)
	var cert certificate.Certificate
	if err := json.Unmarshal([]byte(b["certificate"]), &cert); err != nil {
		t.Fatal(err)
	}
	steps := rows(t, b["inclusion"])
	hash := unhex(t, steps["start"])
	equal(t, "start", steps["start"], rows(t, b["entry"])["leaf hash"])
	fn, sn := cert.LogProof.LeafIndex, cert.LogProof.TreeSize-1
	for i, p := range cert.LogProof.InclusionPath {
		if sn == 0 {
			t.Fatalf("the inclusion path has %d hashes, more than a tree of %d leaves needs", len(cert.LogProof.InclusionPath), cert.LogProof.TreeSize)
		}
		if fn&1 == 1 || fn == sn {
			hash = rfc6962.DefaultHasher.HashChildren(unhex(t, p), hash)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			hash = rfc6962.DefaultHasher.HashChildren(hash, unhex(t, p))
		}
		fn, sn = fn>>1, sn>>1
		equal(t, "step", hex.EncodeToString(hash), steps[fmt.Sprintf("after %d", i+1)])
	}
	head := parsed(t, b["tree-head"]).(map[string]any)
	if sn != 0 || hex.EncodeToString(hash) != head["root_hash"] {
		t.Errorf("the steps end at %x with sn %d, want the root %v with sn 0", hash, sn, head["root_hash"])
	}
}

func TestProtocolDraw(t *testing.T) {
	r := rows(t, blocks(t, Protocol)["draw"])
	round, err := strconv.ParseInt(r["round"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	b := &algorithm.Beacon{ChainHash: r["chain_hash"], Round: round, Randomness: r["randomness"], Signature: r["signature"]}
	if randomness, err := drand.Quicknet().Verify(round, unhex(t, b.Signature)); err != nil || hex.EncodeToString(randomness[:]) != b.Randomness {
		t.Errorf("the example is not round %d of quicknet: %v", round, err)
	}
	equal(t, "u64be", fmt.Sprintf("%016x", round), r["u64be"])
	equal(t, "digest", sum(unhex(t, r["xor"])), r["digest"])
	preimage := unhex(t, r["preimage"])
	equal(t, "preimage", hex.EncodeToString([]byte("fairpact/random.v1\x00"))+r["chain_hash"]+r["u64be"]+r["randomness"]+r["digest"], r["preimage"])
	equal(t, "seed", sum(preimage), r["seed"])
	var labels []string
	var inputs []map[string]any
	for i := range 3 {
		equal(t, "ticket", sum(unhex(t, r["seed"]), []byte{0, 0, 0, byte(i)}), r[fmt.Sprintf("ticket %d", i)])
		labels = append(labels, r[fmt.Sprintf("label %d", i)])
		inputs = append(inputs, map[string]any{"nonce": r[fmt.Sprintf("nonce %d", i)]})
	}
	a, _ := algorithm.Lookup(algorithm.Random)
	result, err := a.Compute(labels, map[string]any{"beacon_round": round}, inputs, b)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Winner      int
		Ticket      string
		NonceDigest string `json:"nonce_digest"`
	}
	if err := json.Unmarshal(result, &got); err != nil {
		t.Fatal(err)
	}
	equal(t, "winner", strconv.Itoa(got.Winner), r["winner"])
	equal(t, "ticket", got.Ticket, r["ticket "+r["winner"]])
	equal(t, "nonce_digest", got.NonceDigest, r["digest"])
}

func TestProtocolResults(t *testing.T) {
	b := blocks(t, Protocol)
	for name, id := range map[string]string{"split-three": algorithm.Split, "shapley-three": algorithm.Shapley} {
		example := parsed(t, b[name]).(map[string]any)
		var labels []string
		for _, label := range example["party_labels"].([]any) {
			labels = append(labels, label.(string))
		}
		var inputs []map[string]any
		for _, input := range example["party_inputs"].([]any) {
			inputs = append(inputs, input.(map[string]any))
		}
		a, _ := algorithm.Lookup(id)
		result, err := a.Compute(labels, example["algorithm_params"].(map[string]any), inputs, nil)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, name, string(result), string(canon.Encode(example["result"])))
	}
}

func TestProtocolChain(t *testing.T) {
	r, q := rows(t, blocks(t, Protocol)["quicknet"]), drand.Quicknet()
	equal(t, "chain hash", q.Hash, r["chain hash"])
	equal(t, "public key", hex.EncodeToString(q.PublicKey), r["public key"])
	equal(t, "period", strconv.FormatInt(q.Period, 10), r["period"])
	equal(t, "genesis", strconv.FormatInt(q.Genesis, 10), r["genesis"])
	if q.RoundTime(7) != q.Genesis+6*q.Period {
		t.Errorf("round 7 is due at %d, want genesis + 6 periods = %d", q.RoundTime(7), q.Genesis+6*q.Period)
	}
	for _, deadline := range []int64{q.Genesis, q.Genesis + 1, q.Genesis + 2, q.Genesis + 3, 1900000000} {
		round := (deadline-q.Genesis)/q.Period + 2
		if due := q.RoundTime(round); due <= deadline || due > deadline+q.Period {
			t.Errorf("the round for the reveal deadline %d is due at %d, want at most %d s later", deadline, due, q.Period)
		}
	}
	if !strings.Contains(Protocol, "`"+drand.DST+"`") {
		t.Errorf("the document does not name the DST %s", drand.DST)
	}
}

// Every hex value of at least 16 digits in protocol.md is in a named block or in the table of
// commitments, which other tests check.
func TestProtocolHexIsChecked(t *testing.T) {
	checked := map[string]bool{}
	long := regexp.MustCompile(`[0-9a-fA-F]{16,}`)
	note := func(text string) {
		for _, digits := range long.FindAllString(text, -1) {
			checked[digits] = true
		}
	}
	for name, block := range blocks(t, Protocol) {
		if name != "" {
			note(block)
		}
	}
	for _, o := range openings(t) {
		note(o.salt + " " + o.commitment)
	}
	for _, digits := range long.FindAllString(Protocol, -1) {
		if !checked[digits] && digits != strconv.FormatInt(canon.MaxInt, 10) {
			t.Errorf("the hex value %s is outside the examples that tests check", digits)
		}
	}
	if len(checked) < 30 {
		t.Errorf("found %d hex values in examples, want at least 30", len(checked))
	}
}

func TestProtocolNames(t *testing.T) {
	flags := certificate.Properties(certificate.Facts{Algorithm: algorithm.Random, Retention: "purge", Revealed: true, Declaration: "HEX"})
	for _, flag := range append(flags, certificate.MissedCommit, certificate.MissedReveal, certificate.Rejected) {
		if !strings.Contains(Protocol, "`"+flag+"`") {
			t.Errorf("protocol.md does not describe the property %s", flag)
		}
	}
	// The string constants in these files of package verification are the names of the checks.
	checks := 0
	for _, file := range []string{"verification.go", "seats.go", "bundle.go"} {
		source, err := os.ReadFile("../../rules/verification/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "(\w+)"`).FindAllSubmatch(source, -1) {
			checks++
			if !strings.Contains(Protocol, "**"+string(m[1])+"**") {
				t.Errorf("protocol.md does not describe the check %s", m[1])
			}
		}
	}
	if checks < 23 {
		t.Errorf("found %d checks, want at least 23: the pattern misses some", checks)
	}
	for _, a := range algorithm.All() {
		if !strings.Contains(Protocol, " "+a.ID+"\n\n"+strconv.Itoa(a.MinParties)+" to ") {
			t.Errorf("protocol.md does not describe %s with at least %d parties", a.ID, a.MinParties)
		}
	}
	full := Full(Deployment{Chain: drand.Quicknet()})
	for _, e := range problem.Table {
		if !strings.Contains(full, "| "+string(e.Code)+" |") {
			t.Errorf("llms-full.txt does not list the error code %s", e.Code)
		}
	}
}
