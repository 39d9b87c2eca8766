package gcpkms

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

type address struct {
	name      string
	endpoint  string // host:port, empty for Google's own
	plaintext bool   // no TLS and no credentials: an emulator
}

var (
	versionName = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+/cryptoKeyVersions/[1-9][0-9]*$`)
	keyName     = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+/?$`)
)

// parse reads the part of a URI after gcpkms://. Its errors MUST NOT show what may
// be a credential: the value of an option, or text with an '@'.
func parse(text string) (address, error) {
	if strings.Contains(text, "@") {
		return address{}, errors.New("the gcpkms URI holds an '@' (its text is not shown, it may hold a password): it names a key version and takes no credentials; those come from Workload Identity or GOOGLE_APPLICATION_CREDENTIALS")
	}
	name, query, _ := strings.Cut(text, "?")
	a := address{name: name}
	switch {
	case versionName.MatchString(name):
	case keyName.MatchString(name):
		return a, fmt.Errorf("the gcpkms URI names a key and not one version of it: add /cryptoKeyVersions/N, because each version is another key (gcloud kms keys versions list shows them): %q", name)
	default:
		return a, fmt.Errorf("the gcpkms URI names %q: write gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N with a number N", name)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, errors.New("the query of the gcpkms URI does not parse: write ?endpoint=HOST:PORT, &plaintext=true, or both")
	}
	for option, all := range values {
		switch {
		case len(all) == 1 && option == "endpoint" && all[0] != "" && !strings.ContainsAny(all[0], "/@"):
			a.endpoint = all[0]
		case len(all) == 1 && option == "plaintext" && (all[0] == "true" || all[0] == "false"):
			a.plaintext = all[0] == "true"
		default:
			return a, fmt.Errorf("the option %q of the gcpkms URI is unknown, repeated or malformed: write ?endpoint=HOST:PORT and &plaintext=true (an emulator), each once", option)
		}
	}
	if a.plaintext && a.endpoint == "" {
		return a, errors.New("plaintext=true in the gcpkms URI needs endpoint=HOST:PORT: Google's own endpoint requires TLS")
	}
	return a, nil
}
