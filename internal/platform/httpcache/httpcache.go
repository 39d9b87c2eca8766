// Package httpcache makes repeated reads cheap: strong entity tags, 304 if the caller
// already has the same bytes (RFC 9110 13.1.2), and gzip.
package httpcache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

// Values of Cache-Control.
const (
	Public  = "public, no-cache"                    // a cache revalidates before every use
	Private = "private, no-cache"                   // for answers that need a credential: not stored by shared caches
	Fixed   = "public, max-age=31536000, immutable" // never revalidated; for paths whose content never changes
)

// smallest is the size in bytes from which an answer is compressed. Compressing a smaller answer
// costs too much: to compress 1.5 kB takes as much time as to serve the request.
const smallest = 4096

// suffix is added to the ETag of a compressed answer, because a strong ETag names exactly one
// sequence of bytes (RFC 9110 8.8.3.3).
const suffix = "-gzip"

const tagBytes = 18 // an ETag holds the first 18 bytes of the body's SHA-256

// compressed wraps a handler and compresses its answers with gzip at the fastest level. For the
// JSON of a deal with 10,000 random commitments, the other levels do not make the answer smaller
// and take ten times as long.
var compressed = func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(smallest), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.SuffixETag(suffix), gzhttp.EnableZstd(false))
	if err != nil {
		panic(err) // cannot happen, because the options above are constant
	}
	return wrap
}()

// Handler adds two headers to each 200 from next for a GET or HEAD: an ETag, and a
// Cache-Control whose value is the parameter control. Other answers, and a 200 that already
// has an ETag, get neither header. If the new ETag matches If-None-Match, Handler answers 304
// instead of 200.
//
// Handler compresses answers. So an answer MUST NOT hold both a secret and another party's
// text: the compressed size would reveal something about the secret (BREACH).
func Handler(control string, next http.Handler) http.HandlerFunc {
	return compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		kept := &answer{header: w.Header()}
		whole := r
		if r.Method == http.MethodHead { // the ETag of a HEAD is that of the GET body, so `next` gets a GET
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

// Tag returns the entity tag of a body, without quotes.
func Tag(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:tagBytes])
}

// Known reads an ETag that a caller sent back. It returns the tag without quotes and
// without the suffix of compressed answers. It returns "" for a text that is not an ETag of
// this package.
func Known(sent string) string {
	tag := strings.TrimSuffix(strings.Trim(strings.TrimPrefix(sent, "W/"), `"`), suffix)
	if sum, err := base64.RawURLEncoding.DecodeString(tag); err != nil || len(sum) != tagBytes {
		return ""
	}
	return tag
}

// match looks for tag, with or without suffix, in the If-None-Match headers by weak comparison
// (RFC 9110 13.1.2). It returns the ETag for the 304, and whether a header matched.
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

// answer is a ResponseWriter that buffers the body, because the ETag header is its hash.
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
	w.WriteHeader(cmp.Or(a.status, http.StatusOK))
	_, _ = w.Write(a.body.Bytes())
}
