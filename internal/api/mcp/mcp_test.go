package mcp

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func toolNamed(name string) bool {
	return slices.ContainsFunc(tools, func(t tool) bool { return t.name() == name })
}

// SPEC 4.1: there are nine tools, each with all four MCP hints.
func TestToolDescriptions(t *testing.T) {
	if len(tools) != 9 {
		t.Errorf("%d tools, want 9", len(tools))
	}
	for _, tool := range tools {
		t.Run(tool.name(), func(t *testing.T) {
			d, _, err := describe(tool.name())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(instructions, tool.name()) {
				t.Errorf("instructions.md does not name %s", tool.name())
			}
			if d.Title == "" || d.Description == "" || d.Annotations == nil || d.Annotations.DestructiveHint == nil || d.Annotations.OpenWorldHint == nil {
				t.Errorf("got %+v, want title, description and all four hints", d)
			}
			var s jsonschema.Schema
			if err := json.Unmarshal(d.InputSchema.(json.RawMessage), &s); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Resolve(nil); err != nil || s.Type != "object" {
				t.Errorf("the input schema has type %q, error %v, want a valid schema of type object", s.Type, err)
			}
			for _, required := range s.Required {
				if s.Properties[required] == nil {
					t.Errorf("the input schema requires %q but does not define it", required)
				}
			}
			for name, m := range s.Properties {
				if m.Description == "" {
					t.Errorf("the argument %s has no description", name)
				}
				if len(m.Examples) == 0 && len(m.Enum) == 0 {
					t.Errorf("the argument %s has no example", name)
				}
			}
			// An unknown argument is refused, so a client must not offer one.
			if s.AdditionalProperties == nil || s.AdditionalProperties.Not == nil {
				t.Error("the input schema has no additionalProperties: false")
			}
		})
	}
}

func TestErrorsNameTools(t *testing.T) {
	for _, names := range problem.Ops {
		if names.Tool != "" && !toolNamed(names.Tool) {
			t.Errorf("operation %s is rendered as %q, which is not a tool", names.Name, names.Tool)
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
			t.Errorf("Host %q: allowed %t, want %t", host, got, want)
		}
	}
	for origin, want := range map[string]bool{
		"http://localhost:6274": true, "https://fairpact.example": true, "http://[::1]:3": true, "https://OTHER.example:9": true,
		"null": false, "": false, "http://evil.example": false, "https://fairpact.example.evil.example": false, "file://": false, "file://localhost": false,
		"http://localhost@evil.example": false, "http://evil.example/localhost": false, "http://localhost/": false, "localhost": false, "chrome-extension://localhost": false,
	} {
		if got := h.allowOrigin(origin); got != want {
			t.Errorf("Origin %q: allowed %t, want %t", origin, got, want)
		}
	}
	for _, name := range []string{"*", "*.example", "https://fairpact.example", "a b"} {
		if _, err := newHosts([]string{name}); err == nil {
			t.Errorf("newHosts accepts %q, which is not a host name", name)
		}
	}
}

