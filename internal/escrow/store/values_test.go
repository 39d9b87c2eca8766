package store_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

func TestValuesAreReadBackUnchanged(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	labels := []string{
		"\u00e9", "e\u0301", // é composed and decomposed
		" a ", "a", "\ufb01", "\u212a", "ß", "\u202eabc", "👩‍👩‍👧", "'; DROP TABLE deals; --", `{"a",b}`, "NULL", `\x00`, strings.Repeat("ü", 100),
	}
	params := []byte("{\"items\":[\"\\u0000\",\"\u00e9\",\"e\u0301\"]}\x00")
	d := f.create(t, func(d *store.Declaration) {
		random(d)
		d.Labels, d.Params, d.Mode, d.Retention = labels, params, "open", "purge"
		d.Title, d.Message = "NULL", strings.Repeat("'; \\x00 😀\n\u00e9 e\u0301", 90)
	})
	got, err := f.replica.Declaration(ctx, d.DealID)
	check(t, err)
	if now := f.now(t); got.CreatedAt < now-3600 || got.CreatedAt > now {
		t.Errorf("CreatedAt is %d, want %d to %d", got.CreatedAt, now-3600, now)
	}
	got.CreatedAt = d.CreatedAt
	if !reflect.DeepEqual(got, d) {
		t.Errorf("Declaration:\n got %+v\nwant %+v", got, d)
	}

	d = f.create(t, nil)
	commitments := [][32]byte{{}, [32]byte(bytes.Repeat([]byte{0xff}, 32))}
	inputs := [][]byte{[]byte("\x00sealed\x00"), bytes.Repeat([]byte{0xff, 0}, 700_000)} // the second is larger than maxGroupSize
	for p, c := range commitments {
		attestedBy := []*string{nil, ptr("what the certificate says")}[p]
		stored(t, "commit", true)(f.Commit(ctx, store.Act{DealID: d.DealID, Party: p, Commitment: c, AttestedBy: attestedBy}))
	}
	for p, sealed := range inputs {
		stored(t, "reveal", true)(f.Reveal(ctx, store.Act{DealID: d.DealID, Party: p, Commitment: commitments[p], Sealed: sealed}))
	}
	now := f.snapshot(t, d, store.WithInputs(2))
	for what, by := range map[string][]*string{"with inputs": now.AttestedBy, "attested": f.snapshot(t, d, store.Attested(2)).AttestedBy} {
		if got, want := shownAll(by), []string{"none", "what the certificate says"}; !slices.Equal(got, want) {
			t.Errorf("%s: AttestedBy is %q, want %q", what, got, want)
		}
	}
	if by := f.snapshot(t, d, store.AllParties(2)).AttestedBy; by != nil {
		t.Errorf("AttestedBy, which AllParties does not read, is %q, want nil", shownAll(by))
	}
	if now.Sealed != nil || now.InputBytes != len(inputs[0])+len(inputs[1]) {
		t.Errorf("a snapshot has %d inputs and says %d bytes, want none of these large ones and their length", len(now.Sealed), now.InputBytes)
	}
	var pages [][]byte
	check(t, f.Inputs(t.Context(), d.DealID, 2, func(in store.SealedInput) error {
		pages = append(pages, in.Sealed)
		return nil
	}))
	if !reflect.DeepEqual(pages, inputs) {
		t.Errorf("the %d inputs of Inputs differ from the %d stored ones, want them unchanged", len(pages), len(inputs))
	}
	for p, want := range []string{"sha256:" + strings.Repeat("0", 64), "sha256:" + strings.Repeat("f", 64)} {
		if *now.Parts[p].Commitment != want {
			t.Errorf("the commitment of party %d is %s, want %s", p, *now.Parts[p].Commitment, want)
		}
	}
	e := f.ending(t, d, deal.Computed)
	e.Result, e.Payload = []byte("{\"\x00\":\"é\"}"), []byte("{\"\x00\":\"é\"}")
	did(t, "end", true)(f.End(ctx, e))
	if now := f.current(t, d); !bytes.Equal(now.Result, e.Result) || *now.CertID != *e.CertID || now.Published || *now.ComputedAt != *e.ComputedAt || *now.RevealsClosedAt != *e.RevealsClosedAt {
		t.Errorf("after the end: got %+v, want %+v", now, e)
	}
	f.holds(t, e, nil, nil)
}

func TestTheFirstRoundStands(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for _, value := range []string{"first", "second"} {
		check(t, f.PutRound(ctx, "00", 9, value, value+"'s"))
	}
	if r, s, err := f.Round(ctx, "00", 9); err != nil || r != "first" || s != "first's" {
		t.Errorf("Round = %q, %q, %v; want the first values", r, s, err)
	}
	if _, _, err := f.Round(ctx, "01", 9); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Round of another chain: got error %v, want ErrNotFound", err)
	}
}
