package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func guarded(d *e2e.CreatedDeal) map[string][2]string {
	return map[string][2]string{
		"create": {"POST", "/v1/deals"}, "view": {"GET", d.Path("")}, "commit": {"POST", d.Path("/commit")}, "reveal": {"POST", d.Path("/reveal")},
		"entropy": {"POST", d.Path("/entropy")}, "cancel": {"POST", d.Path("/cancel")}, "certificate": {"GET", d.Path("/certificate")}, "inputs": {"GET", d.Path("/inputs")},
		"bundle": {"GET", d.Path("/bundle")}, "declaration": {"GET", d.Path("/declaration")}, "disclose": {"POST", d.Path("/disclose")}, "seals": {"GET", d.Path("/seals")},
	}
}

// SPEC 5.5: a call without a credential gets AUTH_REQUIRED, and the error says which header to send
// and where to get a key. An unknown credential gets INVALID_CREDENTIAL, and the error does not
// repeat the credential.
func TestRefusedCredentials(t *testing.T) {
	c := newClient(t)
	d := c.Create(split())
	for name, call := range guarded(d) {
		for header, code := range map[string]string{
			"":                                  "AUTH_REQUIRED",
			"Bearer":                            "AUTH_REQUIRED",
			"Bearer ":                           "AUTH_REQUIRED",
			"Bearers " + d.Key:                  "AUTH_REQUIRED",
			"Bearer\t" + d.Key:                  "AUTH_REQUIRED",
			"Token Bearer " + d.Key:             "AUTH_REQUIRED",
			"Basic " + d.Key:                    "AUTH_REQUIRED",
			d.Key:                               "AUTH_REQUIRED",
			"Bearer x":                          "INVALID_CREDENTIAL",
			"Bearer fp_unknown":                 "INVALID_CREDENTIAL",
			"Bearer " + d.Key + "x":             "INVALID_CREDENTIAL",
			"Bearer " + d.Key[:40]:              "INVALID_CREDENTIAL",
			"Bearer " + d.Key + " " + d.Key:     "INVALID_CREDENTIAL",
			"Bearer it_" + d.Key[3:]:            "INVALID_CREDENTIAL",
			"Bearer fp_" + d.Tokens[0][3:]:      "INVALID_CREDENTIAL",
			"Bearer " + upperCased(d.Key):       "INVALID_CREDENTIAL",
			"bearer " + upperCased(d.Tokens[0]): "INVALID_CREDENTIAL",
		} {
			var headers []string
			if header != "" {
				headers = []string{"Authorization", header}
			}
			a := c.Refused(401, code, call[0], call[1], "", nil, headers...)
			if a.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: WWW-Authenticate is %q, want Bearer", name, a.Header.Get("WWW-Authenticate"))
			}
			if code == "AUTH_REQUIRED" && (!strings.Contains(a.ErrorText(), "Authorization: Bearer") || !strings.Contains(a.ErrorText(), "POST /v1/keys")) {
				t.Errorf("%s: the error does not name the header Authorization: Bearer and POST /v1/keys: %s", name, a.ErrorText())
			}
			if len(header) > 20 && strings.Contains(a.ErrorText(), header[10:20]) {
				t.Errorf("%s: the error repeats the credential: %s", name, a.ErrorText())
			}
		}
	}
	for _, scheme := range []string{"bearer", "BEARER", "Bearer "} {
		c.Want(200, "GET", d.Path(""), "", nil, "Authorization", scheme+" "+d.Key)
	}
}

func upperCased(s string) string { return s[:3] + strings.ToUpper(s[3:]) }

// A valid credential that does not permit the call gets a 403. For an unknown deal, GET of the view
// and GET of the declaration get a 404, and all other calls get a 403.
func TestPermissions(t *testing.T) {
	c := newClient(t)
	d, other := c.Create(split()), c.Create(split())
	credentials := map[string]string{"key": d.Key, "token": d.Tokens[1], "other key": other.Key, "other token": other.Tokens[1]}
	for name, allowed := range map[string][]string{
		"create": {"key", "other key"}, "view": {"key", "token"}, "commit": {"token"}, "reveal": {"token"}, "entropy": {"key", "token"},
		"cancel": {"key"}, "certificate": {"token"}, "bundle": {"token"}, "inputs": {"token"}, "declaration": {"key", "token"}, "disclose": {"token"}, "seals": {"token"},
	} {
		call := guarded(d)[name]
		for who, token := range credentials {
			// The body is not JSON, so that an allowed call changes nothing.
			a := c.Do(call[0], call[1], token, "no JSON")
			if refused := a.Status == 401 || a.Status == 403 || a.Status == 404; refused == slices.Contains(allowed, who) || refused && (a.Status != 403 || a.Code() != "FORBIDDEN") {
				t.Errorf("%s by the %s: %d %s, want 403 FORBIDDEN unless one of %q calls", name, who, a.Status, a.Body, allowed)
			}
			if name == "create" {
				continue
			}
			want, path := 403, strings.Replace(call[1], d.ID, "d_0000000000000000000000", 1)
			if name == "view" || name == "declaration" {
				want = 404
			}
			if a := c.Do(call[0], path, token, "no JSON"); a.Status != want || want == 404 && a.Code() != "DEAL_NOT_FOUND" {
				t.Errorf("%s of an unknown deal by the %s: %d %s, want %d", name, who, a.Status, a.Body, want)
			}
		}
	}
	if a := c.Do("GET", d.Path("/certificate"), d.Key, nil); !strings.Contains(a.ErrorText(), "party 0") {
		t.Errorf("the certificate by the API key: the error does not name party 0: %s", a.ErrorText())
	}
}

// SPEC 5.4: public calls ignore the credential, even a wrong one.
func TestPublicCallsIgnoreAuthorization(t *testing.T) {
	c := newClient(t)
	for _, header := range []string{"Bearer fp_unknown", "Basic eA=="} {
		for _, call := range [][2]string{{"GET", "/v1/status"}, {"GET", "/v1/algorithms"}, {"POST", "/v1/keys"}, {"GET", "/v1/log/tree-head"}, {"GET", "/openapi.json"}} {
			if a := c.Do(call[0], call[1], "", nil, "Authorization", header); a.Status >= 300 {
				t.Errorf("%s %s with Authorization %q: %d, want success", call[0], call[1], header, a.Status)
			}
		}
		c.Refused(404, "CERT_NOT_FOUND", "GET", "/v1/verify/none", "", nil, "Authorization", header)
	}
}

// SPEC 2.1: a key is fp_ followed by opaque characters. Each call returns a new key.
func TestKeys(t *testing.T) {
	c := newClient(t)
	known := map[string]bool{}
	for _, sent := range []any{nil, "", "{}", `{"any":{"thing":[1]}}`} {
		var k map[string]string
		c.Want(201, "POST", "/v1/keys", "", sent).Into(t, &k)
		if len(k) != 1 || !strings.HasPrefix(k["api_key"], "fp_") || len(k["api_key"]) != 46 || known[k["api_key"]] {
			t.Errorf("POST /v1/keys with body %v: %v, want only a new api_key of fp_ and 43 characters", sent, k)
		}
		known[k["api_key"]] = true
	}
}
