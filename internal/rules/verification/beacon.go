package verification

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

func (r *Report) beaconChain(given any, c certificate.Certificate) {
	beacon, ok := given.(map[string]any)
	if !ok {
		return
	}
	of, wrong := beacon["chain_hash"].(string), ""
	seed, seeded := beacon["genesis_seed"].(string)
	id, named := beacon["beacon_id"].(string)
	if !seeded && !named && of == algorithm.Quicknet {
		seed, id, seeded = algorithm.QuicknetSeed, algorithm.QuicknetID, true
	}
	bound := of == algorithm.ChainHash(beacon["public_key"].(string), beacon["period"].(int64), beacon["genesis_time"].(int64), seed, id)
	switch {
	case of != shownBeacon(c.Result).ChainHash:
		wrong = "the bundle has the key of beacon chain " + of + ", but the result was not drawn from that chain"
	case (seeded || named) && !bound:
		wrong = "the key and the other values of the beacon in the bundle do not hash to its chain_hash"
	}
	r.seen.bound = bound
	r.add(BeaconChain, wrong, of)
}

// beaconSignature adds the check BeaconSignature: under the pinned key of drand quicknet, or for another
// chain under the key in `given`, the member beacon of the bundle. It adds nothing if nothing was drawn, or
// if the key is not known.
func (r *Report) beaconSignature(given any, c certificate.Certificate) {
	if a, _ := algorithm.Lookup(c.Algorithm); c.Outcome != certificate.Computed || !a.NeedsBeacon {
		return
	}
	drawn, quicknet := shownBeacon(c.Result), drand.Quicknet()
	beacon, bundled := given.(map[string]any)
	chain, name, known := quicknet, "drand quicknet", quicknet.Hash == drawn.ChainHash
	var err error
	switch {
	case !known && !bundled:
		return
	case !known:
		name = "the chain of the bundle, checked with the key in the bundle,"
		chain, err = drand.ParseChain(drawn.ChainHash, beacon["public_key"].(string), beacon["period"].(int64), beacon["genesis_time"].(int64))
	case bundled && beacon["public_key"] != hex.EncodeToString(quicknet.PublicKey):
		err = errors.New("the beacon key in the bundle is not the key of drand quicknet")
	}
	var raw []byte
	if err == nil {
		raw, err = hex.DecodeString(drawn.Signature)
	}
	if err == nil {
		_, err = chain.Verify(drawn.Round, raw)
	}
	if err != nil {
		r.add(BeaconSignature, err.Error(), "")
		return
	}
	if known {
		r.seen.chain = name
	}
	r.add(BeaconSignature, "", fmt.Sprintf("%s signed round %d", name, drawn.Round))
}
