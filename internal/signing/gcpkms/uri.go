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
	endpoint  string // host:port; empty for Google's own endpoint
	plaintext bool   // true: no TLS and no credentials, for an emulator
}

var (
	versionName = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+/cryptoKeyVersions/[1-9][0-9]*$`)
	keyName     = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+/?$`)
)

// parse reads the part of a URI after gcpkms://. Errors MUST NOT show text that may be a
// credential: the value of an option, or a URI that contains '@'.
func parse(text string) (address, error) {
	if strings.Contains(text, "@") {
		return address{}, errors.New("the gcpkms URI contains '@' (the URI is not shown, because it may contain a password): write the URI without credentials; the process gets them from Workload Identity or GOOGLE_APPLICATION_CREDENTIALS")
	}
	name, query, _ := strings.Cut(text, "?")
	a := address{name: name}
	switch {
	case versionName.MatchString(name):
	case keyName.MatchString(name):
		return a, fmt.Errorf("the gcpkms URI names the key %q without a version, but each version has its own key pair: add /cryptoKeyVersions/N with a version number N that `gcloud kms keys versions list` shows", name)
	default:
		return a, fmt.Errorf("the gcpkms URI names %q, which is not a key version: write gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N, where N is the number of the version", name)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, errors.New("the query of the gcpkms URI does not parse: write ?endpoint=HOST:PORT, or for an emulator ?endpoint=HOST:PORT&plaintext=true")
	}
	for option, all := range values {
		switch {
		case len(all) == 1 && option == "endpoint" && all[0] != "" && !strings.ContainsAny(all[0], "/@"):
			a.endpoint = all[0]
		case len(all) == 1 && option == "plaintext" && (all[0] == "true" || all[0] == "false"):
			a.plaintext = all[0] == "true"
		default:
			return a, fmt.Errorf("the option %q of the gcpkms URI is unknown, repeated or malformed: use only endpoint=HOST:PORT and plaintext=true (only for an emulator), each at most once", option)
		}
	}
	if a.plaintext && a.endpoint == "" {
		return a, errors.New("the gcpkms URI has plaintext=true without endpoint=HOST:PORT, but Google's own endpoint requires TLS: add the endpoint of the emulator, or leave plaintext out")
	}
	return a, nil
}
