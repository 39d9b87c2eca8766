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
)

// maxBody is the longest answer that a relay may send, in bytes. A round takes about 210.
const maxBody = 8 << 10

var errNotOut = errors.New("the relay says that the round is not out yet")

// relay is the address of a drand relay. It can withhold a round but cannot forge one.
type relay struct {
	base string // without a trailing slash
	host string // shown in errors; the rest of base may contain a secret
}

func newRelay(base string) relay {
	r := relay{base: strings.TrimRight(base, "/"), host: "(relay without a host)"}
	if u, err := url.Parse(base); err == nil && u.Host != "" {
		r.host = u.Host
	}
	return r
}

// CheckRelays returns an error if the list is empty or an address is invalid. The error
// does not contain the address, which may contain a secret.
func CheckRelays(relays []string) error {
	if len(relays) == 0 {
		return errors.New("no beacon relay is configured: name at least one, such as https://api.drand.sh")
	}
	for i, base := range relays {
		u, err := url.Parse(base)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("the beacon relay at index %d is invalid: write an http or https address without query and fragment, such as https://api.drand.sh", i)
		}
	}
	return nil
}

// round asks for one round and verifies the answer. For a round that is not due (by the local
// clock), older drand relays answer 404 instead of 425. Otherwise 404 means that the relay does
// not serve the chain.
func (r relay) round(ctx context.Context, hc *http.Client, chain Chain, round int64, notDue bool) (Round, error) {
	address := r.base + "/" + chain.Hash + "/public/" + strconv.FormatInt(round, 10)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Round{}, errors.New("the relay's address is not a URL")
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
		return Round{}, fmt.Errorf("the answer is over %d bytes", maxBody)
	}
	return parseRound(body, chain, round)
}

// transportError removes the relay's URL from an error, because the URL may contain a secret.
func transportError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", relayTimeout)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// parseRound verifies an answer. If it contains randomness, which drand's newer interface does
// not send, that value MUST be right.
func parseRound(body []byte, chain Chain, round int64) (Round, error) {
	var answer struct {
		Round      int64   `json:"round"`
		Randomness *string `json:"randomness"`
		Signature  string  `json:"signature"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Round{}, errors.New("the answer is not the JSON of a round")
	}
	if answer.Round != round {
		return Round{}, fmt.Errorf("the answer is round %d instead of %d", answer.Round, round)
	}
	signature, err := hex.DecodeString(answer.Signature)
	if err != nil {
		return Round{}, errors.New("the signature is not hex")
	}
	digest, err := chain.Verify(round, signature)
	if err != nil {
		return Round{}, err
	}
	randomness := hex.EncodeToString(digest[:])
	if answer.Randomness != nil && !strings.EqualFold(*answer.Randomness, randomness) {
		return Round{}, errors.New("the randomness is not the SHA-256 of the signature")
	}
	return Round{Round: round, Randomness: randomness, Signature: hex.EncodeToString(signature)}, nil
}
