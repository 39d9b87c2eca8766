package awskms

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

type address struct {
	key      string
	isARN    bool
	region   string // from the ARN or the query; empty if neither names a region
	endpoint string // a URL; empty for the SDK's default
}

const idShape = `(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|mrk-[0-9a-f]{32})`

var (
	keyID       = regexp.MustCompile(`^` + idShape + `$`)
	keyARN      = regexp.MustCompile(`^arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:key/` + idShape + `$`)
	regionShape = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)
)

// parse reads the part of a URI after awskms://. Errors MUST NOT show text that may be a
// credential: the value of an unknown or malformed option, or a URI that contains '@'.
func parse(text string) (address, error) {
	if strings.Contains(text, "@") {
		return address{}, errors.New("the awskms URI contains '@' (the URI is not shown, because it may contain a password): write the URI without credentials; the process gets them from AWS's default chain (IRSA, Pod Identity, the environment)")
	}
	path, query, _ := strings.Cut(text, "?")
	key, slash := strings.CutPrefix(path, "/")
	a := address{key: key}
	if !slash || key == "" {
		return a, fmt.Errorf("the awskms URI has %q after awskms://: write awskms:///KEY with three slashes, where KEY is a key ARN or key id", path)
	}
	arn := keyARN.FindStringSubmatch(key)
	switch {
	case arn != nil:
		a.isARN, a.region = true, arn[1]
	case keyID.MatchString(key):
	case strings.HasPrefix(key, "alias/") || strings.Contains(key, ":alias/"):
		return a, fmt.Errorf("the awskms URI names the alias %q, which may be moved to another key while the service runs: name the key itself by the ARN that `aws kms describe-key` shows", key)
	default:
		return a, fmt.Errorf("the awskms URI names %q, which is neither a key ARN nor a key id: write an ARN (arn:aws:kms:REGION:ACCOUNT:key/ID) or an id (a UUID, or mrk- and 32 hex digits)", key)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, errors.New("the query of the awskms URI does not parse: write ?region=REGION, ?endpoint=https://HOST, or ?region=REGION&endpoint=https://HOST")
	}
	for option, all := range values {
		switch {
		case len(all) == 1 && option == "region" && regionShape.MatchString(all[0]):
			if a.isARN && all[0] != a.region {
				return a, fmt.Errorf("the awskms URI has region=%s, but the key ARN names the region %s: leave region out of the URI", all[0], a.region)
			}
			a.region = all[0]
		case len(all) == 1 && option == "endpoint" && isEndpoint(all[0]):
			a.endpoint = all[0]
		default:
			return a, fmt.Errorf("the option %q of the awskms URI is unknown, repeated or malformed: use only region=REGION and endpoint=https://HOST (a private endpoint or an emulator), each at most once", option)
		}
	}
	return a, nil
}

func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == ""
}
