package store_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

// What is stored comes back byte for byte: nothing is normalised, trimmed or
// refused for a U+0000.
func TestBytesComeBackAsTheyWere(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	labels := []string{
		"\u00e9", "e\u0301", // one composed, one not
		" a ", "a", "\ufb01", "\u212a", "ß", "\u202eabc", "👩‍👩‍👧", "'; DROP TABLE deals; --", `{"a",b}`, "NULL", `\x00`, strings.Repeat("ü", 100),
	}
	params := []byte("{\"items\":[\"\\u0000\",\"\u00e9\",\"e\u0301\"]}")
	d := b.created(t, func(d *store.Static) {
		d.Labels, d.Params = labels, append(params, 0)
		d.Algorithm, d.ChainHash, d.BeaconRound, d.RoundTime = "random.v1", ptr("00ff"), ptr(int64(7)), ptr(int64(8))
		d.Mode, d.Retention = "open", "purge"
	})
	got, err := b.replica.Static(ctx, d.DealID)
	if err != nil {
		t.Fatal(err)
	}
	if now := b.status(t, d.DealID).Now; got.CreatedAt < now-3600 || got.CreatedAt > now {
		t.Errorf("created at %d, and it is %d", got.CreatedAt, now)
	}
	got.CreatedAt = d.CreatedAt
	if !reflect.DeepEqual(got, d) {
		t.Errorf("read back:\n got %+v\nwant %+v", got, d)
	}

	d = b.created(t, nil)
	commitments := [][32]byte{{}, [32]byte(bytes.Repeat([]byte{0xff}, 32))}
	for p, c := range commitments {
		if ok, err := b.Commit(ctx, d.DealID, p, c, nil); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	b.commit(t, d)
	inputs := [][]byte{[]byte("\x00sealed\x00"), bytes.Repeat([]byte{0xff, 0}, 100_000)}
	for p, sealed := range inputs {
		if ok, err := b.Reveal(ctx, d.DealID, p, sealed, nil); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if read, err := b.SealedInputs(ctx, d.DealID); err != nil || !reflect.DeepEqual(read, inputs) {
		t.Errorf("sealed inputs do not come back: %v", err)
	}
	for p, want := range []string{"sha256:" + strings.Repeat("0", 64), "sha256:" + strings.Repeat("f", 64)} {
		if c, revealed, err := b.Party(ctx, d.DealID, p); err != nil || *c != want || !revealed {
			t.Errorf("party %d: %v, %v, %v", p, c, revealed, err)
		}
	}
	e := b.ending(t, d, deal.Computed)
	e.Result, e.Payload = []byte("{\"\x00\":\"é\"}"), []byte("{\"\x00\":\"é\"}")
	if done, err := b.End(ctx, e); err != nil || !done {
		t.Fatal(done, err)
	}
	if st := b.status(t, d.DealID); !bytes.Equal(st.Result, e.Result) || *st.CertID != *e.CertID || st.Published {
		t.Errorf("the end reads as %+v", st)
	}
	if c, err := b.Certificate(ctx, *e.CertID); err != nil || !bytes.Equal(c.Payload, e.Payload) || c.Signature != nil || c.LeafIndex != nil {
		t.Errorf("the certificate reads as %+v, %v", c, err)
	}
}

func TestCreateDecidesOnTheDatabasesClock(t *testing.T) {
	b := newBench(t)
	d := b.declared(t, func(d *store.Static) { d.CommitDeadline = 1_700_000_000 })
	now, ok, err := b.CreateDeal(t.Context(), d, [][]byte{random32(), random32()}, nil)
	if err != nil || ok || now <= d.CommitDeadline {
		t.Errorf("a deadline in the past: now %d, %v, %v", now, ok, err)
	}
	if _, err := b.Static(t.Context(), d.DealID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a refused deal is there: %v", err)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for what, err := range map[string]error{
		"static":      second(b.Static(ctx, "d_none")),
		"status":      second(b.Status(ctx, "d_none")),
		"standings":   third(b.Standings(ctx, "d_none")),
		"certificate": second(b.Certificate(ctx, "c_none")),
		"token":       third(b.PartyByToken(ctx, random32())),
		"party":       third(b.Party(ctx, "d_none", 0)),
		"round":       third(b.Round(ctx, "00", 1)),
		"replay":      third(b.FindReplay(ctx, random32())),
	} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", what, err)
		}
	}
	// A batch that found nothing leaves its connection fit for use.
	for range 50 {
		if _, _, err := b.Standings(ctx, "d_none"); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
	d := b.created(t, nil)
	if _, standings, err := b.Standings(ctx, d.DealID); err != nil || len(standings) != 2 {
		t.Errorf("%v, %v", standings, err)
	}
}

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

// The first signature stored wins, but one that it names may be replaced while
// there is no leaf; the first leaf stays.
func TestSignatureAndLeaf(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	d := b.created(t, nil)
	e := b.ending(t, d, deal.Void)
	if done, err := b.End(ctx, e); err != nil || !done {
		t.Fatal(done, err)
	}
	set := func(signature string, old *string, want string) {
		t.Helper()
		if err := b.SetSignature(ctx, *e.CertID, signature, old); err != nil {
			t.Fatal(err)
		}
		if c, err := b.Certificate(ctx, *e.CertID); err != nil || c.Signature == nil || *c.Signature != want {
			t.Errorf("after %q over %v: %v, %v; want %q", signature, old, c.Signature, err, want)
		}
	}
	set("first", nil, "first")
	set("second", nil, "first")
	set("second", ptr("other"), "first")
	set("second", ptr("first"), "second")
	for _, index := range []int64{7, 8} {
		if published, err := b.SetLeaf(ctx, *e.CertID, index); err != nil || published != (index == 7) {
			t.Fatalf("leaf %d: published %t, %v", index, published, err)
		}
	}
	if c, err := b.Certificate(ctx, *e.CertID); err != nil || c.LeafIndex == nil || *c.LeafIndex != 7 {
		t.Errorf("leaf %v, %v; want 7", c.LeafIndex, err)
	}
	set("third", ptr("second"), "second")
	if !b.status(t, d.DealID).Published {
		t.Error("a certificate with a leaf is not published")
	}
}

// A beacon round, once kept, is kept for ever as it was.
func TestRounds(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for _, value := range []string{"first", "second"} {
		if err := b.PutRound(ctx, "00", 9, value, value+"'s"); err != nil {
			t.Fatal(err)
		}
	}
	if r, s, err := b.Round(ctx, "00", 9); err != nil || r != "first" || s != "first's" {
		t.Errorf("%q, %q, %v", r, s, err)
	}
	if _, _, err := b.Round(ctx, "01", 9); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the round of another chain: %v", err)
	}
}
