package mcpapi

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/fairpact/fairpact/internal/canon"
)

// The example of the instructions is what every party is to check itself by.
func TestInstructionsHashRight(t *testing.T) {
	want := canon.Commitment([]byte(`{"accept":true}`), []byte("00112233445566778899aabbccddeeff"))
	if !strings.Contains(instructions, "gives "+want+".") {
		t.Errorf("the instructions do not give %s", want)
	}
}

// SPEC 4.1: nine tools; each is described to the last member, with a hint of
// each kind.
func TestToolDescriptions(t *testing.T) {
	if len(tools) != 9 {
		t.Errorf("%d tools, want 9", len(tools))
	}
	for _, tool := range tools {
		t.Run(tool.name, func(t *testing.T) {
			d, err := describe(tool.name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(instructions, tool.name) {
				t.Error("the instructions do not name it")
			}
			if d.Title == "" || d.Description == "" || d.Annotations == nil || d.Annotations.DestructiveHint == nil || d.Annotations.OpenWorldHint == nil {
				t.Errorf("title, description and four hints: %+v", d)
			}
			for name, raw := range map[string]any{"input": d.InputSchema, "output": d.OutputSchema} {
				var s jsonschema.Schema
				if err := json.Unmarshal(raw.(json.RawMessage), &s); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Resolve(nil); err != nil || s.Type != "object" {
					t.Errorf("%s schema: %v", name, err)
				}
				for _, required := range s.Required {
					if s.Properties[required] == nil {
						t.Errorf("%s schema requires %q and does not have it", name, required)
					}
				}
				described(t, name, s.Properties, name == "input")
			}
		})
	}
}

// described requires words for every member, and an example or a closed set of
// values for every argument.
func described(t *testing.T, at string, members map[string]*jsonschema.Schema, arguments bool) {
	for name, m := range members {
		here := at + "." + name
		if m.Description == "" && m.Type != "boolean" {
			t.Errorf("%s has no description", here)
		}
		if arguments && len(m.Examples) == 0 && len(m.Enum) == 0 {
			t.Errorf("%s has no example", here)
		}
		described(t, here, m.Properties, false)
	}
}

// Fixes are written for REST; over MCP they name tools.
func TestFixesNameTools(t *testing.T) {
	for rest, want := range map[string]string{
		"get an API key with POST /v1/keys":                                          "get an API key with create_key",
		"poll GET /v1/deals/d_0-_x until its state is REVEALING":                     "poll get_deal until its state is REVEALING",
		"then call POST /v1/deals/d_0-_x/reveal":                                     "then call reveal_input",
		"call POST /v1/deals/d_x/commit before commit_deadline 7":                    "call commit_input before commit_deadline 7",
		"an invite token (it_…) from POST /v1/deals, unchanged":                      "an invite token (it_…) from create_deal, unchanged",
		"use certificate_id of GET /v1/deals/{id}":                                   "use certificate_id of get_deal",
		"must be one of split.v1, random.v1, shapley.v1 (GET /v1/algorithms)":        "must be one of split.v1, random.v1, shapley.v1 (list_algorithms)",
		"(POST /v1/deals/{id}/entropy), (GET /v1/deals/{id}/certificate)":            "(get_certificate), (get_certificate)",
		"send the same request again with the same Idempotency-Key":                  "send the same request again with the same idempotency_key",
		"check it yourself with the key of GET /v1/status, which no tool stands for": "check it yourself with the key of GET /v1/status, which no tool stands for",
	} {
		if got := inTools(rest); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestHosts(t *testing.T) {
	h, err := newHosts([]string{"fairpact.example", " Other.Example:8443 ", ""})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:1": true, "127.0.0.1": true, "127.0.0.1:8080": true, "127.9.9.9": true,
		"[::1]": true, "[::1]:8080": true, "[::ffff:127.0.0.1]:1": true,
		"fairpact.example": true, "FAIRPACT.example:443": true, "fairpact.example.": true, "other.example": true,
		"": false, "evil.example": false, "fairpact.example.evil.example": false, "evil-fairpact.example": false, "localhost.evil.example": false,
		"0.0.0.0": false, "10.0.0.1": false, "127.0.0.1.evil.example": false, "*": false, "2130706433": false,
	} {
		if got := h.allow(host); got != want {
			t.Errorf("Host %q: %t, want %t", host, got, want)
		}
	}
	for origin, want := range map[string]bool{
		"http://localhost:6274": true, "https://fairpact.example": true, "http://[::1]:3": true, "https://OTHER.example:9": true,
		"null": false, "": false, "http://evil.example": false, "https://fairpact.example.evil.example": false, "file://": false, "file://localhost": false,
		"http://localhost@evil.example": false, "http://evil.example/localhost": false, "http://localhost/": false, "localhost": false, "chrome-extension://localhost": false,
	} {
		if got := h.allowOrigin(origin); got != want {
			t.Errorf("Origin %q: %t, want %t", origin, got, want)
		}
	}
	for _, name := range []string{"*", "*.example", "https://fairpact.example", "a b"} {
		if _, err := newHosts([]string{name}); err == nil {
			t.Errorf("%q is taken for a host name", name)
		}
	}
}

// No next step has a name that is no tool's.
func TestNextStepsNameTools(t *testing.T) {
	known := map[string]bool{}
	for _, tool := range tools {
		known[tool.name] = true
	}
	callText := regexp.MustCompile(`(?m)^Call (\w+) with \{.*\}$`)
	view := func(state string, rest string) []byte {
		return []byte(`{"state":"` + state + `","algorithm":"random.v1","commit_deadline":1,"reveal_deadline":2,` + rest + `}`)
	}
	none := `"parties":[{"label":"a","committed":false,"revealed":false},{"label":"b","committed":true,"revealed":false}]`
	all := `"parties":[{"label":"a","committed":true,"revealed":true},{"label":"b","committed":true,"revealed":true}]`
	for name, c := range map[string]struct {
		got  next
		tool string
	}{
		"key":                          {afterKey([]byte(`{"api_key":"fp_1"}`)), "create_deal"},
		"catalogue":                    {afterCatalogue(), "create_key"},
		"committed, others missing":    {afterCommit("d", "t", []byte(`{"state":"COMMITTING"}`)), "get_deal"},
		"last commitment":              {afterCommit("d", "t", []byte(`{"state":"REVEALING"}`)), "reveal_input"},
		"revealed, others missing":     {afterReveal("d", "t", []byte(`{"state":"REVEALING"}`)), "get_deal"},
		"last reveal":                  {afterReveal("d", "t", []byte(`{"state":"COMPUTED"}`)), "get_certificate"},
		"rejected":                     {afterReveal("d", "t", []byte(`{"state":"VOID"}`)), "get_certificate"},
		"view before own commitment":   {afterView("d", "t", 0, view("COMMITTING", none)), "commit_input"},
		"view after own commitment":    {afterView("d", "t", 1, view("COMMITTING", none)), "get_deal"},
		"view by the initiator":        {afterView("d", "k", -1, view("COMMITTING", none)), "get_deal"},
		"view before own reveal":       {afterView("d", "t", 0, view("REVEALING", none)), "reveal_input"},
		"view when a draw is due":      {afterView("d", "t", 0, view("REVEALING", all)), "get_certificate"},
		"the same by the initiator":    {afterView("d", "k", -1, view("REVEALING", all)), "get_deal"},
		"view of an ended deal":        {afterView("d", "t", 0, view("COMPUTED", all)), "get_certificate"},
		"the same, certificate coming": {afterView("d", "k", -1, view("VOID", all)), "get_deal"},
		"the same, certificate there":  {afterView("d", "k", -1, view("VOID", all+`,"certificate_id":"c"`)), "verify_certificate"},
		"cancelled":                    {afterView("d", "t", 0, view("CANCELLED", none)), "create_deal"},
		"certificate":                  {afterCertificate([]byte(`{"cert_id":"c","outcome":"VOID"}`)), "verify_certificate"},
		"verified":                     {afterVerification([]byte(`{"valid":true}`)), ""},
		"forged":                       {afterVerification([]byte(`{"valid":false}`)), ""},
	} {
		if c.got.Tool != c.tool || c.tool != "" && !known[c.tool] {
			t.Errorf("%s: next is %q, want %q", name, c.got.Tool, c.tool)
		}
		text := c.got.text()
		if !strings.HasPrefix(text, "NEXT: ") || c.tool != "" && (callText.FindStringSubmatch(text) == nil || callText.FindStringSubmatch(text)[1] != c.tool) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
