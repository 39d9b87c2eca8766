package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

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

// compressors write at the fastest level. The other levels take ten times as long and do not make a deal of
// 10,000 random commitments smaller. One takes over half a megabyte.
var compressors = sync.Pool{New: func() any {
	c, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // cannot happen, because the level is constant
	}
	return c
}}

func compress(body []byte) []byte {
	var b bytes.Buffer
	c := compressors.Get().(*gzip.Writer)
	defer compressors.Put(c)
	c.Reset(&b)
	_, _ = c.Write(body) // a bytes.Buffer takes all
	_ = c.Close()
	return b.Bytes()
}

// prepared is an answer that Cached sends more than once.
type prepared struct {
	body   []byte
	tag    string
	packed func() []byte
}

func prepare(body []byte, tag string) *prepared {
	if tag == "" {
		tag = `"` + Tag(body) + `"`
	}
	return &prepared{body, tag, sync.OnceValue(func() []byte { return compress(body) })}
}

// Cached adds an ETag and a Cache-Control to each 200 from next for a GET or HEAD that has no
// ETag yet, and answers 304 if the ETag matches If-None-Match. It keeps the last public answer, so that it hashes and
// compresses an answer that stays the same once.
//
// Cached compresses answers. So an answer MUST NOT hold both a secret and another party's
// text: the compressed size would reveal something about the secret (BREACH).
func Cached(control string, next http.Handler) http.HandlerFunc {
	var last atomic.Pointer[prepared]
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		if control != CachePrivate { // otherwise `next` takes the ticket once it knows the caller
			if err := budget.From(r.Context()).Hold(r.Context(), budget.MaxSmall); err != nil {
				Error(w, err)
				return
			}
		}
		h := w.Header()
		h.Add("Vary", "Accept-Encoding")
		kept := &answer{header: h, head: r.Method == http.MethodHead}
		whole := r
		if kept.head { // the ETag of a HEAD is that of the GET body, so `next` gets a GET
			whole = r.WithContext(r.Context())
			whole.Method = http.MethodGet
		}
		next.ServeHTTP(kept, whole)
		if kept.status != http.StatusOK || h.Get("ETag") != "" {
			kept.send(w)
			return
		}
		p := last.Load()
		if p == nil || kept.tag != "" || !bytes.Equal(p.body, kept.body) {
			p = prepare(kept.body, kept.tag)
			if control != CachePrivate {
				last.Store(p)
			}
		}
		h.Set("Cache-Control", control)
		if known, ok := Match(r.Header.Values("If-None-Match"), p.tag); ok {
			h.Set("ETag", known)
			h.Del("Content-Type")
			h.Del("Content-Length")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		kept.body = p.body
		h.Set("ETag", p.tag)
		if len(p.body) >= smallest && acceptsGzip(r) {
			h.Set("Content-Encoding", "gzip")
			h.Set("ETag", strings.TrimSuffix(p.tag, `"`)+suffix+`"`)
			kept.body = p.packed()
		}
		kept.send(w)
	}
}

func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}

// Tagged sets the ETag of an answer of Cached, instead of that of its body. An answer whose tag matches, and that
// of a HEAD, then needs no body.
func Tagged(w http.ResponseWriter, tag string) {
	if kept, ok := w.(*answer); ok {
		kept.tag = tag
	}
}

// IsHead reports whether an answer of Cached is for a HEAD.
func IsHead(w http.ResponseWriter) bool {
	kept, ok := w.(*answer)
	return ok && kept.head
}

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

// Match looks for an ETag in the If-None-Match headers by weak comparison (RFC 9110 13.1.2), and returns
// the ETag for the 304.
func Match(headers []string, tag string) (string, bool) {
	weak, opaque := "", tag
	if strings.HasPrefix(tag, "W/") {
		weak, opaque = "W/", tag[2:]
	}
	for known := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		known = strings.TrimPrefix(strings.TrimSpace(known), "W/")
		switch known {
		case "*":
			return tag, true
		case opaque, strings.TrimSuffix(opaque, `"`) + suffix + `"`:
			return weak + known, true
		}
	}
	return "", false
}

// answer is a ResponseWriter that buffers the body, because the ETag header is its hash.
type answer struct {
	header http.Header
	status int
	body   []byte
	tag    string // "": that of the body
	head   bool
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
