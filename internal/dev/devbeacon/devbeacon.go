// Package devbeacon is a beacon for local stacks and tests. The beacon has drand
// quicknet's scheme, HTTP interface, genesis and period, and a key that it derives from a
// seed. Anyone who has the seed can compute every round in advance, so use this beacon
// only for development.
package devbeacon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"net/http"
	"strconv"
	"time"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"
	"github.com/consensys/gnark-crypto/ecc/bls12-381/fr"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

const beaconID = "fairpact-development"

// Server answers GET /{chain}/public/{round} as a drand relay does: with the round if it
// is published, or with status 425 if it is not.
type Server struct {
	// Now is the clock that decides which rounds are published. Callers MUST NOT replace
	// Now after the first request.
	Now func() time.Time

	chain  drand.Chain
	secret big.Int
	mux    *http.ServeMux
}

// New returns the beacon of a seed. Equal seeds give equal chains. The genesis seed is
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

	like, genesis := drand.Quicknet(), sha256.Sum256(key[:])
	publicHex, seedHex := hex.EncodeToString(key[:]), hex.EncodeToString(genesis[:])
	hash := algorithm.ChainHash(publicHex, like.Period, like.Genesis, seedHex, beaconID)
	if s.chain, err = drand.ParseChain(hash, publicHex, like.Period, like.Genesis); err == nil {
		s.chain, err = s.chain.Bound(seedHex, beaconID)
	}
	if err != nil {
		panic(err) // only if the scalar is 0
	}

	s.mux.HandleFunc("GET /{chain}/public/{round}", s.public)
	return s
}

// Chain returns the beacon's chain. The caller MUST NOT modify the bytes of PublicKey.
func (s *Server) Chain() drand.Chain { return s.chain }

// Sign returns the 48-byte signature of a round, even before the round is published.
func (s *Server) Sign(round int64) []byte {
	point := drand.Hashed(round)
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
	case err != nil || round < 1 || round > drand.MaxRound || strconv.FormatInt(round, 10) != text: // the last condition refuses +1 and 01
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
