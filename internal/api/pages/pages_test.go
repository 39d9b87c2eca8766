package pages

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/api/docs"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

func mux() *http.ServeMux {
	m := http.NewServeMux()
	for path, page := range Pages(docs.Deployment{Chain: drand.Quicknet(), PublicURL: "https://fairpact.example.com"}) {
		m.Handle(path, page)
	}
	return m
}

func ask(m http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPagesAndAllThatTheyName(t *testing.T) {
	m := mux()
	asset := regexp.MustCompile(`/assets/[^"]+`)
	imported := regexp.MustCompile(`from '\./([a-z0-9.]+\.js)'`)
	for _, path := range []string{"/", "/reference", "/new", "/d/d_any"} {
		page := ask(m, "GET", path)
		h := page.Header
		if page.StatusCode != 200 || h.Get("Content-Type") != "text/html; charset=utf-8" || h.Get("ETag") == "" || h.Get("Content-Security-Policy") != policy ||
			h.Get("Link") != `</openapi.json>; rel="service-desc"` || h.Get("Cache-Control") != "public, no-cache" {
			t.Fatalf("GET %s: %d with %v, want 200, HTML, ETag, the policy and the link to the OpenAPI document", path, page.StatusCode, h)
		}
		body := text(t, page.Body)
		if strings.Contains(body, "{{") || strings.Contains(body, " style=") || strings.Contains(body, "<style") || regexp.MustCompile(`(src|href)="(https?:)?//`).MatchString(body) {
			t.Errorf("%s has a placeholder, an inline style or a link to another origin, which the policy forbids", path)
		}
		names := asset.FindAllString(body, -1)
		if len(names) < 3 {
			t.Fatalf("%s names the assets %v, want at least 3", path, names)
		}
		folder := names[0][:strings.LastIndex(names[0], "/")+1]
		for seen := map[string]bool{}; len(names) > 0; names = names[1:] {
			if seen[names[0]] {
				continue
			}
			seen[names[0]] = true
			a := ask(m, "GET", names[0])
			if a.StatusCode != 200 || a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" || a.Header.Get("ETag") == "" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("GET %s: %d with %v, want 200, immutable, with ETag and nosniff", names[0], a.StatusCode, a.Header)
			}
			for _, found := range imported.FindAllStringSubmatch(text(t, a.Body), -1) {
				names = append(names, folder+found[1])
			}
		}
	}
}

func TestTextsAreReadableInABrowser(t *testing.T) {
	m := mux()
	for path, title := range map[string]string{"/trust": "The trust model of Fairpact", "/protocol": "Fairpact protocol"} {
		tags := map[string]bool{}
		for accept, want := range map[string]string{
			"": "text/markdown", "*/*": "text/markdown", "text/markdown, text/html, */*": "text/markdown",
			"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "text/html",
		} {
			a := ask(m, "GET", path, "Accept", accept)
			body := text(t, a.Body)
			tags[a.Header.Get("ETag")] = true
			if a.StatusCode != 200 || a.Header.Get("Content-Type") != want+"; charset=utf-8" || !strings.Contains(strings.Join(a.Header.Values("Vary"), ","), "Accept,") {
				t.Errorf("%s for %q: %d %v", path, accept, a.StatusCode, a.Header)
			}
			if want == "text/markdown" {
				if !strings.HasPrefix(body, "# "+title) {
					t.Errorf("%s for %q begins with %.80s", path, accept, body)
				}
				continue
			}
			if a.Header.Get("Content-Security-Policy") != policy || !strings.Contains(body, ">"+title) || !strings.Contains(body, "<table>") ||
				!strings.Contains(body, `href="`+path+`" aria-current="page"`) || !strings.Contains(body, `href="?format=markdown"`) ||
				strings.Contains(body, "{{") || strings.Contains(body, "raw HTML omitted") || strings.Contains(body, "style=") {
				t.Errorf("%s is not ready, or names what the policy forbids: %v %.400s", path, a.Header, body)
			}
		}
		linked := ask(m, "GET", path+"?format=markdown", "Accept", "text/html,*/*;q=0.8")
		if body := text(t, linked.Body); linked.StatusCode != 200 || !strings.HasPrefix(body, "# "+title) {
			t.Errorf("%s?format=markdown in a browser: %d %.80s, want the Markdown", path, linked.StatusCode, body)
		}
		if len(tags) != 2 {
			t.Errorf("%s: two representations have the tags %v", path, tags)
		}
	}
}

