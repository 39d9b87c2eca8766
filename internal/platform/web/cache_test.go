package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func ask(h http.Handler, method string, header ...string) *http.Response {
	r := httptest.NewRequest(method, "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func says(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

var large = `{"text":"` + strings.Repeat("commitment ", 1000) + `"}`

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheSameBytesAreNotSentAgain(t *testing.T) {
	h := Cached(CachePrivate, says(200, `{"a":1}`))
	first := ask(h, "GET")
	tag := first.Header.Get("ETag")
	if first.StatusCode != 200 || text(t, first.Body) != `{"a":1}` || len(tag) != 26 || first.Header.Get("Cache-Control") != CachePrivate {
		t.Fatalf("the first GET: %d with %v, want 200 with a tag and %s", first.StatusCode, first.Header, CachePrivate)
	}
	if other := ask(Cached(CachePrivate, says(200, `{"a":2}`)), "GET"); other.Header.Get("ETag") == tag {
		t.Errorf("two different bodies have the same tag %s", tag)
	}
	for _, known := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		for _, method := range []string{"GET", "HEAD"} {
			again := ask(h, method, "If-None-Match", known)
			if again.StatusCode != 304 || text(t, again.Body) != "" || again.Header.Get("ETag") != tag || again.Header.Get("Cache-Control") != CachePrivate || again.Header.Get("Content-Type") != "" {
				t.Errorf("%s with If-None-Match %s: %d with %v, want 304 with the tag and no body", method, known, again.StatusCode, again.Header)
			}
		}
	}
	for _, known := range []string{`"x"`, strings.Trim(tag, `"`), ""} {
		if again := ask(h, "GET", "If-None-Match", known); again.StatusCode != 200 || text(t, again.Body) != `{"a":1}` {
			t.Errorf("GET with If-None-Match %s: %d, want 200 with the body", known, again.StatusCode)
		}
	}
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	h := Cached(CachePublic, says(200, large))
	packed := ask(h, "GET", "Accept-Encoding", "br, gzip")
	tag := packed.Header.Get("ETag")
	if packed.Header.Get("Content-Encoding") != "gzip" || packed.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("GET with gzip has the headers %v, want Content-Encoding gzip and Vary Accept-Encoding", packed.Header)
	}
	again := ask(h, "GET", "Accept-Encoding", "gzip", "If-None-Match", tag)
	if again.StatusCode != 304 || again.Header.Get("ETag") != tag || again.Header.Get("Content-Encoding") != "" || text(t, again.Body) != "" {
		t.Errorf("GET with the tag of the compressed answer: %d with %v, want 304 with the same tag", again.StatusCode, again.Header)
	}
	for header, body := range map[string]string{"gzip;q=0": large, "identity": large, "gzip": `{"a":1}`} {
		if a := ask(Cached(CachePublic, says(200, body)), "GET", "Accept-Encoding", header); a.Header.Get("Content-Encoding") != "" || text(t, a.Body) != body {
			t.Errorf("%d bytes with Accept-Encoding %s: headers %v, want the plain body", len(body), header, a.Header)
		}
	}
}

func TestOtherAnswersPassUnchanged(t *testing.T) {
	for _, status := range []int{201, 401, 404, 409, 503} {
		a := ask(Cached(CachePublic, says(status, `{"error":"X: y"}`)), "GET", "If-None-Match", "*")
		if a.StatusCode != status || a.Header.Get("ETag") != "" || a.Header.Get("Cache-Control") != "no-store" || text(t, a.Body) != `{"error":"X: y"}` {
			t.Errorf("status %d becomes %d with %v, want it unchanged, without a tag", status, a.StatusCode, a.Header)
		}
	}
	if a := ask(Cached(CachePublic, says(200, "{}")), "POST", "If-None-Match", "*"); a.StatusCode != 200 || a.Header.Get("ETag") != "" {
		t.Errorf("POST: %d with %v, want 200 without a tag", a.StatusCode, a.Header)
	}
}

// A public answer that stays the same is compressed once, whoever asks.
func TestPublicAnswersAreCompressedOnce(t *testing.T) {
	text := []byte(large)
	h := Cached(CachePublic, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { JSON(w, 200, text) }))
	sent := func() *byte {
		w := &lastWrite{ResponseWriter: httptest.NewRecorder()}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		h.ServeHTTP(w, r)
		if len(w.last) == 0 || len(w.last) > len(text)/2 {
			t.Fatalf("%d bytes were sent, want the compressed answer", len(w.last))
		}
		return &w.last[0]
	}
	first := sent()
	if sent() != first {
		t.Error("the same answer was compressed again")
	}
	text = []byte(strings.ReplaceAll(large, "c", "d"))
	if sent() == first {
		t.Error("another answer was sent as the one before")
	}
}

type lastWrite struct {
	http.ResponseWriter
	last []byte
}

func (w *lastWrite) Write(b []byte) (int, error) {
	w.last = b
	return w.ResponseWriter.Write(b)
}

// A handler that knows the ETag writes no body for a HEAD, or if the caller has the answer.
func TestTaggedAnswersNeedNoBody(t *testing.T) {
	h := Cached(CachePrivate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Tagged(w, `W/"one"`)
		if _, same := Match(r.Header.Values("If-None-Match"), `W/"one"`); same || IsHead(w) {
			JSON(w, 200, nil)
			return
		}
		JSON(w, 200, []byte(large))
	}))
	if a := ask(h, "GET", "Accept-Encoding", "gzip"); a.StatusCode != 200 || a.Header.Get("ETag") != `W/"one-gzip"` || a.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("GET: %d with %v", a.StatusCode, a.Header)
	}
	if a := ask(h, "HEAD"); a.StatusCode != 200 || a.Header.Get("ETag") != `W/"one"` || text(t, a.Body) != "" {
		t.Errorf("HEAD: %d with %v", a.StatusCode, a.Header)
	}
	for _, known := range []string{`"one"`, `W/"one-gzip"`, "*"} {
		if a := ask(h, "GET", "If-None-Match", known); a.StatusCode != 304 || !strings.HasPrefix(a.Header.Get("ETag"), `W/"one`) || text(t, a.Body) != "" {
			t.Errorf("GET with %s: %d with %v, want 304", known, a.StatusCode, a.Header)
		}
	}
}
