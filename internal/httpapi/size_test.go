package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/caller"
	"github.com/fairpact/fairpact/internal/limits"
)

// A certificate may have 10,000 parties with the longest labels, keys and origin. The
// member's name is wrong here, so that the body is read and then refused.
func TestTheLargestCertificateIsRead(t *testing.T) {
	row := fmt.Sprintf(`{"attested_by":"declared es256:%066d es256:%0128d https://%s","commitment":"sha256:%064d","index":9999,"label":"%s"},`,
		0, 0, strings.Repeat("x", 255), 0, strings.Repeat("x", 200))
	body := `{"certificates":{"parties":[` + strings.Repeat(row, 10_000) + `null]}}`
	a := &API{Config: Config{Logger: slog.New(slog.DiscardHandler), Callers: &caller.Policy{}}, limits: limits.New()}
	w := httptest.NewRecorder()
	if _, err := a.verifyHanded(w, httptest.NewRequest(http.MethodPost, "/v1/verify", strings.NewReader(body))); err == nil {
		t.Fatal("the certificate is missing and the call succeeds")
	} else {
		answer.Error(w, err)
	}
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "INVALID_REQUEST: certificate") {
		t.Errorf("a body of %d bytes: %d %s", len(body), w.Code, w.Body)
	}
}
