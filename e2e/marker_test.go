package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/internal/localstack"
)

// marker is a planted secret.
type marker struct{ name, text string }

// needles are all the ways in which a marker may show: as it is, in hex, in
// base64 of either alphabet at any offset, each of these in hex once more, as a
// dump shows bytea, and the same for the bytes that a credential or a hex text
// stands for.
func (m marker) needles() (all [][]byte) {
	plain := [][]byte{[]byte(m.text)}
	_, payload, _ := strings.Cut(m.text, "_") // fp_…, it_…
	if raw, err := base64.RawURLEncoding.DecodeString(payload); err == nil && len(raw) >= 16 {
		plain = append(plain, raw)
	}
	if raw, err := hex.DecodeString(m.text); err == nil {
		plain = append(plain, raw)
	}
	for _, p := range plain {
		shown := [][]byte{p, []byte(hex.EncodeToString(p)), bytes.ToUpper([]byte(hex.EncodeToString(p)))}
		for offset := range 3 {
			// The characters that also hold bits of the neighbours are left out.
			for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				text := alphabet.EncodeToString(append(make([]byte, offset), p...))
				shown = append(shown, []byte(text[(offset*8+5)/6:(offset+len(p))*8/6]))
			}
		}
		for _, s := range shown {
			all = append(all, s, []byte(hex.EncodeToString(s)))
		}
	}
	return all
}

// shownIn lists the places that show a marker.
func (m marker) shownIn(places map[string][]byte) (found []string) {
	needles := m.needles()
	for name, place := range places {
		for _, needle := range needles {
			if bytes.Contains(place, needle) {
				found = append(found, name)
				break
			}
		}
	}
	return found
}

// dumped is every table of every schema as COPY shows it, and everything in
// Redis.
func dumped(t testing.TB, stack *localstack.Stack) map[string][]byte {
	t.Helper()
	w := database(t, stack)
	places := map[string][]byte{}
	conn, err := w.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, table := range w.column(`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`) {
		var rows bytes.Buffer
		if _, err := conn.Conn().PgConn().CopyTo(t.Context(), &rows, "COPY (SELECT * FROM "+table+") TO STDOUT"); err != nil {
			t.Fatal(err)
		}
		places["table "+table] = rows.Bytes()
	}
	client := cache(t, stack)
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		value, err := client.Get(t.Context(), key).Bytes()
		if err != nil && err != redis.Nil { // another type than a string
			var text string
			text, err = client.Dump(t.Context(), key).Result()
			value = []byte(text)
		}
		if err != nil && err != redis.Nil {
			t.Fatalf("Redis key %s: %v", key, err)
		}
		places["Redis "+key] = append([]byte(key+"\x00"), value...)
	}
	return places
}

// cache is a client of the stack's Redis.
func cache(t testing.TB, stack *localstack.Stack) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(stack.RedisURL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Every form in which a secret may hide is found.
func TestMarkerIsFound(t *testing.T) {
	m := marker{"token", "it_" + base64.RawURLEncoding.EncodeToString([]byte("thirty-two bytes of a token, yes"))}
	payload, _ := base64.RawURLEncoding.DecodeString(m.text[3:])
	for name, text := range map[string]string{
		"raw":                  "x" + m.text + "y",
		"hex":                  "x" + hex.EncodeToString([]byte(m.text)),
		"upper-case hex":       strings.ToUpper(hex.EncodeToString([]byte(m.text))),
		"payload":              "x" + string(payload) + "y",
		"payload in a bytea":   `\x00` + hex.EncodeToString(payload),
		"base64 in a bytea":    hex.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(m.text)))),
		"base64":               base64.StdEncoding.EncodeToString([]byte(m.text)),
		"base64 at offset 1":   base64.StdEncoding.EncodeToString([]byte("a" + m.text + "bc")),
		"base64 at offset 2":   base64.URLEncoding.EncodeToString([]byte("ab" + m.text + "c")),
		"base64 of a document": base64.StdEncoding.EncodeToString([]byte(`{"token":"` + m.text + `"}`)),
	} {
		if len(m.shownIn(map[string][]byte{name: []byte(text)})) == 0 {
			t.Errorf("the token is not found in %s: %s", name, text)
		}
	}
	other := marker{"another", "it_" + base64.RawURLEncoding.EncodeToString([]byte("thirty-two bytes of a token, no!"))}
	if found := other.shownIn(map[string][]byte{"raw": []byte(m.text)}); found != nil {
		t.Error("another token is found as well")
	}
}
