// Package httpcache makes reads cheap to repeat: a strong entity tag, 304 where
// the caller has the same bytes already (RFC 9110 13.1.2), and gzip.
package httpcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

// Cache-Control of answers that are asked for again with their tag.
const (
	Public  = "public, no-cache"
	Private = "private, no-cache" // what a credential opens: no shared cache keeps it
	Fixed   = "public, max-age=31536000, immutable"
)

// smallest is the size in bytes from which an answer is compressed. Below it
// the processor pays more than the network saves: a certificate of two parties
// has 1.5 kB, and compressing it costs as much as serving it.
const smallest = 4096

// suffix tells the tag of compressed bytes from that of the plain ones: a
// strong tag names one representation (RFC 9110 8.8.3.3).
const suffix = "-gzip"

const tagBytes = 18 // of the body's SHA-256

// The fastest level: of 10,000 commitments, which are random, the others save
// nothing more and take ten times as long.
var compressed = func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(smallest), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.SuffixETag(suffix), gzhttp.EnableZstd(false))
	if err != nil {
		panic(err) // the options above are constant
	}
	return wrap
}()

// Handler gives every 200 that next answers to a GET or HEAD a tag and the
// Cache-Control control; other answers pass as they are, and so does a 200 that
// has a tag. next MUST NOT answer a secret of the caller's beside text that
// somebody else chose: the size of compressed bytes tells of what they hold.
func Handler(control string, next http.Handler) http.HandlerFunc {
	return compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		kept := &answer{header: w.Header()}
		whole := r
		if r.Method == http.MethodHead { // its tag is that of the body that GET would give
			whole = r.WithContext(r.Context())
			whole.Method = http.MethodGet
		}
		next.ServeHTTP(kept, whole)
		if kept.status != http.StatusOK || w.Header().Get("ETag") != "" {
			kept.send(w)
			return
		}
		tag := Tag(kept.body.Bytes())
		w.Header().Set("Cache-Control", control)
		w.Header().Set("ETag", `"`+tag+`"`)
		if known, ok := match(r.Header.Values("If-None-Match"), tag); ok {
			w.Header().Set("ETag", known)
			w.Header().Del("Content-Type")
			w.Header().Del("Content-Length")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		kept.send(w)
	}))
}

// Tag is the tag of a body, as Handler answers it in quotes.
func Tag(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:tagBytes])
}

// Known returns the tag that a caller sent back as it was answered, of compressed
// bytes or of plain ones; empty where it has not the form of one.
func Known(sent string) string {
	tag := strings.TrimSuffix(strings.Trim(strings.TrimPrefix(sent, "W/"), `"`), suffix)
	if sum, err := base64.RawURLEncoding.DecodeString(tag); err != nil || len(sum) != tagBytes {
		return ""
	}
	return tag
}

// match finds the tag, plain or compressed, among those that the caller has.
// The comparison is the weak one (RFC 9110 13.1.2).
func match(headers []string, tag string) (string, bool) {
	for known := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		known = strings.TrimPrefix(strings.TrimSpace(known), "W/")
		switch known {
		case "*":
			return `"` + tag + `"`, true
		case `"` + tag + `"`, `"` + tag + suffix + `"`:
			return known, true
		}
	}
	return "", false
}

// answer keeps what a handler says until its tag is known.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *answer) send(w http.ResponseWriter) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}
