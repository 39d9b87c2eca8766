package verification

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// Names of the checks of a bundle, in report order. The checks of the bundle's certificate
// follow BundleShape. If the bundle lacks an optional member, the check of that member is
// omitted, with four exceptions. With a policy, Witnesses fails if log_proof is missing, and
// ClosingWitnesses if inputs came from seals and closing is missing.
// OwnInput fails if own_input has only one of input and salt. If own_input has both and the
// certificate has an input_root, InputPath fails if input_path is missing.
const (
	BundleShape         = "bundle"               // the bundle has exactly the specified members, well-formed; if not, no other check follows
	LogProof            = "log_proof"            // the path in log_proof leads from the certificate's entry to the checkpoint's root
	CheckpointSignature = "checkpoint_signature" // a log of the policy signed the checkpoint; without a policy, a deployment key did
	Witnesses           = "witnesses"            // the policy's quorum cosigned the checkpoint; checked only with a policy
	Closing             = "closing"              // the commitments of the certificate, with the seals of the parties, are a leaf under a checkpoint that a trusted key signed
	ClosingWitnesses    = "closing_witnesses"    // the policy's quorum cosigned that checkpoint before the round of the seals; checked only with a policy that demands cosignatures
	BeaconChain         = "beacon_chain"         // the bundle's beacon chain is the one that the result names, and its hash is that of its values if the bundle has them all
	BeaconSignature     = "beacon_signature"     // the beacon signed its round, under the pinned key of drand quicknet or that of the bundle
	OwnInput            = "own_input"            // the party's input and salt open its commitment
	InputPath           = "input_path"           // input_path leads from the party's input and salt to input_root
)

// BundleVersion is the value of bundle_version in a bundle.
const BundleVersion = "1"

var bundleShape = record(map[string]rule{
	"bundle_version": oneOf(BundleVersion),
	"certificate":    object, "tree_head": object, "keys": object,
	"log_proof?":   text,
	"declaration?": declarationShape,
	"beacon?":      beaconShape,
	"closing?":     record(map[string]rule{"beacon": beaconShape, "seal_hashes": array(nullable(hash)), "log_proof": text}),
	"own_input?":   record(map[string]rule{"party": integer, "input?": object, "salt?": anyText, "input_path?": array(hash)}),
	"openings?":    inputsShape,
})

var beaconShape = record(map[string]rule{"chain_hash": hash, "public_key": text, "genesis_time": integer, "period": integer, "genesis_seed?": hash, "beacon_id?": text})

// Trust is what a verifier trusts and knows before it reads the bundle, which may hold more openings.
type Trust struct {
	Known
	Policy *checkpoint.Policy // the trusted logs and witnesses; if nil, witnesses are not checked
}

// VerifyBundle makes every check that the bundle allows.
func VerifyBundle(bundle any, trust Trust) Report {
	r := &Report{Valid: true, seen: seen{policy: trust.Policy}}
	r.bundle(bundle, trust)
	r.judge()
	return *r
}

func (r *Report) bundle(bundle any, trust Trust) {
	misshapen := bundleShape(bundle)
	members, _ := bundle.(map[string]any)
	var named keys.List
	if misshapen == "" {
		var err error
		if named, err = keys.ParsePublished(members["keys"]); err != nil {
			misshapen = "has bad `keys`: " + err.Error()
		}
	}
	if r.add(BundleShape, prefixed("the bundle ", misshapen), ""); misshapen != "" {
		return
	}
	if trust.Keys == nil {
		trust.Keys, r.seen.issuer = named, fromFile
	}
	if r.certificate(Evidence{Known: trust.Known, Certificate: members["certificate"], TreeHead: members["tree_head"]}); r.of == nil {
		return
	}
	c := *r.of
	r.logProof(members, c, trust.Keys, trust.Policy)
	var params map[string]any
	declaration, ok := members["declaration"].(map[string]any)
	closing, _ := members["closing"].(map[string]any)
	declared := ok && r.declared(declaration, closing, c.Payload)
	if declared {
		params, _ = declaration["algorithm_params"].(map[string]any)
	}
	r.closing(members, declared, trust.Keys, trust.Policy)
	r.beaconChain(members["beacon"], c)
	openings := trust.Openings
	openings.Files = slices.Concat(openings.Files, r.ownInput(members["own_input"], c))
	if given, ok := members["openings"]; ok {
		openings.Lists = append([]any{given}, openings.Lists...)
	}
	r.open(openings, params)
	r.beaconSignature(members["beacon"], c)
}

