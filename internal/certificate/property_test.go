package certificate

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func anyPayload(t *rapid.T) Payload {
	text := rapid.String()
	moment := rapid.Int64Range(0, 1<<53-1)
	p := Payload{
		CertVersion: Version, CertID: text.Draw(t, "cert_id"), DealID: text.Draw(t, "deal_id"),
		Outcome:   rapid.SampledFrom([]string{Computed, Void}).Draw(t, "outcome"),
		Algorithm: text.Draw(t, "algorithm"), Mode: text.Draw(t, "mode"), Retention: text.Draw(t, "retention"),
		InputRoot:   rapid.Ptr(text, true).Draw(t, "input_root"),
		VoidFlakers: rapid.SliceOfN(rapid.IntRange(0, 9999), 0, 4).Draw(t, "void_flakers"),
		Properties:  rapid.SliceOfN(text, 0, 5).Draw(t, "properties"),
		Timing: Timing{
			moment.Draw(t, "created_at"), rapid.Ptr(moment, true).Draw(t, "commits_closed_at"),
			rapid.Ptr(moment, true).Draw(t, "reveals_closed_at"), rapid.Ptr(moment, true).Draw(t, "computed_at"),
		},
	}
	for i := range rapid.IntRange(2, 5).Draw(t, "parties") {
		p.Parties = append(p.Parties, Party{i, text.Draw(t, "label"), rapid.Ptr(text, true).Draw(t, "commitment"), AttestedByInitiator})
	}
	if p.Outcome == Computed {
		result, err := json.Marshal(map[string]any{text.Draw(t, "member"): text.Draw(t, "value"), "n": moment.Draw(t, "number")})
		if err != nil {
			t.Fatal(err)
		}
		p.Result = result
	}
	return p
}

// The signing bytes are stored. A payload that is read from them has the same ones.
func TestParseAndSigningBytesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, err := anyPayload(t).SigningBytes()
		if err != nil {
			t.Fatal(err)
		}
		read, err := Parse(before)
		if err != nil {
			t.Fatalf("%s: %v", before, err)
		}
		after, err := read.SigningBytes()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, after) {
			t.Fatalf("read and written again:\n got %s\nwant %s", after, before)
		}
	})
}

func changed(s *string) *string {
	if s == nil {
		return ptr("")
	}
	return ptr(*s + "x")
}

func moved(n *int64) *int64 {
	if n == nil {
		return ptr(int64(0))
	}
	return nil
}

// changes has a change of each signed member of SPEC 2.5.
var changes = map[string]func(*Payload){
	"cert_version":        func(p *Payload) { p.CertVersion += "x" },
	"cert_id":             func(p *Payload) { p.CertID += "x" },
	"deal_id":             func(p *Payload) { p.DealID += "x" },
	"outcome":             func(p *Payload) { p.Outcome += "x" },
	"algorithm":           func(p *Payload) { p.Algorithm += "x" },
	"mode":                func(p *Payload) { p.Mode += "x" },
	"retention":           func(p *Payload) { p.Retention += "x" },
	"index":               func(p *Payload) { p.Parties[0].Index++ },
	"label":               func(p *Payload) { p.Parties[0].Label += "x" },
	"commitment":          func(p *Payload) { p.Parties[0].Commitment = changed(p.Parties[0].Commitment) },
	"attested_by":         func(p *Payload) { p.Parties[0].AttestedBy += "x" },
	"party left out":      func(p *Payload) { p.Parties = p.Parties[1:] },
	"party added":         func(p *Payload) { p.Parties = append(p.Parties, Party{}) },
	"input_root":          func(p *Payload) { p.InputRoot = changed(p.InputRoot) },
	"result":              func(p *Payload) { p.Result = json.RawMessage(`{"other":1}`) },
	"void_flakers":        func(p *Payload) { p.VoidFlakers = append(p.VoidFlakers, 3) },
	"void_flakers gone":   func(p *Payload) { p.VoidFlakers = other(p.VoidFlakers) },
	"property added":      func(p *Payload) { p.Properties = append(p.Properties, "x") },
	"created_at":          func(p *Payload) { p.Timing.CreatedAt ^= 1 },
	"commits_closed_at":   func(p *Payload) { p.Timing.CommitsClosedAt = moved(p.Timing.CommitsClosedAt) },
	"reveals_closed_at":   func(p *Payload) { p.Timing.RevealsClosedAt = moved(p.Timing.RevealsClosedAt) },
	"computed_at":         func(p *Payload) { p.Timing.ComputedAt = moved(p.Timing.ComputedAt) },
	"tee_attestation":     func(p *Payload) { p.TEEAttestation = json.RawMessage(`{}`) },
	"parties in disorder": func(p *Payload) { p.Parties[0], p.Parties[1] = p.Parties[1], p.Parties[0] },
}

// other exchanges null and an empty array.
func other(list []int) []int {
	if list == nil {
		return []int{}
	}
	return nil
}

func TestAnyChangeChangesTheEntry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPayload(t)
		before, err := p.SigningBytes()
		if err != nil {
			t.Fatal(err)
		}
		for what, change := range changes {
			q, err := Parse(before)
			if err != nil {
				t.Fatal(err)
			}
			change(&q)
			after, err := q.SigningBytes()
			if err != nil {
				t.Fatal(err)
			}
			if Entry(after) == Entry(before) {
				t.Fatalf("a changed %s does not change the entry: %s", what, after)
			}
		}
	})
}
