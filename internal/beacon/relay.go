package beacon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"
)

// maxBody bounds a relay's answer; a round takes 250 bytes.
const maxBody = 8 << 10

// errNotOut is a relay's word that the round has not come out.
var errNotOut = errors.New("says the round is not out yet")

// relay is one server that passes a chain's rounds on. It can withhold a round;
// it cannot alter one.
type relay struct {
	base string // without a trailing slash
	host string // all that an error shows: a path or a user may hold a secret
}

func newRelay(base string) relay {
	r := relay{base: strings.TrimRight(base, "/"), host: "(relay without a host)"}
	if u, err := url.Parse(base); err == nil && u.Host != "" {
		r.host = u.Host
	}
	return r
}

// CheckRelays refuses a list that no round could come from.
func CheckRelays(relays []string) error {
	if len(relays) == 0 {
		return errors.New("no beacon relay is configured: name at least one, such as https://api.drand.sh")
	}
	for i, base := range relays {
		u, err := url.Parse(base)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("beacon relay %d is not an http or https address without query, such as https://api.drand.sh", i)
		}
	}
	return nil
}

// round asks for one round and verifies the answer. notDue tells that by the
// local clock the round lies ahead: then a 404 means "not out yet" too, which is
// what older drand relays say; else it means that the relay does not carry the
// chain.
func (r relay) round(ctx context.Context, hc *http.Client, chain string, key *bls.G2Affine, round int64, notDue bool) (Round, error) {
	address := r.base + "/" + chain + "/public/" + strconv.FormatInt(round, 10)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Round{}, errors.New("its address is not a URL")
	}
	request.Header.Set("Accept", "application/json")
	response, err := hc.Do(request)
	if err != nil {
		return Round{}, transportError(err)
	}
	defer response.Body.Close()
	switch code := response.StatusCode; {
	case code == http.StatusTooEarly, code == http.StatusNotFound && notDue:
		return Round{}, errNotOut
	case code != http.StatusOK:
		return Round{}, fmt.Errorf("status %d", code)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return Round{}, transportError(err)
	}
	if len(body) > maxBody {
		return Round{}, fmt.Errorf("its answer is over %d bytes", maxBody)
	}
	return parseRound(body, key, round)
}

// transportError drops the address that net/http puts into its errors.
func transportError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", relayTimeout)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// parseRound believes nothing in a relay's answer but a signature that verifies.
// A randomness may be left out, as drand's newer interface does; where it is
// given it must be the right one.
func parseRound(body []byte, key *bls.G2Affine, round int64) (Round, error) {
	var answer struct {
		Round      int64   `json:"round"`
		Randomness *string `json:"randomness"`
		Signature  string  `json:"signature"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Round{}, errors.New("its answer is not the JSON of a round")
	}
	if answer.Round != round {
		return Round{}, fmt.Errorf("it answered round %d", answer.Round)
	}
	signature, err := hex.DecodeString(answer.Signature)
	if err != nil {
		return Round{}, errors.New("its signature is not hex")
	}
	digest, err := verify(key, round, signature)
	if err != nil {
		return Round{}, err
	}
	randomness := hex.EncodeToString(digest[:])
	if answer.Randomness != nil && !strings.EqualFold(*answer.Randomness, randomness) {
		return Round{}, errors.New("its randomness is not the SHA-256 of its signature")
	}
	return Round{Round: round, Randomness: randomness, Signature: hex.EncodeToString(signature)}, nil
}
