package ops

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

// `helm test` also runs fairpactctl smoke.
func TestSmoke(t *testing.T) {
	t.Parallel()
	out, said := e2e.NewCtl(t, e2e.BaseURL(t)).Run(0, "smoke", "--algorithm", "all")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if lines[len(lines)-1] != "valid" || strings.Contains(out, "FAIL") || !strings.Contains(said, "deal d_") || strings.Contains(out, "without its state") {
		t.Errorf("smoke: output %s\nand messages %s", out, said)
	}
	if n := strings.Count(out, "\nvalid\n"); n != len(algorithm.All()) || strings.Count(said, "deal d_") != n {
		t.Errorf("%d valid certificates, want one for each of %d algorithms; %s", n, len(algorithm.All()), said)
	}
	for _, check := range []string{"signature", "key_in_force", "merkle_inclusion", "tree_head_signature", "commitments", "result"} {
		if !strings.Contains(out, "OK   "+check) {
			t.Errorf("no successful check %s in\n%s", check, out)
		}
	}
}

func TestSmokeNotValid(t *testing.T) {
	t.Parallel()
	for name, forgery := range map[string]struct {
		path   string
		change func(map[string]any)
		says   string
	}{
		"another result": {"/bundle", func(b map[string]any) {
			b["certificate"].(map[string]any)["result"].(map[string]any)["method"] = "proportional"
		}, "FAIL result"},
		"another tree": {"/bundle", func(b map[string]any) { b["tree_head"].(map[string]any)["root_hash"] = strings.Repeat("0", 64) }, "FAIL tree_head"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _ := e2e.NewCtl(t, lying(t, e2e.BaseURL(t), forgery.path, forgery.change)).Run(1, "smoke")
			if !strings.Contains(out, forgery.says) || !strings.HasSuffix(strings.TrimSpace(out), "NOT VALID") {
				t.Errorf("smoke prints %s, want %q and NOT VALID at the end", out, forgery.says)
			}
		})
	}
}

// lying starts a proxy for the service at `base` and returns the URL of the proxy. `change` modifies
// the JSON of each answer with status 200 to a request whose path ends with `path`.
func lying(t testing.TB, base, path string, change func(map[string]any)) string {
	t.Helper()
	target, err := url.Parse(base)
	e2e.Must(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasSuffix(r.Request.URL.Path, path) || r.StatusCode != 200 {
				return nil
			}
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			var answer map[string]any
			if err := json.Unmarshal(text, &answer); err != nil {
				return err
			}
			change(answer)
			if text, err = json.Marshal(answer); err != nil {
				return err
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			r.Header.Set("Content-Length", strconv.Itoa(len(text)))
			return nil
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}
