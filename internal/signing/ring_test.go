package signing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/rules/keys"
)

func newLabels(t *testing.T, n int) (labels, uris []string) {
	t.Helper()
	for range n {
		path := t.TempDir() + "/key.pem"
		labels, uris = append(labels, mustOpen(t, "dev://"+path).PublicKey()), append(uris, "file://"+path)
	}
	return labels, uris
}

func TestSettings(t *testing.T) {
	labels, uris := newLabels(t, 2)
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set := func(label, uri string) string {
		return file(`{"keys":[{"pubkey":"` + label + `","uri":"` + uri + `","signs_from":0}]}`)
	}
	good, held := set(labels[0], uris[0]), mustOpen(t, uris[0])
	for name, c := range map[string]struct {
		settings Settings
		says     []string // parts of the error; nil: Open succeeds
	}{
		"no setting":         {Settings{}, []string{"FAIRPACT_KEY_SET_FILE is not set"}},
		"one key, unnamed":   {Settings{KeySetFile: file(`{"keys":[{"uri":"` + uris[0] + `","signs_from":0},{"pubkey":"` + labels[1] + `"}]}`)}, nil},
		"two keys, unnamed":  {Settings{KeySetFile: file(`{"keys":[{"uri":"` + uris[0] + `","signs_from":0},{"uri":"` + uris[1] + `","signs_from":1}]}`)}, []string{`keys[0] has no "pubkey"`}},
		"file":               {Settings{KeySetFile: good}, nil},
		"no such file":       {Settings{KeySetFile: good + "x"}, []string{"FAIRPACT_KEY_SET_FILE: "}},
		"not a key set":      {Settings{KeySetFile: file("{}")}, []string{"FAIRPACT_KEY_SET_FILE: "}},
		"the URI of another": {Settings{KeySetFile: set(labels[0], uris[1])}, []string{"holds another key, " + labels[1], held.Custody(), labels[0], "correct "}},
		"no key at the URI":  {Settings{KeySetFile: set(labels[0], uris[0]+"x")}, []string{"the key that signs now"}},
	} {
		t.Run(name, func(t *testing.T) {
			ring, set, err := c.settings.Open(t.Context(), slog.New(slog.DiscardHandler))
			switch {
			case len(c.says) > 0:
				for _, part := range c.says {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("open: %v, want %q in the error", err, part)
					}
				}
			case err != nil:
				t.Error(err)
			default:
				defer ring.Close()
				signature, err := ring.Sign(t.Context(), sha256.Sum256(nil))
				if _, wrong := set.SignerOf(nil, signature); err != nil || wrong != nil || ring.Custody(labels[0]) == "" {
					t.Errorf("signature %q, %v; want one that verifies and a custody", signature, err)
				}
			}
		})
	}
}

// OpenRing requires only the key that signs now. If the next key is not open when its signs_from
// comes, Sign returns ErrUnavailable until the key opens. A retired key is never opened.
func TestRing(t *testing.T) {
	labels, uris := newLabels(t, 2)
	gone := newDev(t).PublicKey()
	path := strings.TrimPrefix(uris[1], "file://")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	from := []int64{0, 100, 200}
	set, err := keys.NewSet(keys.List{
		{Label: gone, URI: "file://" + filepath.Join(t.TempDir(), "gone"), SignsFrom: &from[0]},
		{Label: labels[0], URI: uris[0], SignsFrom: &from[1]},
		{Label: labels[1], URI: uris[1], SignsFrom: &from[2]}}, 5)
	if err != nil {
		t.Fatal(err)
	}
	now, clocked := time.Unix(150, 0), NewKeySet(set)
	clocked.now = func() time.Time { return now }
	ring, err := OpenRing(t.Context(), clocked, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ring.end() // stops the background loop; the test calls ring.try instead
	ring.loop.Wait()
	defer ring.Close()
	digest := sha256.Sum256(nil)
	signs := func(label string) {
		t.Helper()
		signature, err := ring.Sign(t.Context(), digest)
		if key, bad := clocked.SignedBy(digest, signature); err != nil || bad != nil || key.Label != label {
			t.Errorf("signed by %s, want %s: %v, %v", key.Label, label, err, bad)
		}
	}
	signs(labels[0])
	untried := newRing(clocked, slog.New(slog.DiscardHandler))
	if _, err := untried.Sign(t.Context(), digest); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), labels[0]+", is not open yet") {
		t.Errorf("Sign with a key that was not opened yet: %v, want ErrUnavailable that names the key", err)
	}
	if err := ring.try(t.Context(), set.At(0)[2]); err == nil {
		t.Error("a key without a file was opened, want an error")
	}
	now = time.Unix(200, 0)
	if _, err := ring.Sign(t.Context(), digest); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), labels[1]) {
		t.Errorf("Sign with a key that could not be opened: %v, want ErrUnavailable that names the key", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := ring.try(t.Context(), set.At(0)[2]); err != nil {
		t.Fatal(err)
	}
	signs(labels[1])

	now = time.Unix(0, 0)
	if _, err := OpenRing(t.Context(), clocked, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "the key that signs now") {
		t.Errorf("OpenRing without the key that signs: %v, want an error that names it", err)
	}
}

// A changed file may add a key. It must keep each key that the process accepts, and a refused file
// changes nothing.
func TestFollow(t *testing.T) {
	labels, uris := newLabels(t, 2)
	document := func(signs ...int) []byte {
		var list []string
		for _, i := range signs {
			list = append(list, fmt.Sprintf(`{"pubkey":%q,"uri":%q,"signs_from":%d}`, labels[i], uris[i], i))
		}
		return []byte(`{"keys":[` + strings.Join(list, ",") + `]}`)
	}
	closed := func(size int) []byte {
		return fmt.Appendf(nil, `{"keys":[{"pubkey":%q,"retired_at":1,"tree_size":%d},{"pubkey":%q,"uri":%q,"signs_from":1}]}`, labels[0], size, labels[1], uris[1])
	}
	settings := Settings{KeySetFile: filepath.Join(t.TempDir(), "keys.json")}
	if err := os.WriteFile(settings.KeySetFile, document(0), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, set, err := settings.Open(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	refused := errors.New("refused")
	var admits error
	file := settings.Follow(ring, func(context.Context, keys.List) error { return admits })
	for _, x := range []struct {
		what     string
		document []byte
		admits   error
		changed  bool
		err      string
		signs    int
	}{
		{"the same", document(0), nil, false, "", 0},
		{"not JSON", []byte("{"), nil, false, "JSON", 0},
		{"refused by the log", document(0, 1), refused, false, "refused", 0},
		{"one key more", document(0, 1), nil, true, "", 1},
		{"without the first key", document(1), nil, false, labels[0], 1},
		{"without the second key", document(0), nil, false, labels[1], 1},
		{"a closed key", closed(5), nil, true, "", 1},
		{"a key closed later", closed(6), nil, false, "reopens", 1},
		{"a key open again", document(0, 1), nil, false, "reopens", 1},
	} {
		admits = x.admits
		changed, err := file.Use(t.Context(), x.document)
		if changed != x.changed || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s: changed %v, %v; want %v, %q", x.what, changed, err, x.changed, x.err)
		}
		signature, err := ring.Sign(t.Context(), sha256.Sum256(nil))
		if key, bad := set.SignedBy(sha256.Sum256(nil), signature); err != nil || bad != nil || key.Label != labels[x.signs] {
			t.Errorf("%s: signed by %s (%v, %v), want %s", x.what, key.Label, err, bad, labels[x.signs])
		}
	}
}
