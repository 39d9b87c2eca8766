// Package devbeacon is a beacon of one's own for local stacks and tests: drand's
// scheme, HTTP interface, genesis and period, under a key derived from a seed.
// Whoever has the seed knows every round in advance, so it is for development
// alone.
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

	"github.com/fairpact/fairpact/internal/beacon"
)

// beaconID is the name of the chain in its info; it goes into the chain hash.
const beaconID = "fairpact-development"

// Server answers as a drand relay does:
//
//	GET /chains                   the one chain hash, in a list
//	GET /{chain}/info             the chain's parameters
//	GET /{chain}/public/{round}   any round that is out; 425 for a later one
//	GET /{chain}/public/latest    the newest round
type Server struct {
	// Now is the clock that says which rounds are out. Set it, if at all, before
	// the first request.
	Now func() time.Time

	chain     beacon.Chain
	groupHash [32]byte
	secret    big.Int
	mux       *http.ServeMux
}

// New makes the beacon of a seed: equal seeds give equal chains, in every
// process. The chain hash is computed as drand computes its own
// (beacon.InfoHash), with SHA-256(public key) in the place of the group hash.
func New(seed []byte) *Server {
	scalar, err := fr.Hash(seed, []byte("fairpact/devbeacon.v1"), 1)
	if err != nil {
		panic(err) // only for a domain separation tag over 255 bytes
	}
	s := &Server{Now: time.Now, mux: http.NewServeMux()}
	scalar[0].BigInt(&s.secret)
	var public bls.G2Affine
	public.ScalarMultiplicationBase(&s.secret)
	key := public.Bytes()

	s.chain = beacon.Quicknet()
	s.chain.PublicKey = key[:]
	s.groupHash = sha256.Sum256(key[:])
	hash := beacon.InfoHash(s.chain.Period, s.chain.Genesis, key[:], s.groupHash[:], beaconID)
	s.chain.Hash = hex.EncodeToString(hash[:])

	s.mux.HandleFunc("GET /chains", s.chains)
	s.mux.HandleFunc("GET /{chain}/info", s.ofChain(s.info))
	s.mux.HandleFunc("GET /{chain}/public/{round}", s.ofChain(s.public))
	return s
}

// Chain is what a client of this beacon pins.
func (s *Server) Chain() beacon.Chain {
	chain := s.chain
	chain.PublicKey = append([]byte(nil), chain.PublicKey...)
	return chain
}

// Sign gives the signature of a round, 48 bytes, whether it is out or not.
func (s *Server) Sign(round int64) []byte {
	message := beacon.Message(round)
	point, err := bls.HashToG1(message[:], []byte(beacon.DST))
	if err != nil {
		panic(err) // only for a domain separation tag over 255 bytes
	}
	point.ScalarMultiplication(&point, &s.secret)
	signature := point.Bytes()
	return signature[:]
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// ofChain answers 404 for any chain but this one.
func (s *Server) ofChain(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("chain") != s.chain.Hash {
			http.Error(w, "unknown chain", http.StatusNotFound)
			return
		}
		next(w, r)
	}
}

func (s *Server) chains(w http.ResponseWriter, _ *http.Request) {
	answer(w, []string{s.chain.Hash})
}

func (s *Server) info(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{
		"public_key":   hex.EncodeToString(s.chain.PublicKey),
		"period":       s.chain.Period,
		"genesis_time": s.chain.Genesis,
		"hash":         s.chain.Hash,
		"groupHash":    hex.EncodeToString(s.groupHash[:]),
		"schemeID":     "bls-unchained-g1-rfc9380",
		"metadata":     map[string]string{"beaconID": beaconID},
	})
}

func (s *Server) public(w http.ResponseWriter, r *http.Request) {
	newest := s.chain.RoundAt(s.Now().Unix())
	text := r.PathValue("round")
	round, err := strconv.ParseInt(text, 10, 64)
	if text == "latest" {
		round, err = max(newest, 1), nil
	} else if strconv.FormatInt(round, 10) != text {
		round = 0 // such as 01 or +1
	}
	switch {
	case err != nil || round < 1 || round > beacon.MaxRound:
		http.Error(w, "no such round", http.StatusNotFound)
	case round > newest:
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "this round is not out yet", http.StatusTooEarly)
	default:
		signature := s.Sign(round)
		randomness := sha256.Sum256(signature)
		answer(w, map[string]any{
			"round":      round,
			"randomness": hex.EncodeToString(randomness[:]),
			"signature":  hex.EncodeToString(signature),
		})
	}
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	// An error here is a client that went away: there is nobody to tell.
	_ = json.NewEncoder(w).Encode(body)
}