func TestAssetsOfAnotherVersion(t *testing.T) {
	m := mux()
	if a := ask(m, "GET", "/assets/000000000000/page.js"); a.StatusCode != 200 || a.Header.Get("Cache-Control") != "public, no-cache" || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("page.js of another version: %d with %v, want 200, JavaScript that is revalidated", a.StatusCode, a.Header)
	}
	for _, path := range []string{"/assets/000000000000/nothing.js", "/assets/000000000000/index.html"} {
		if a := ask(m, "GET", path); a.StatusCode != 404 || a.Header.Get("ETag") != "" || !strings.HasPrefix(text(t, a.Body), `{"error":"NOT_FOUND: `) {
			t.Errorf("GET %s: %d with %v, want 404 NOT_FOUND without ETag", path, a.StatusCode, a.Header)
		}
	}
}

// missed returns how many errors NOT_FOUND were counted.
func missed(t *testing.T) (count float64) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "fairpact_errors_total" && m.GetLabel()[0].GetValue() == "NOT_FOUND" {
				count = m.GetCounter().GetValue()
			}
		}
	}
	return count
}

// A person who follows a broken link reads a page, and a client of the API the error.
func TestUnknownPath(t *testing.T) {
	m := mux()
	counted := missed(t)
	a := ask(m, "GET", "/nothing", "Accept", "text/html,*/*;q=0.8")
	if missed(t) != counted+1 {
		t.Errorf("the page of an unknown path is not counted as an error")
	}
	if body := text(t, a.Body); a.StatusCode != 404 || a.Header.Get("Content-Security-Policy") == "" || !strings.Contains(body, "There is no page here") || strings.Contains(body, "{{") {
		t.Errorf("/nothing in a browser: %d with %v, %s", a.StatusCode, a.Header, body)
	}
	for _, path := range []string{"/v1", "/v1/", "/v1/nothing", "/mcp/nothing"} {
		if a := ask(m, "GET", path, "Accept", "text/html,*/*;q=0.8"); a.StatusCode != 404 || !strings.HasPrefix(text(t, a.Body), `{"error":"NOT_FOUND: `) {
			t.Errorf("%s in a browser: %d with %v, want 404 NOT_FOUND", path, a.StatusCode, a.Header)
		}
	}
	for _, method := range []string{"GET", "POST"} {
		if a := ask(m, method, "/nothing", "Accept", "application/json"); a.StatusCode != 404 || !strings.HasPrefix(text(t, a.Body), `{"error":"NOT_FOUND: no such path; the paths are in GET /openapi.json`) {
			t.Errorf("%s /nothing: %d with %v, want 404 NOT_FOUND", method, a.StatusCode, a.Header)
		}
	}
}

func TestPageIsCompressedAndRevalidated(t *testing.T) {
	m := mux()
	a := ask(m, "GET", "/", "Accept-Encoding", "gzip")
	r, err := gzip.NewReader(a.Body)
	if err != nil {
		t.Fatalf("GET / with gzip is not compressed: %v, headers %v", err, a.Header)
	}
	if !strings.Contains(text(t, r), "<h1") {
		t.Error("the unpacked answer of GET / has no <h1")
	}
	if again := ask(m, "GET", "/", "Accept-Encoding", "gzip", "If-None-Match", a.Header.Get("ETag")); again.StatusCode != 304 {
		t.Errorf("GET / with the ETag of the compressed page: %d, want 304", again.StatusCode)
	}
}
