package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"

	"github.com/fairpact/fairpact/internal/platform/budget"
)

// Values of Cache-Control.
const (
	CachePublic  = "public, no-cache"                    // a cache revalidates before every use
	CachePrivate = "private, no-cache"                   // for answers that need a credential: not stored by shared caches
	CacheFixed   = "public, max-age=31536000, immutable" // never revalidated; for paths whose content never changes
)

// smallest is the size from which an answer is compressed. To compress 1.5 kB takes as long as to
// serve the request.
const smallest = 4096

// suffix makes the ETag of a compressed answer another one (RFC 9110 8.8.3.3).
const suffix = "-gzip"

const tagBytes = 18 // an ETag holds the first 18 bytes of the body's SHA-256

// compressed compresses answers at the fastest level. The other levels take ten times as long and
// do not make a deal of 10,000 random commitments smaller.
var compressed = func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(smallest), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.SuffixETag(suffix), gzhttp.EnableZstd(false))
	if err != nil {
		panic(err) // cannot happen, because the options above are constant
	}
	return wrap
}()

// Cached adds an ETag and a Cache-Control to each 200 from next for a GET or HEAD that has no
// ETag yet, and answers 304 if the ETag matches If-None-Match.
//
// Cached compresses answers. So an answer MUST NOT hold both a secret and another party's
// text: the compressed size would reveal something about the secret (BREACH). HoldsInputs exempts an
// answer.
//
// While a client reads a compressed answer, its call holds that answer, but no compressor: one takes
// over half a megabyte.
func Cached(control string, next http.Handler) http.HandlerFunc {
	serve := compressed(tagged(control, next))
	return func(w http.ResponseWriter, r *http.Request) {
		if control != CachePrivate { // otherwise `next` takes the ticket once it knows the caller
			if err := budget.From(r.Context()).Hold(r.Context(), budget.MaxSmall); err != nil {
				Error(w, err)
				return
			}
		}
		if r.Header.Get("Accept-Encoding") == "" {
			serve(w, r)
			return
		}
		kept := &answer{header: w.Header()}
		serve(kept, r)
		if err := budget.From(r.Context()).Hold(r.Context(), int64(len(kept.body))); err != nil {
			for _, name := range []string{"Content-Encoding", "Content-Length", "ETag"} {
				w.Header().Del(name)
			}
			Error(w, err)
			return
		}
		kept.send(w)
	}
}

func tagged(control string, next http.Handler) http.HandlerFunc {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		tag := Tag(kept.body)
		if w.Header().Get(gzhttp.HeaderNoCompression) == "" {
			w.Header().Set("Cache-Control", control)
		}
		w.Header().Set("ETag", `"`+tag+`"`)
		if known, ok := match(r.Header.Values("If-None-Match"), tag); ok {
			w.Header().Set("ETag", known)
			w.Header().Del("Content-Type")
			w.Header().Del("Content-Length")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		kept.send(w)
	})
}

// HoldsInputs makes Cached not compress an answer, and leave it no-store. The answer still has an ETag.
func HoldsInputs(h http.Header) { h.Set(gzhttp.HeaderNoCompression, "1") }

// Tag returns the entity tag of a body, without quotes.
func Tag(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:tagBytes])
}

// KnownTag returns the Tag in an ETag that a caller sent back, or "" if it is none of this package.
func KnownTag(sent string) string {
	tag := strings.TrimSuffix(strings.Trim(strings.TrimPrefix(sent, "W/"), `"`), suffix)
	if sum, err := base64.RawURLEncoding.DecodeString(tag); err != nil || len(sum) != tagBytes {
		return ""
	}
	return tag
}

// match looks for tag in the If-None-Match headers by weak comparison (RFC 9110 13.1.2), and
// returns the ETag for the 304.
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
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, b...)
	return len(b), nil
}

func (a *answer) send(w http.ResponseWriter) {
	w.WriteHeader(cmp.Or(a.status, http.StatusOK))
	_, _ = w.Write(a.body)
}
