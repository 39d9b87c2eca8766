package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// The calls that want a credential.
func guarded(d *e2e.Dealt) map[string][2]string {
	return map[string][2]string{
		"create": {"POST", "/v1/deals"}, "view": {"GET", d.Path("")}, "commit": {"POST", d.Path("/commit")}, "reveal": {"POST", d.Path("/reveal")},
		"entropy": {"POST", d.Path("/entropy")}, "cancel": {"POST", d.Path("/cancel")}, "certificate": {"GET", d.Path("/certificate")}, "inputs": {"GET", d.Path("/inputs")},
	}
}

// SPEC 5.5: a missing credential is AUTH_REQUIRED, with the header to pass and
// where to get a key; so is one of another scheme. One that nobody was given is
// INVALID_CREDENTIAL.
func TestCredentialsThatAreNone(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	for name, call := range guarded(d) {
		for header, code := range map[string]string{
			"":                                 "AUTH_REQUIRED",
			"Bearer":                           "AUTH_REQUIRED",
			"Bearer ":                          "AUTH_REQUIRED",
			"Basic " + d.Key:                   "AUTH_REQUIRED",
			"Token " + d.Key:                   "AUTH_REQUIRED",
			"Bearers " + d.Key:                 "AUTH_REQUIRED",
			d.Key:                              "AUTH_REQUIRED",
			"Bearer x":                         "INVALID_CREDENTIAL",
			"Bearer fp_":                       "INVALID_CREDENTIAL",
			"Bearer it_":                       "INVALID_CREDENTIAL",
			"Bearer fp_unknown":                "INVALID_CREDENTIAL",
			"Bearer it_unknown":                "INVALID_CREDENTIAL",
			"Bearer " + d.Key + "x":            "INVALID_CREDENTIAL",
			"Bearer " + d.Key[:40]:             "INVALID_CREDENTIAL",
			"Bearer " + d.Key + " " + d.Key:    "INVALID_CREDENTIAL",
			"Bearer " + strings.ToUpper(d.Key): "INVALID_CREDENTIAL",
			"Bearer it_" + d.Key[3:]:           "INVALID_CREDENTIAL",
			"Bearer fp_" + d.Tokens[0][3:]:     "INVALID_CREDENTIAL",
		} {
			var headers []string
			if header != "" {
				headers = []string{"Authorization", header}
			}
			a := c.Refused(401, code, call[0], call[1], "", nil, headers...)
			if a.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: WWW-Authenticate %q", name, a.Header.Get("WWW-Authenticate"))
			}
			if code == "AUTH_REQUIRED" && (!strings.Contains(a.ErrorText(), "Authorization: Bearer") || !strings.Contains(a.ErrorText(), "POST /v1/keys")) {
				t.Errorf("%s does not teach: %s", name, a.ErrorText())
			}
			if len(header) > 20 && strings.Contains(a.ErrorText(), header[10:20]) {
				t.Errorf("%s shows the credential: %s", name, a.ErrorText())
			}
		}
	}
}

// The scheme's name is case-insensitive.
func TestBearerInAnyCase(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	for _, scheme := range []string{"Bearer", "bearer", "BEARER", "bEaReR", "Bearer "} {
		c.Want(200, "GET", d.Path(""), "", nil, "Authorization", scheme+" "+d.Key)
		c.Want(200, "GET", d.Path(""), "", nil, "Authorization", scheme+" "+d.Tokens[1])
	}
}

// Who may do what: 403 where a valid credential is not for the call, 404 for an
// unknown deal on GET of the deal alone.
func TestPermissions(t *testing.T) {
	c := surfaceClient(t)
	d, other := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour)), c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	const allowed = 0
	for name, status := range map[string]map[string]int{
		//                own key, own token, another's key, another's token
		"create":      {"key": allowed, "token": 403, "key of another": allowed, "token of another": 403},
		"view":        {"key": allowed, "token": allowed, "key of another": 403, "token of another": 403},
		"commit":      {"key": 403, "token": allowed, "key of another": 403, "token of another": 403},
		"reveal":      {"key": 403, "token": allowed, "key of another": 403, "token of another": 403},
		"entropy":     {"key": allowed, "token": allowed, "key of another": 403, "token of another": 403},
		"cancel":      {"key": allowed, "token": 403, "key of another": 403, "token of another": 403},
		"certificate": {"key": 403, "token": allowed, "key of another": 403, "token of another": 403},
		"inputs":      {"key": 403, "token": allowed, "key of another": 403, "token of another": 403},
	} {
		for who, token := range map[string]string{"key": d.Key, "token": d.Tokens[1], "key of another": other.Key, "token of another": other.Tokens[1]} {
			call := guarded(d)[name]
			// A body that is no JSON shows that the caller came past 403.
			a := c.Do(call[0], call[1], token, "no JSON")
			if refused := a.Status == 401 || a.Status == 403 || a.Status == 404; refused != (status[who] != allowed) || refused && (a.Status != 403 || a.Code() != "FORBIDDEN") {
				t.Errorf("%s by the %s: %d %s", name, who, a.Status, a.Body)
			}
			if name == "create" {
				continue
			}
			path := strings.Replace(call[1], d.ID, "d_0000000000000000000000", 1)
			if want, a := map[bool]int{true: 404, false: 403}[name == "view"], c.Do(call[0], path, token, "no JSON"); a.Status != want {
				t.Errorf("%s of an unknown deal by the %s: %d %s, want %d", name, who, a.Status, a.Body, want)
			}
		}
	}
	c.Refused(404, "DEAL_NOT_FOUND", "GET", "/v1/deals/none", d.Tokens[0], nil)
	c.Refused(404, "CERT_NOT_FOUND", "GET", "/v1/verify/none", "", nil)
	// The certificate of one's own deal by the key that made it: told what to use.
	if a := c.Do("GET", d.Path("/certificate"), d.Key, nil); !strings.Contains(a.ErrorText(), "party 0") {
		t.Errorf("the initiator is not told which token to use: %s", a.ErrorText())
	}
}

// SPEC 5.4: what is public looks at no credential, not even at a bad one.
func TestPublicCallsIgnoreAuthorization(t *testing.T) {
	c := surfaceClient(t)
	for _, header := range []string{"", "Bearer fp_unknown", "Basic eA==", "Bearer"} {
		for _, call := range [][2]string{{"GET", "/v1/status"}, {"GET", "/v1/algorithms"}, {"POST", "/v1/keys"}, {"GET", "/v1/log/tree-head"}, {"GET", "/openapi.json"}} {
			if a := c.Do(call[0], call[1], "", nil, "Authorization", header); a.Status >= 300 {
				t.Errorf("%s %s with %q: %d", call[0], call[1], header, a.Status)
			}
		}
		c.Refused(404, "CERT_NOT_FOUND", "GET", "/v1/verify/none", "", nil, "Authorization", header)
	}
}

// SPEC 2.1: fp_ and opaque characters; each call gives another.
func TestKeys(t *testing.T) {
	c := surfaceClient(t)
	known := map[string]bool{}
	for _, sent := range []any{nil, "", "{}", `{"any":{"thing":[1]}}`} {
		var k map[string]string
		c.Want(201, "POST", "/v1/keys", "", sent).Into(t, &k)
		if len(k) != 1 || !strings.HasPrefix(k["api_key"], "fp_") || len(k["api_key"]) != 46 || known[k["api_key"]] {
			t.Errorf("%v: %v", sent, k)
		}
		known[k["api_key"]] = true
	}
	if a := c.Do(http.MethodGet, "/v1/keys", "", nil); a.Status != 405 {
		t.Errorf("GET: %d", a.Status)
	}
}