func TestNextStepsNameToolsAndNoTokens(t *testing.T) {
	callText := regexp.MustCompile(`(?m)^Call (\w+) with \{.*\}$`)
	view := func(state deal.State, certID string, parts ...store.PartyStatus) escrow.View {
		d, err := escrow.NewDeal(&store.Declaration{
			DealID: "d", Terms: deal.Terms{Algorithm: "random.v1", Params: []byte("{}"), Labels: []string{"a", "b"}, CommitDeadline: 1, RevealDeadline: 2},
		})
		if err != nil {
			t.Fatal(err)
		}
		v := escrow.View{State: state, Snapshot: &store.Snapshot{Parts: parts}, Deal: d}
		if certID != "" {
			v.CertificateID = &certID
		}
		return v
	}
	commitment := "sha256:00"
	out, in, all := store.PartyStatus{}, store.PartyStatus{Commitment: &commitment}, store.PartyStatus{Commitment: &commitment, Revealed: true}
	for name, c := range map[string]struct {
		got  next
		tool string
	}{
		"key":                          {afterKey(escrow.NewKey{APIKey: "fp_1"}), "create_deal"},
		"catalogue":                    {afterCatalogue, "create_key"},
		"created":                      {afterCreation(escrow.Declared{Terms: deal.Terms{Algorithm: "split.v1"}}, escrow.Created{Invites: []escrow.Invite{{Token: "it_1"}, {Token: "it_2"}}}, true), "commit_input"},
		"hashed":                       {afterHash(escrow.Opening{Salt: strings.Repeat("0", 32)}, nil, nil, commitment), "commit_input"},
		"hashed with a short salt":     {afterHash(escrow.Opening{Salt: "0"}, nil, nil, commitment), "compute_commitment_tool"},
		"committed, others missing":    {afterCommit(escrow.Committed{State: deal.Committing}), "get_deal"},
		"last commitment":              {afterCommit(escrow.Committed{State: deal.Revealing}), "reveal_input"},
		"revealed, others missing":     {afterReveal(escrow.Revealed{State: deal.Revealing}, false), "get_deal"},
		"revealed in a draw":           {afterReveal(escrow.Revealed{State: deal.Revealing}, true), "get_certificate"},
		"last reveal":                  {afterReveal(escrow.Revealed{State: deal.Computed}, false), "get_certificate"},
		"rejected":                     {afterReveal(escrow.Revealed{State: deal.Void}, false), "get_certificate"},
		"view before own commitment":   {afterView(0, view(deal.Committing, "", out, in)), "commit_input"},
		"view of an open deal":         {afterView(0, view(deal.Open, "", out, out)), "commit_input"},
		"view after own commitment":    {afterView(1, view(deal.Committing, "", out, in)), "get_deal"},
		"view by the initiator":        {afterView(-1, view(deal.Committing, "", out, in)), "get_deal"},
		"view before own reveal":       {afterView(0, view(deal.Revealing, "", in, all)), "reveal_input"},
		"view after own reveal":        {afterView(1, view(deal.Revealing, "", in, all)), "get_deal"},
		"view when a draw is due":      {afterView(0, view(deal.Revealing, "", all, all)), "get_certificate"},
		"the same by the initiator":    {afterView(-1, view(deal.Revealing, "", all, all)), "get_deal"},
		"view of an ended deal":        {afterView(0, view(deal.Computed, "", all, all)), "get_certificate"},
		"the same, certificate coming": {afterView(-1, view(deal.Void, "", all, all)), "get_deal"},
		"the same, certificate there":  {afterView(-1, view(deal.Void, "c", all, all)), "verify_certificate"},
		"cancelled":                    {afterView(0, view(deal.Cancelled, "", out, out)), "create_deal"},
		"expired":                      {afterView(0, view(deal.Expired, "", all, all)), "create_deal"},
		"certificate":                  {afterCertificate(escrow.Issued{CertID: "c", Outcome: "VOID"}), "verify_certificate"},
		"verified":                     {afterVerification(escrow.Verification{Valid: true}), ""},
		"forged":                       {afterVerification(escrow.Verification{}), ""},
	} {
		if c.got.Tool != c.tool || c.tool != "" && !toolNamed(c.tool) {
			t.Errorf("%s: next is %q, want %q", name, c.got.Tool, c.tool)
		}
		text := c.got.text()
		if !strings.HasPrefix(text, "NEXT: ") || c.tool != "" && (callText.FindStringSubmatch(text) == nil || callText.FindStringSubmatch(text)[1] != c.tool) {
			t.Errorf("%s: got %q, want NEXT: and a call of %q", name, text, c.tool)
		}
		if strings.Contains(text, "it_1") || strings.Contains(text, "fp_1") {
			t.Errorf("%s repeats a token: %s", name, text)
		}
	}
}

// A party with a declared seat key gets the bytes to sign, signs them, and commits with
// party_key and party_signature.
func TestNextStepsWithASeatKey(t *testing.T) {
	key, strong := "ed25519:ab", strings.Repeat("0", 32)
	d, err := escrow.NewDeal(&store.Declaration{DealID: "d", Terms: deal.Terms{Algorithm: "split.v1", Params: []byte(`{"items":["x"]}`), Labels: []string{"a", "b"}, SeatKeys: []*string{&key, nil}}})
	if err != nil {
		t.Fatal(err)
	}
	view := escrow.View{State: deal.Open, Snapshot: &store.Snapshot{Parts: make([]store.PartyStatus, 2)}, Deal: d}
	created := escrow.Created{DealID: "d"}
	for name, got := range map[string]next{
		"created": afterCreation(escrow.Declared{Terms: deal.Terms{Algorithm: "split.v1", SeatKeys: []*string{&key, nil}}}, created, true),
		"viewed":  afterView(0, view),
	} {
		if got.Tool != "compute_commitment_tool" || got.Arguments["deal_id"] != "d" || got.Arguments["commitment"] == nil || !strings.Contains(got.Why, "party_signature") {
			t.Errorf("%s: got the step %+v, want compute_commitment_tool with deal_id and commitment", name, got)
		}
	}
	if got := afterView(1, view); got.Tool != "commit_input" {
		t.Errorf("without a declared key the step is %+v, want commit_input", got)
	}
	for name, got := range map[string]next{
		"input hashed":     afterHash(escrow.Opening{Salt: strong}, "d", &key, "sha256:00"),
		"commitment given": afterToSign("d", &key, "sha256:00"),
	} {
		if got.Tool != "commit_input" || got.Arguments["deal_id"] != "d" || got.Arguments["party_key"] != key || got.Arguments["party_signature"] == nil || strings.Contains(got.Why, "Leave") {
			t.Errorf("%s: got the step %+v, want commit_input with party_key %s and party_signature", name, got, key)
		}
	}
	if got := afterHash(escrow.Opening{Salt: strong}, "d", nil, "sha256:00"); got.Arguments["deal_id"] != "d" || got.Arguments["party_key"] != nil {
		t.Errorf("without a declared key the step is %+v, want deal_id d and no party_key", got)
	}
	if got := afterHash(escrow.Opening{Salt: "0"}, "d", &key, "sha256:00"); got.Arguments["deal_id"] != "d" || got.Arguments["invite_token"] != yourToken {
		t.Errorf("after a short salt the step is %+v, want deal_id d and an invite token", got)
	}
}

