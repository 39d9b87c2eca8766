// Package devbeacon is a beacon for local stacks and tests. The beacon has drand
// quicknet's scheme, HTTP interface, genesis and period, and a key that it derives from a
// seed. Anyone who has the seed can compute every round in advance, so use this beacon
// only for development.
package devbeacon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"net/http"
	"strconv"
	"time"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"
	"github.com/consensys/gnark-crypto/ecc/bls12-381/fr"

	"github.com/fairpact/fairpact/internal/beacon"
)

const beaconID = "fairpact-development"

// Server answers GET /{chain}/public/{round} as a drand relay does: with the round if it
// is published, or with status 425 if it is not.
type Server struct {
	// Now is the clock that decides which rounds are published. Callers MUST NOT replace
	// Now after the first request.
	Now func() time.Time

	chain  beacon.Chain
	secret big.Int
	mux    *http.ServeMux
}

// New returns the beacon of a seed. Equal seeds give equal chains. The group hash is
// SHA-256(public key).
func New(seed []byte) *Server {
	scalar, err := fr.Hash(seed, []byte("fairpact/devbeacon.v1"), 1)
	if err != nil {
		panic(err) // only if the domain separation tag is longer than 255 bytes
	}
	s := &Server{Now: time.Now, mux: http.NewServeMux()}
	scalar[0].BigInt(&s.secret)
	var public bls.G2Affine
	public.ScalarMultiplicationBase(&s.secret)
	key := public.Bytes()

	like, group := beacon.Quicknet(), sha256.Sum256(key[:])
	hash := InfoHash(like.Period, like.Genesis, key[:], group[:], beaconID)
	if s.chain, err = beacon.ParseChain(hex.EncodeToString(hash[:]), hex.EncodeToString(key[:]), like.Period, like.Genesis); err != nil {
		panic(err) // only if the scalar is 0
	}

	s.mux.HandleFunc("GET /{chain}/public/{round}", s.public)
	return s
}

// Chain returns the beacon's chain. The caller MUST NOT modify the bytes of PublicKey.
func (s *Server) Chain() beacon.Chain { return s.chain }

// Sign returns the 48-byte signature of a round, even before the round is published.
func (s *Server) Sign(round int64) []byte {
	message := beacon.Message(round)
	point, err := bls.HashToG1(message[:], []byte(beacon.DST))
	if err != nil {
		panic(err) // only if the domain separation tag is longer than 255 bytes
	}
	point.ScalarMultiplication(&point, &s.secret)
	signature := point.Bytes()
	return signature[:]
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) public(w http.ResponseWriter, r *http.Request) {
	text := r.PathValue("round")
	round, err := strconv.ParseInt(text, 10, 64)
	switch {
	case r.PathValue("chain") != s.chain.Hash:
		http.Error(w, "unknown chain", http.StatusNotFound)
	case err != nil || round < 1 || round > beacon.MaxRound || strconv.FormatInt(round, 10) != text: // the last condition refuses +1 and 01
		http.Error(w, "no such round", http.StatusNotFound)
	case round > s.chain.RoundAt(s.Now().Unix()):
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "this round is not out yet", http.StatusTooEarly)
	default:
		signature := s.Sign(round)
		randomness := sha256.Sum256(signature)
		w.Header().Set("Content-Type", "application/json")
		// An error means that the client left.
		_ = json.NewEncoder(w).Encode(map[string]any{
			"round":      round,
			"randomness": hex.EncodeToString(randomness[:]),
			"signature":  hex.EncodeToString(signature),
		})
	}
}

// InfoHash returns drand's chain hash: SHA-256(period u32be ‖ genesis i64be ‖ public
// key ‖ group hash ‖ beacon id). A relay lists these values at /{chain}/info. The
// beacon id is left out if it is "default" (drand v2, common/chain, Info.Hash).
func InfoHash(period, genesis int64, publicKey, groupHash []byte, beaconID string) [32]byte {
	var b []byte
	b = binary.BigEndian.AppendUint32(b, uint32(period))
	b = binary.BigEndian.AppendUint64(b, uint64(genesis))
	b = append(b, publicKey...)
	b = append(b, groupHash...)
	if beaconID != "default" {
		b = append(b, beaconID...)
	}
	return sha256.Sum256(b)
}