func (r *Report) logProof(members map[string]any, c certificate.Certificate, trusted keys.List, policy *checkpoint.Policy) {
	given, ok := members["log_proof"].(string)
	if !ok {
		if policy != nil {
			r.add(Witnesses, "the bundle has no log_proof, so it contains no cosignatures", "")
		}
		return
	}
	proof, err := checkpoint.ParseProof([]byte(given))
	var signed checkpoint.Checkpoint
	if err == nil {
		signed, err = checkpoint.ParseNote(string(proof.Note))
	}
	if err != nil {
		r.add(LogProof, "log_proof is malformed: "+err.Error(), "")
		return
	}
	head, badHead := readHead(members["tree_head"])
	entry := sha256.Sum256(Signed(members["certificate"].(map[string]any)))
	switch err := proof.VerifyInclusion(entry[:], signed); {
	case proof.Index != c.LogProof.LeafIndex:
		r.add(LogProof, fmt.Sprintf("the proof is for leaf %d, but the certificate is at leaf %d", proof.Index, c.LogProof.LeafIndex), "")
	case err != nil:
		r.add(LogProof, fmt.Sprintf("the path does not lead from the certificate at leaf %d to the root of the checkpoint", proof.Index), "")
	case badHead == "" && head.TreeSize == signed.Size && head.RootHash != hex.EncodeToString(signed.Root[:]):
		r.add(LogProof, "the tree head and the checkpoint have the same size but different roots: the log is forked", "")
	default:
		r.add(LogProof, "", fmt.Sprintf("leaf %d of %d in %s", proof.Index, signed.Size, signed.Origin))
	}
	wrong, good := checkpointSigner(proof.Note, signed, trusted, policy)
	r.add(CheckpointSignature, wrong, good)
	if policy == nil {
		return
	}
	_, cosigned, err := policy.Verify(proof.Note)
	switch {
	case wrong != "":
		r.add(Witnesses, "not checked, because no trusted key signed the checkpoint", "")
	case err != nil:
		r.add(Witnesses, err.Error(), "")
	case !policy.Demands():
		r.add(Witnesses, "", "the policy requires no cosignatures")
	default:
		r.add(Witnesses, "", "cosigned by "+strings.Join(cosigned, ", "))
	}
}

// checkpointSigner checks that a log of the policy signed the checkpoint or, without a policy, a key of
// the deployment that may sign at this tree size. It returns what is wrong, or who signed.
func checkpointSigner(signedNote []byte, c checkpoint.Checkpoint, trusted keys.List, policy *checkpoint.Policy) (wrong, good string) {
	var logs []checkpoint.Key
	if policy != nil {
		logs = append(logs, policy.Logs...)
	}
	ofPolicy := len(logs)
	deployment := map[string]keys.Key{}
	for _, k := range trusted {
		public, err := k.ES256()
		if err != nil {
			continue
		}
		if key, err := checkpoint.ECDSAKey(c.Origin, public); err == nil && !slices.ContainsFunc(logs, func(l checkpoint.Key) bool { return l.String() == key.String() }) {
			deployment[key.String()] = k
			logs = append(logs, key)
		}
	}
	_, signed, err := checkpoint.Open(signedNote, logs, nil)
	if err != nil {
		return err.Error(), ""
	}
	for _, by := range signed {
		of, deployed := deployment[by.String()]
		switch {
		case policy != nil && slices.ContainsFunc(logs[:ofPolicy], func(l checkpoint.Key) bool { return l.String() == by.String() }):
			return "", "signed by " + by.ID() + ", a log of the policy"
		case policy == nil && deployed && of.MaySignLeaf(c.Size-1):
			return "", "signed by the deployment's key " + of.Label + "; no policy was given, so the log's own key was not checked"
		}
	}
	if policy != nil {
		return "no log of the policy signed the checkpoint", ""
	}
	return "a retired key signed the checkpoint, whose size is above the tree_size of that key", ""
}

// ownInput returns the opening in own_input, if it opens the party's commitment, as a list of at most one.
func (r *Report) ownInput(given any, c certificate.Certificate) (opened []timelock.Opening) {
	own, ok := given.(map[string]any)
	if !ok {
		return nil
	}
	party, n := own["party"].(int64), int64(len(c.Parties))
	if party >= n {
		r.add(OwnInput, fmt.Sprintf("own_input names party %d, but the certificate has %d parties, counted from 0", party, n), "")
		return nil
	}
	input, held := own["input"].(map[string]any)
	salt, salted := own["salt"].(string)
	switch {
	case !held && !salted:
		return nil
	case !held || !salted:
		r.add(OwnInput, "own_input has only one of input and salt", "")
		return nil
	}
	leaf, open := opens(c.Parties[party].Commitment, input, salt)
	r.hold(OwnInput, open, fmt.Sprintf("the input and salt do not open the commitment of party %d", party), fmt.Sprintf("of party %d", party))
	if open {
		opened = []timelock.Opening{{DealID: c.DealID, Party: party, Input: input, Salt: salt}}
	}
	rows, proven := own["input_path"].([]any)
	switch {
	case c.InputRoot == nil && proven:
		r.add(InputPath, "own_input has an input_path, but the input_root of the certificate is null", "")
	case c.InputRoot == nil:
	case !proven:
		r.add(InputPath, "own_input has no input_path", "")
	case !open:
		r.add(InputPath, "not checked, because the input and salt do not open the commitment", "")
	default:
		path := make([]string, len(rows))
		for i, row := range rows {
			path[i] = row.(string)
		}
		err := certificate.VerifyInput(leaf, int(party), len(c.Parties), path, *c.InputRoot)
		r.hold(InputPath, err == nil, "input_path does not lead from the input to input_root", fmt.Sprintf("party %d of %d", party, n))
	}
	return opened
}