// The placeholder for the input is not JSON, so that an agent cannot send the call unchanged.
func TestNextStepsShowTheShapeOfTheInput(t *testing.T) {
	if text := reveal("d", "why").text(); !strings.Contains(text, `"input":<the object that you committed to>,`) {
		t.Errorf("the step to reveal is %s, want the input as one object", text)
	}
	if form := inputOf("split.v1"); strings.Contains(form, "car") || !strings.Contains(form, `{"valuations":{"<item>":`) {
		t.Errorf("the form of an input is %s, want no items of another deal", form)
	}
	if with, without := afterReveal(escrow.Revealed{State: deal.Revealing}, true).Why, afterReveal(escrow.Revealed{State: deal.Revealing}, false).Why; !strings.Contains(with, "draw") || strings.Contains(without, "draw") || strings.Contains(without, "beacon") {
		t.Errorf("after a reveal with a beacon: %q, without: %q; want the draw only in the first", with, without)
	}
	// A call with the cert_id alone would check what the service stored, not what the agent holds.
	if text := afterCertificate(escrow.Issued{CertID: "c", Outcome: "COMPUTED"}).text(); !strings.HasSuffix(text, "\nCall verify_certificate with {\"certificate\":<this certificate, as received>}") {
		t.Errorf("after get_certificate: %q, want a call that checks the document", text)
	}
}

func TestNextBlockEndsWithTheDeadline(t *testing.T) {
	d := &escrow.Deal{Declaration: &store.Declaration{Terms: deal.Terms{CommitDeadline: 11, RevealDeadline: 22}}}
	round, past := int64(33), int64(1)
	draw := &escrow.Deal{Declaration: &store.Declaration{Terms: deal.Terms{CommitDeadline: 11, RevealDeadline: 22, RoundTime: &round}}}
	early := &escrow.Deal{Declaration: &store.Declaration{Terms: deal.Terms{CommitDeadline: 11, RevealDeadline: 22, RoundTime: &past}}}
	for _, row := range []struct {
		deal  *escrow.Deal
		state deal.State
		want  int64
	}{
		{d, deal.Committing, 11}, {d, deal.Revealing, 22}, {d, deal.Computed, 0}, {d, deal.Void, 0}, {draw, deal.Committing, 11}, {draw, deal.Revealing, 33}, {early, deal.Revealing, 22},
	} {
		if got := deadline(row.deal, row.state); got != row.want {
			t.Errorf("deadline of a deal in %s with the round %v: got %d, want %d", row.state, row.deal.RoundTime, got, row.want)
		}
	}
	for _, step := range []next{afterCommit(escrow.Committed{State: deal.Committing}), afterReveal(escrow.Revealed{State: deal.Revealing}, false)} {
		text := success(result{body: []byte("{}"), next: step, lookAt: 22}, false).Content[1].(*mcp.TextContent).Text
		if last := text[strings.LastIndex(text, "\n")+1:]; !strings.HasPrefix(last, "The deal changes at its next deadline or beacon round (22, in 0 s) at the latest") {
			t.Errorf("the last line is %q, want the deadline 22", last)
		}
	}
}

// The example and the Python program of the instructions compute the same commitments as
// the service. Member names with characters beyond U+FFFF show that the program sorts by
// UTF-16 code units, as RFC 8785 requires.
func TestInstructionsHashRight(t *testing.T) {
	if want := canon.Commitment([]byte(`{"accept":true}`), []byte("00112233445566778899aabbccddeeff")); !strings.Contains(instructions, "gives "+want+".") {
		t.Errorf("the example commitment in the instructions is not %s", want)
	}
	_, rest, found := strings.Cut(instructions, " in Python:\n")
	var program strings.Builder
	program.WriteString("inp = __import__('json').loads(__import__('sys').argv[1])\n")
	for line := range strings.Lines(rest) {
		code, indented := strings.CutPrefix(line, "  ")
		if !indented {
			break
		}
		program.WriteString(code)
	}
	program.WriteString("print(salt, commitment)\n")
	input := `{"valuations":{"ﬁ":3,"😀":1,"a":2},"list":[{"｡":1,"𝒳":{"\uffee":"\u007f\t","𐀀":[]}}]}`
	tree, err := canon.ParseObject([]byte(input))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "python3", "-c", program.String(), input).CombinedOutput()
	salt, commitment, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if want := canon.Commitment(canon.Encode(tree), []byte(salt)); !found || err != nil || commitment != want {
		t.Errorf("the instructions' program (found: %t, error: %v) prints %s, want the commitment %s", found, err, out, want)
	}
}
