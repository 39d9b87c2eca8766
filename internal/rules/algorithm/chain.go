package algorithm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// drand quicknet, whose bundles leave out what everybody knows of it.
const (
	Quicknet     = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
	QuicknetSeed = "f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e"
	QuicknetID   = "quicknet"
)

// ChainHash returns drand's hash of a beacon chain (drand v2, common/chain, Info.Hash): SHA-256(period
// u32be ‖ genesis i64be ‖ public key ‖ genesis seed ‖ beacon id), without the id "default". Key and seed
// are hex. It returns "" if a value is not one of a chain with keys in G2.
func ChainHash(publicKey string, period, genesis int64, genesisSeed, beaconID string) string {
	key, badKey := canon.ParseHex(publicKey, 96)
	seed, badSeed := canon.ParseHex(genesisSeed, 32)
	if badKey != nil || badSeed != nil || period < 1 || period > math.MaxUint32 || genesis < 0 || beaconID == "" {
		return ""
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(period))
	b = binary.BigEndian.AppendUint64(b, uint64(genesis))
	b = append(append(b, key...), seed...)
	if beaconID != "default" {
		b = append(b, beaconID...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
